{{- /*
Contradictions between the configuration and the rest of the values, which would make a
pod that can not work. What the configuration itself has wrong the schema and the check
job say.
*/ -}}
{{- define "kbridge.validate" -}}
{{- $config := .Values.config -}}
{{- $address := dig "server" "address" ":8080" $config -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\]:)" $address -}}
{{- fail (printf "config.server.address %q: nothing outside of the pod reaches it, neither the probes nor Prometheus: set \":8080\", or \"\" to do without" $address) -}}
{{- end -}}
{{- if regexMatch ":0+$" $address -}}
{{- fail (printf "config.server.address %q: the probes and the Service need a port that is known" $address) -}}
{{- end -}}
{{- $writable := list (include "kbridge.dataDir" .) -}}
{{- range .Values.extraVolumeMounts -}}
{{- $writable = append $writable .mountPath -}}
{{- end -}}
{{- $readable := concat $writable (list "/etc/ssl") -}}
{{- range .Values.credentials -}}
{{- $readable = append $readable .mountPath -}}
{{- end -}}
{{- range $keys := list (list "auth" "tokenFile") (list "tls" "certFile") (list "tls" "keyFile") (list "tls" "clientCAFile") -}}
{{- with dig "server" (first $keys) (last $keys) "" $config -}}
{{- include "kbridge.requireMount" (list (printf "config.server.%s" (join "." $keys)) . $readable "no entry of credentials or extraVolumeMounts is mounted there") -}}
{{- end -}}
{{- end -}}
{{- range $name, $monitor := dict "serviceMonitor" .Values.serviceMonitor "podMonitor" .Values.podMonitor -}}
{{- if and $monitor.enabled (dig "server" "auth" "" $config) (not $monitor.authorization) -}}
{{- fail (printf "%s.authorization: config.server.auth asks Prometheus for a token: {type: Bearer, credentials: {name: SECRET, key: KEY}}" $name) -}}
{{- end -}}
{{- if and $monitor.enabled (dig "server" "tls" "clientCAFile" "" $config) (not (dig "cert" "" $monitor.tlsConfig)) -}}
{{- fail (printf "%s.tlsConfig.cert: config.server.tls.clientCAFile asks Prometheus for a certificate: {cert: {secret: {name: SECRET, key: tls.crt}}, keySecret: {name: SECRET, key: tls.key}}" $name) -}}
{{- end -}}
{{- end -}}
{{- with dig "state" "file" "dir" "" $config -}}
{{- include "kbridge.requireMount" (list "config.state.file.dir" . $writable "the volume is at /var/lib/kbridge, and no entry of extraVolumeMounts is there") -}}
{{- end -}}
{{- range $i, $sink := $config.sinks -}}
{{- $path := printf "config.sinks[%d]" $i -}}
{{- with dig "deadLetter" "file" "" $sink -}}
{{- include "kbridge.requireMount" (list (printf "%s.deadLetter.file" $path) . $writable "the volume is at /var/lib/kbridge, and no entry of extraVolumeMounts is there") -}}
{{- end -}}
{{- range $kind := list "nats" "kafka" -}}
{{- range $keys := list (list "creds") (list "nkey") (list "tokenFile") (list "passwordFile") (list "tls" "ca") (list "tls" "cert") (list "tls" "key") (list "sasl" "passwordFile") (list "sasl" "tokenFile") (list "sasl" "clientSecretFile") -}}
{{- $value := dig $kind dict $sink -}}
{{- range $keys -}}
{{- $value = kindIs "map" $value | ternary (get (kindIs "map" $value | ternary $value dict) .) "" -}}
{{- end -}}
{{- if $value -}}
{{- include "kbridge.requireMount" (list (printf "%s.%s.%s" $path $kind (join "." $keys)) $value $readable "no entry of credentials or extraVolumeMounts is mounted there") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Fails unless a path is in one of the folders: a list of its name, the path, the folders, and what to say. */ -}}
{{- define "kbridge.requireMount" -}}
{{- $path := clean (index . 1) -}}
{{- $found := false -}}
{{- range index . 2 -}}
{{- if or (eq $path (clean .)) (hasPrefix (printf "%s/" (clean .)) $path) -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "%s %q: %s" (index . 0) $path (index . 3)) -}}
{{- end -}}
{{- end -}}

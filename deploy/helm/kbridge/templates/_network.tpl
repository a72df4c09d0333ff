{{- /*
The ports of the configuration's sinks, as a JSON list: those of the URLs and brokers, or
their protocol's, and that of the server which gives out tokens.
*/ -}}
{{- define "kbridge.sinkPorts" -}}
{{- $ports := dict -}}
{{- range .Values.config.sinks -}}
{{- range dig "nats" "urls" list . -}}
{{- $default := get (dict "ws" "80" "wss" "443") (first (splitList "://" .)) | default "4222" -}}
{{- $_ := set $ports (include "kbridge.portOf" (list . $default)) true -}}
{{- end -}}
{{- range dig "kafka" "brokers" list . -}}
{{- $_ := set $ports (include "kbridge.portOf" (list . "9092")) true -}}
{{- end -}}
{{- with dig "kafka" "sasl" "tokenURL" "" . -}}
{{- $_ := set $ports (include "kbridge.portOf" (list . (hasPrefix "http://" . | ternary "80" "443"))) true -}}
{{- end -}}
{{- end -}}
{{- $list := list -}}
{{- range keys $ports | sortAlpha -}}
{{- $list = append $list (int .) -}}
{{- end -}}
{{- $list | toJson -}}
{{- end -}}

{{- /* The port in a URL or an address, or else the second of the list. */ -}}
{{- define "kbridge.portOf" -}}
{{- $host := regexReplaceAll "^[a-z]+://" (index . 0) "" | splitList "/" | first -}}
{{- regexFind ":[0-9]+$" $host | trimPrefix ":" | default (index . 1) -}}
{{- end -}}

{{- define "kbridge.priorityClassName" -}}
{{- printf "%s-%s" .Release.Namespace (include "kbridge.fullname" .) -}}
{{- end -}}

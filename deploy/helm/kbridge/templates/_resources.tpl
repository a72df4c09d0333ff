{{- /* A number of bytes, such as 64MiB, as Mebibytes, rounded up. */ -}}
{{- define "kbridge.mebibytes" -}}
{{- $text := toString . -}}
{{- if kindIs "float64" . -}}
{{- $text = printf "%.0f" . -}}
{{- end -}}
{{- $number := regexFind "^[0-9.]+" $text | float64 -}}
{{- $unit := regexReplaceAll "^[0-9.]+ *" $text "" | trimSuffix "B" -}}
{{- $bytes := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 -}}
{{- divf (mulf $number (get $bytes $unit)) 1048576.0 | ceil | int -}}
{{- end -}}

{{- /*
The memory limit that docs/PERFORMANCE.md comes to: what the objects need with one sink
whose window is full, and the windows of other sinks, or of larger ones.
*/ -}}
{{- define "kbridge.memoryLimit" -}}
{{- $limit := get (dict "small" 128 "medium" 192 "large" 320 "xlarge" 1024) .Values.clusterSize -}}
{{- $windows := 0 -}}
{{- range .Values.config.sinks -}}
{{- $windows = add $windows (include "kbridge.mebibytes" (dig "window" "bytes" "64MiB" .) | int) -}}
{{- end -}}
{{- $limit = add $limit (max 0 (sub $windows 64)) -}}
{{- if include "kbridge.embedded" . -}}
{{- $limit = add $limit 128 -}}
{{- end -}}
{{- if not .Values.config.state -}}
{{- /* Bodies are in memory: 1,000 bytes a pod, and garbage. */ -}}
{{- $limit = add $limit (get (dict "small" 0 "medium" 32 "large" 192 "xlarge" 1536) .Values.clusterSize) -}}
{{- end -}}
{{- $limit -}}
{{- end -}}

{{- define "kbridge.resources" -}}
{{- $limit := include "kbridge.memoryLimit" . | int -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $limits := default dict $resources.limits -}}
{{- if not (hasKey $limits "memory") -}}
{{- $_ := set $limits "memory" (printf "%dMi" $limit) -}}
{{- end -}}
{{- $requests := default dict $resources.requests -}}
{{- if and (not (hasKey $requests "memory")) (not (hasKey (default dict .Values.resources.limits) "memory")) -}}
{{- $_ := set $requests "memory" (printf "%dMi" (div $limit 2)) -}}
{{- end -}}
{{- $_ := set $resources "limits" $limits -}}
{{- with $requests }}{{ $_ := set $resources "requests" . }}{{ end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- /*
The least permissions that the configuration needs, as JSON: `cluster` is a list of
"group/resource", `namespaces` a map from a namespace to such a list. What one entry
selects everywhere is not granted again in the namespaces of another. `kbridge rbac`
does the same; a test compares them.
*/ -}}
{{- define "kbridge.permissions" -}}
{{- $cluster := dict -}}
{{- range .Values.config.resources -}}
{{- if not .namespaces -}}
{{- $_ := set $cluster (include "kbridge.groupResource" .) true -}}
{{- end -}}
{{- end -}}
{{- $namespaces := dict -}}
{{- range .Values.config.resources -}}
{{- $resource := include "kbridge.groupResource" . -}}
{{- if not (hasKey $cluster $resource) -}}
{{- range .namespaces -}}
{{- $_ := set $namespaces . (append (default list (get $namespaces .)) $resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $namespace, $resources := $namespaces -}}
{{- $_ := set $namespaces $namespace ($resources | uniq | sortAlpha) -}}
{{- end -}}
{{- dict "cluster" (keys $cluster | sortAlpha) "namespaces" $namespaces | toJson -}}
{{- end -}}

{{- define "kbridge.groupResource" -}}
{{- $group := default "" .group -}}
{{- if eq $group "core" }}{{ $group = "" }}{{ end -}}
{{- printf "%s/%s" $group .resource -}}
{{- end -}}

{{- /* Rules that let a sorted list of "group/resource" be watched, one for each group. */ -}}
{{- define "kbridge.watchRules" -}}
{{- $before := "none" -}}
{{- range . -}}
{{- $group := first (splitList "/" .) -}}
{{- if ne $group $before }}
- apiGroups: [{{ $group | quote }}]
  verbs: [list, watch]
  resources:
{{- $before = $group -}}
{{- end }}
    - {{ last (splitList "/" .) }}
{{- end -}}
{{- end -}}

{{- /* A role's binding: a dict of root, kind (ClusterRole or Role) and perhaps namespace. */ -}}
{{- define "kbridge.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  {{- include "kbridge.metadata" (dict "root" .root "name" (include "kbridge.outsideName" .root) "namespace" .namespace "outside" (eq .kind "ClusterRole")) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ include "kbridge.outsideName" .root }}
subjects:
  - kind: ServiceAccount
    name: {{ include "kbridge.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

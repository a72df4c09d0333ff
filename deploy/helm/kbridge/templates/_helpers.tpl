{{- define "kbridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* 52 characters: a StatefulSet's pods carry a hash of ten in a label. */ -}}
{{- define "kbridge.fullname" -}}
{{- $name := include "kbridge.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Of what is outside of the release's namespace, so that two releases do not share it. */ -}}
{{- define "kbridge.outsideName" -}}
{{- printf "%s:%s" .Release.Namespace (include "kbridge.fullname" .) -}}
{{- end -}}

{{- define "kbridge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kbridge.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kbridge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kbridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kbridge.labels" -}}
{{ include "kbridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* metadata of one object: a dict of root, name, and perhaps namespace, labels, annotations, outside. */ -}}
{{- define "kbridge.metadata" -}}
name: {{ .name }}
{{- if not .outside }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
  {{- include "kbridge.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kbridge.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "kbridge.imagePullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The configuration, as the file has it. */ -}}
{{- define "kbridge.config" -}}
{{- toYaml .Values.config -}}
{{- end -}}

{{- /* Whether the configuration has no sink: kbridge then runs a NATS server itself. */ -}}
{{- define "kbridge.embedded" -}}
{{- if not .Values.config.sinks }}true{{ end -}}
{{- end -}}

{{- /* The HTTP server's port, or nothing where it is off. */ -}}
{{- define "kbridge.port" -}}
{{- $address := dig "server" "address" ":8080" .Values.config -}}
{{- if $address -}}
{{- regexFind "[0-9]+$" $address -}}
{{- end -}}
{{- end -}}

{{- /* Where the HTTP server is reached from within the pod. */ -}}
{{- define "kbridge.localAddress" -}}
{{- $host := dig "server" "address" ":8080" .Values.config | trimSuffix (printf ":%s" (include "kbridge.port" .)) -}}
{{- printf "%s:%s" (has $host (list "" "0.0.0.0" "[::]") | ternary "127.0.0.1" $host) (include "kbridge.port" .) -}}
{{- end -}}

{{- /* Whether the HTTP server speaks TLS. */ -}}
{{- define "kbridge.encrypted" -}}
{{- if dig "server" "tls" "" .Values.config }}true{{ end -}}
{{- end -}}

{{- /* How kbridge asks the kbridge at an address whether it is ready. A probe checks no certificate. */ -}}
{{- define "kbridge.readyArgs" -}}
- {{ printf "--url=%s://%s" (eq (include "kbridge.encrypted" .root) "true" | ternary "https" "http") .address | quote }}
{{- if include "kbridge.encrypted" .root }}
- --insecure-skip-tls-verify
{{- end }}
{{- end -}}

{{- /* The folder of the volume. The image's environment names it too. */ -}}
{{- define "kbridge.dataDir" -}}/var/lib/kbridge{{- end -}}

{{- /* The pod's security context. OpenShift assigns a namespace's ids itself, and refuses others. */ -}}
{{- define "kbridge.podSecurityContext" -}}
{{- $context := .Values.podSecurityContext -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- /* What the pods have in common that only look: they need no rights, and little of a node. */ -}}
{{- /* They are not kbridge: no Service and no policy may take them for it. */ -}}
{{- define "kbridge.checkLabels" -}}
app.kubernetes.io/name: {{ include "kbridge.name" . }}-check
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kbridge.checkPod" -}}
restartPolicy: Never
automountServiceAccountToken: false
{{- include "kbridge.imagePullSecrets" . }}
securityContext:
  {{- include "kbridge.podSecurityContext" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kbridge.checkContainer" -}}
image: {{ include "kbridge.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 64Mi}
{{- end -}}

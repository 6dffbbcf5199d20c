{{- /* How agents and operator reach the API, if not through the Service kubernetes. */ -}}
{{- define "cilium.api" -}}
{{- with .Values.k8sServiceHost }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ $.Values.k8sServicePort | default "6443" | quote }}
{{- end }}
{{- end }}

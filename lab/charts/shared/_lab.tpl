{{- /*
Every stand-in chart gets this file when it is packaged.

lab.crds turns the table files/crds.yaml into CustomResourceDefinitions. The
first version of a row is the one that is stored. What a row does not say of spec
and status is accepted, whatever it is; fields are those beside them. The caBundle
of a conversion webhook is filled in at run time. A definition in files/upstream.yaml
goes before the row of its name; it may name the release's namespace as a template does.
*/ -}}
{{- define "lab.crds" -}}
{{- $upstream := .Files.Get "files/upstream.yaml" | replace "{{ .Release.Namespace }}" .Release.Namespace }}
{{ $upstream }}
{{- range .Files.Get "files/crds.yaml" | fromYamlArray }}
{{- $row := . }}
{{- if not (contains (printf "name: %s.%s\n" .plural .group) $upstream) }}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {{ .plural }}.{{ .group }}
  labels:
    app.kubernetes.io/managed-by: {{ $.Release.Service }}
    app.kubernetes.io/instance: {{ $.Release.Name }}
spec:
  group: {{ .group }}
  scope: {{ .scope | default "Namespaced" }}
  {{- with .conversion }}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: {{ $row.versions | toJson }}
      clientConfig:
        service: { namespace: {{ $.Release.Namespace }}, name: {{ .service }}, path: {{ .path }} }
  {{- end }}
  names:
    kind: {{ .kind }}
    listKind: {{ .kind }}List
    plural: {{ .plural }}
    singular: {{ .kind | lower }}
    shortNames: {{ .shortNames | default list | toJson }}
  versions:
    {{- range $index, $version := .versions }}
    - name: {{ $version }}
      served: true
      storage: {{ eq $index 0 }}
      subresources:
        status: {}
      additionalPrinterColumns: {{ $row.columns | default list | toJson }}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {{ merge (dict "type" "object" "x-kubernetes-preserve-unknown-fields" true) ($row.spec | default dict) | toJson }}
            status: {{ merge (dict "type" "object" "x-kubernetes-preserve-unknown-fields" true) ($row.status | default dict) | toJson }}
            {{- range $name, $field := $row.fields }}
            {{ $name }}: {{ toJson $field }}
            {{- end }}
          {{- with $row.required }}
          required: {{ toJson . }}
          {{- end }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /*
lab.readyAfter is a Pod's annotation: how long it takes until it is ready, for
the given number of seconds that it takes outside.
*/ -}}
{{- define "lab.readyAfter" -}}
lab.castle/ready-after: {{ printf "%.0fms" (divf (mulf 1000.0 (index . 1)) (index . 0).Values.lab.speed) }}
{{- end }}

{{- /* lab.labels are what charts put on everything. */ -}}
{{- define "lab.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

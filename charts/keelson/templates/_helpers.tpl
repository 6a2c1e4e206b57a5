{{- /* What the names of all objects begin with. */ -}}
{{- define "keelson.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trimSuffix "-" -}}
{{- else if contains "keelson" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-keelson" (.Release.Name | trunc 32) -}}
{{- end -}}
{{- end -}}

{{- define "keelson.labels" -}}
app.kubernetes.io/name: keelson
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "keelson.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* An image of the release besides that of the manager, by the end of its name. */ -}}
{{- define "keelson.besides" -}}
{{- $values := (index . 0).Values -}}
{{- printf "%s-%s:%s" $values.image.repository (index . 1) ($values.image.tag | default (index . 0).Chart.AppVersion) -}}
{{- end -}}

{{- /* The controllers that run, separated by commas. */ -}}
{{- define "keelson.controllers" -}}
{{- $selected := list -}}
{{- range $name, $runs := .Values.controllers -}}
{{- if $runs -}}{{- $selected = append $selected $name -}}{{- end -}}
{{- end -}}
{{- if not $selected -}}
{{- fail "controllers: turn at least one on" -}}
{{- end -}}
{{- if and .Values.namespaces (or .Values.controllers.cluster .Values.controllers.kubeconfig) -}}
{{- fail "namespaces: Clusters and Kubeconfigs have no namespace; set controllers.cluster and controllers.kubeconfig to false" -}}
{{- end -}}
{{- join "," $selected -}}
{{- end -}}

{{- /* The namespaces for which the webhook is asked, as a selector; nothing means all. */ -}}
{{- define "keelson.namespaceSelector" -}}
{{- with .Values.namespaces -}}
matchExpressions:
- key: kubernetes.io/metadata.name
  operator: In
  values:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "odradek.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "odradek.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "odradek.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "odradek.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Name of cluster-scoped objects: releases of the same name may be in several namespaces. */}}
{{- define "odradek.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "odradek.fullname" .) }}
{{- end }}

{{- define "odradek.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "odradek.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.create is false: serviceAccount.name says which one to use" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "odradek.selector" -}}
app.kubernetes.io/name: {{ include "odradek.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "odradek.consoleSelector" -}}
app.kubernetes.io/name: {{ include "odradek.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: console
{{- end }}

{{- define "odradek.consoleLabels" -}}
{{ include "odradek.consoleSelector" . }}
{{ include "odradek.commonLabels" . }}
{{- end }}

{{- define "odradek.labels" -}}
{{ include "odradek.selector" . }}
{{ include "odradek.commonLabels" . }}
{{- end }}

{{- define "odradek.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "odradek.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "odradek.brokerImage" -}}
{{- printf "%s:%s" .Values.brokerImage.repository (default .Chart.AppVersion .Values.brokerImage.tag) }}
{{- end }}

{{- define "odradek.apacheImage" -}}
{{- printf "%s:%s" .Values.apacheImage.repository .Values.apacheImage.tag }}
{{- end }}

{{- /* The watched namespaces as JSON; empty with scope Cluster. */}}
{{- define "odradek.namespaces" -}}
{{- if eq .Values.watch.scope "Cluster" }}
{{- if .Values.watch.namespaces }}
{{- fail "watch.scope is Cluster, which is all namespaces: leave watch.namespaces empty" }}
{{- end }}
{{- list | toJson }}
{{- else }}
{{- default (list .Release.Namespace) .Values.watch.namespaces | uniq | toJson }}
{{- end }}
{{- end }}

{{- /* The restricted Pod Security Standard, for the pod and for its container. */}}
{{- define "odradek.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "odradek.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

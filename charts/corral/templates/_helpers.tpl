{{- /* Full name: "corral" for a release of that name, RELEASE-corral for others. */ -}}
{{- define "corral.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "corral.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "corral.labels" -}}
{{ include "corral.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "corral.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "corral.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "corral.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "corral.subject" -}}
kind: ServiceAccount
name: {{ include "corral.serviceAccountName" . }}
namespace: {{ .Release.Namespace }}
{{- end -}}

{{- /* The generated rules, as {"cluster": rules on what has no namespace, "namespaced": the others}. */ -}}
{{- define "corral.rules" -}}
{{- $cluster := list -}}
{{- $namespaced := list -}}
{{- range (.Files.Get "files/rbac/role.yaml" | fromYaml).rules -}}
{{- if has "namespaces" .resources -}}
{{- $cluster = append $cluster . -}}
{{- else -}}
{{- $namespaced = append $namespaced . -}}
{{- end -}}
{{- end -}}
{{- dict "cluster" $cluster "namespaced" $namespaced | toYaml -}}
{{- end -}}

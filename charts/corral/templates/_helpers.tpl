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
{{- range $rule := (.Files.Get "files/rbac/role.yaml" | fromYaml).rules -}}
{{- $without := list -}}
{{- $within := list -}}
{{- range .resources -}}
{{- if or (eq . "namespaces") (hasPrefix "cluster" .) -}}
{{- $without = append $without . -}}
{{- else -}}
{{- $within = append $within . -}}
{{- end -}}
{{- end -}}
{{- with $without -}}
{{- $cluster = append $cluster (set (deepCopy $rule) "resources" .) -}}
{{- end -}}
{{- with $within -}}
{{- $namespaced = append $namespaced (set (deepCopy $rule) "resources" .) -}}
{{- end -}}
{{- end -}}
{{- dict "cluster" $cluster "namespaced" $namespaced | toYaml -}}
{{- end -}}

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
{{- .Values.serviceAccount.name | default (include "corral.fullname" .) -}}
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

{{- /* Values that don't go together. */ -}}
{{- define "corral.check" -}}
{{- if and .Values.defaultServiceAccount (not .Values.impersonation.enabled) -}}
{{- fail "defaultServiceAccount: the controller may act as no account while impersonation.enabled is false" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: with create: false it names an account that is there; the namespace's default account is everybody's" -}}
{{- end -}}
{{- if .Values.webhook.ingress.enabled -}}
{{- if not .Values.webhook.enabled -}}
{{- fail "webhook.ingress.enabled: it leads nowhere while webhook.enabled is false" -}}
{{- end -}}
{{- if not .Values.webhook.ingress.host -}}
{{- fail "webhook.ingress.host: the Ingress needs the host that GitHub posts to" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What a generated rule leaves when the features that are off are taken out of it, or nothing. Of (list . RULE). */ -}}
{{- define "corral.enabledRule" -}}
{{- $values := (index . 0).Values -}}
{{- $rule := deepCopy (index . 1) -}}
{{- $groups := $rule.apiGroups -}}
{{- $verbs := $rule.verbs -}}
{{- if not $values.flux.enabled -}}
{{- $groups = without $groups "source.toolkit.fluxcd.io" -}}
{{- end -}}
{{- if not $values.externalMetrics.enabled -}}
{{- $groups = without $groups "external.metrics.k8s.io" -}}
{{- end -}}
{{- if not $values.impersonation.enabled -}}
{{- $verbs = without $verbs "impersonate" -}}
{{- end -}}
{{- if and $values.clusterID (has "kube-system" (dig "resourceNames" list $rule)) -}}
{{- $verbs = list -}}
{{- end -}}
{{- if and $groups $verbs -}}
{{- set (set $rule "apiGroups" $groups) "verbs" $verbs | toYaml -}}
{{- end -}}
{{- end -}}

{{- /* The generated rules of the features that are on, as {"cluster": rules on what has no namespace, "namespaced": the others}. */ -}}
{{- define "corral.rules" -}}
{{- $cluster := list -}}
{{- $namespaced := list -}}
{{- range (.Files.Get "files/rbac/role.yaml" | fromYaml).rules -}}
{{- with include "corral.enabledRule" (list $ .) | fromYaml -}}
{{- $rule := . -}}
{{- $without := list -}}
{{- $within := list -}}
{{- range .resources -}}
{{- if or (and (eq . "namespaces") (hasKey $rule "resourceNames")) (hasPrefix "cluster" .) (eq . "nodes") -}}
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
{{- end -}}
{{- dict "cluster" $cluster "namespaced" $namespaced | toYaml -}}
{{- end -}}

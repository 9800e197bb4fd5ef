// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// effect is how a non-default value changes the rendered chart.
type effect struct {
	value any
	want  string // text that appears only with the value
	gone  string // text that appears only by default
	with  string // other values that this one depends on, separated by blanks; they are set as in this table
}

const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// effects has an entry for every value in values.yaml.
var effects = map[string]effect{
	"fullnameOverride":             {value: "runners", want: "name: runners-metrics"},
	"image.repository":             {value: "registry.example/corral", want: `image: "registry.example/corral:dev"`},
	"image.tag":                    {value: "v1", want: `image: "corral:v1"`},
	"image.digest":                 {value: digest, want: `image: "corral@` + digest + `"`},
	"image.pullPolicy":             {value: "Always", want: "imagePullPolicy: Always"},
	"imagePullSecrets":             {value: []any{map[string]any{"name": "pull"}}, want: "- name: pull"},
	"replicas":                     {value: 3, want: "topologyKey: topology.kubernetes.io/zone"},
	"leaderElection.leaseDuration": {value: "40s", want: "--leader-election-lease-duration=40s"},
	"leaderElection.renewDeadline": {value: "12s", want: "--leader-election-renew-deadline=12s"},
	"leaderElection.retryPeriod":   {value: "3s", want: "--leader-election-retry-period=3s"},
	"crds.install":                 {value: false, gone: "kind: CustomResourceDefinition"},
	"crds.keep":                    {value: false, gone: "helm.sh/resource-policy: keep"},
	"admission.install":            {value: false, gone: "kind: ValidatingAdmissionPolicy"},
	"aggregatedRoles":              {value: false, gone: "aggregate-to-view"},
	"serviceAccount.create":        {value: false, with: "serviceAccount.name", gone: "kind: ServiceAccount\nmetadata"},
	"serviceAccount.name":          {value: "robot", want: "serviceAccountName: robot"},
	"serviceAccount.annotations":   {value: map[string]any{"example.test/role": "r"}, want: "example.test/role: r"},
	"watchNamespaces":              {value: []any{"team-a", "team-b"}, want: "--watch-namespaces=team-a,team-b"},
	"clusterID":                    {value: "blue: 1", want: `"--cluster-id=blue: 1"`, gone: "- kube-system"},
	"flux.enabled":                 {value: false, gone: "source.toolkit.fluxcd.io"},
	"impersonation.enabled":        {value: true, want: "- impersonate"},
	"defaultServiceAccount":        {value: "reconciler", with: "impersonation.enabled", want: "--default-service-account=reconciler"},
	"noCrossNamespaceRefs":         {value: false, want: "--no-cross-namespace-refs=false"},
	"externalMetrics.enabled":      {value: false, gone: "external.metrics.k8s.io"},
	"commitStatus.enabled":         {value: true, want: "- --post-status"},
	"eventsAddress":                {value: "http://notification-controller.flux-system./", want: `"--events-addr=http://notification-controller.flux-system./"`},
	"credentials": {
		value: []any{map[string]any{"name": "app.one", "namespace": "team-a", "volume": map[string]any{"secret": map[string]any{"secretName": "s"}}}},
		want:  "mountPath: /etc/corral/credentials/team-a/app.one",
	},
	"prometheusServers":          {value: map[string]any{"main": "http://prometheus.monitoring:9090/base"}, want: `"--prometheus-server=main=http://prometheus.monitoring:9090/base"`},
	"webhook.enabled":            {value: true, want: "name: corral-webhook"},
	"webhook.port":               {value: 9000, with: "webhook.enabled", want: "--webhook-addr=:9000"},
	"webhook.trustedProxies":     {value: []any{"10.0.0.0/8", "fd00::/8"}, with: "webhook.enabled", want: "--webhook-trusted-proxies=10.0.0.0/8,fd00::/8"},
	"webhook.serviceType":        {value: "LoadBalancer", with: "webhook.enabled", want: "type: LoadBalancer"},
	"webhook.serviceAnnotations": {value: map[string]any{"example.test/lb": "internal"}, with: "webhook.enabled", want: "example.test/lb: internal"},
	"webhook.ingress.enabled":    {value: true, with: "webhook.enabled webhook.ingress.host", want: "kind: Ingress"},
	"webhook.ingress.host":       {value: "corral.example.com", with: ingress, want: `host: "corral.example.com"`},
	"webhook.ingress.className":  {value: "nginx", with: ingress, want: "ingressClassName: nginx"},
	"webhook.ingress.annotations": {
		value: map[string]any{"cert-manager.io/cluster-issuer": "main"}, with: ingress, want: "cert-manager.io/cluster-issuer: main",
	},
	"webhook.ingress.tlsSecretName":        {value: "corral-tls", with: ingress, want: "secretName: corral-tls"},
	"metrics.jobs.labels":                  {value: []any{"repository", "workflow"}, want: "--job-metric-labels=repository,workflow"},
	"metrics.jobs.labelLimit":              {value: 20, with: "metrics.jobs.labels", want: "--job-metric-label-limit=20"},
	"metrics.serviceMonitor.enabled":       {value: true, want: "kind: ServiceMonitor"},
	"metrics.serviceMonitor.labels":        {value: map[string]any{"prometheus": "main"}, with: "metrics.serviceMonitor.enabled", want: "prometheus: main"},
	"metrics.serviceMonitor.interval":      {value: "30s", with: "metrics.serviceMonitor.enabled", want: "interval: 30s"},
	"metrics.serviceMonitor.scrapeTimeout": {value: "9s", with: "metrics.serviceMonitor.enabled", want: "scrapeTimeout: 9s"},
	"metrics.prometheusRule.enabled":       {value: true, want: "kind: PrometheusRule"},
	"metrics.prometheusRule.labels":        {value: map[string]any{"role": "alerts"}, with: "metrics.prometheusRule.enabled", want: "role: alerts"},
	"metrics.prometheusRule.alertLabels":   {value: map[string]any{"team": "ci"}, with: "metrics.prometheusRule.enabled", want: "team: ci"},
	"metrics.prometheusRule.disabled": {
		value: []any{"CorralOrphanedOnGitHub"}, with: "metrics.prometheusRule.enabled", gone: "alert: CorralOrphanedOnGitHub",
	},
	"metrics.dashboard.enabled":                  {value: true, want: "name: corral-dashboard"},
	"metrics.dashboard.labels.grafana_dashboard": {value: "2", with: "metrics.dashboard.enabled", want: `grafana_dashboard: "2"`},
	"metrics.dashboard.annotations":              {value: map[string]any{"grafana_folder": "CI"}, with: "metrics.dashboard.enabled", want: "grafana_folder: CI"},
	"networkPolicy.enabled":                      {value: true, want: "kind: NetworkPolicy"},
	"networkPolicy.metricsFrom":                  {value: []any{peer("monitoring")}, with: "networkPolicy.enabled", want: "kubernetes.io/metadata.name: monitoring"},
	"networkPolicy.webhookFrom":                  {value: []any{peer("ingress")}, with: "networkPolicy.enabled webhook.enabled", want: "kubernetes.io/metadata.name: ingress"},
	"networkPolicy.egress":                       {value: []any{map[string]any{"ports": []any{map[string]any{"port": 443}}}}, with: "networkPolicy.enabled", want: "- Egress"},
	"podDisruptionBudget.enabled":                {value: false, with: "replicas", gone: "kind: PodDisruptionBudget"},
	"podDisruptionBudget.maxUnavailable":         {value: "50%", with: "replicas", want: "maxUnavailable: 50%"},
	"decisionLog.mode":                           {value: "off", want: "--decision-log=off"},
	"decisionLog.sample":                         {value: 100, want: "--decision-log-sample=100"},
	"profiles.port":                              {value: 6060, want: "--profiles-port=6060"},
	"timeZone":                                   {value: "Europe/Berlin", want: "--time-zone=Europe/Berlin"},
	"probes.liveness.periodSeconds":              {value: 11, want: "periodSeconds: 11"},
	"probes.liveness.timeoutSeconds":             {value: 12, want: "timeoutSeconds: 12"},
	"probes.liveness.failureThreshold":           {value: 13, want: "failureThreshold: 13"},
	"probes.readiness.periodSeconds":             {value: 14, want: "periodSeconds: 14"},
	"probes.readiness.timeoutSeconds":            {value: 15, want: "timeoutSeconds: 15"},
	"probes.readiness.failureThreshold":          {value: 16, want: "failureThreshold: 16"},
	"terminationGracePeriodSeconds":              {value: 90, want: "terminationGracePeriodSeconds: 90"},
	"log.level":                                  {value: "debug", want: "--log-level=debug"},
	"log.encoding":                               {value: "text", want: "--log-encoding=text"},
	"concurrency.runners":                        {value: 7, want: "--concurrent-runners=7"},
	"concurrency.others":                         {value: 3, want: "--concurrent=3"},
	"intervalJitterPercentage":                   {value: 0, want: "--interval-jitter-percentage=0"},
	"env":                                        {value: []any{map[string]any{"name": "HTTPS_PROXY", "value": "http://proxy.example"}}, want: "value: http://proxy.example"},
	"resources.requests.cpu":                     {value: "250m", want: "cpu: 250m"},
	"resources.requests.memory":                  {value: "300Mi", want: "memory: 300Mi"},
	"resources.limits.memory":                    {value: "6Gi", want: "memory: 6Gi"},
	"podLabels":                                  {value: map[string]any{"example.test/team": "ci"}, want: "example.test/team: ci"},
	"podAnnotations":                             {value: map[string]any{"example.test/scrape": "yes"}, want: `example.test/scrape: "yes"`},
	"nodeSelector":                               {value: map[string]any{"kubernetes.io/os": "linux"}, want: "kubernetes.io/os: linux"},
	"tolerations":                                {value: []any{map[string]any{"operator": "Exists"}}, want: "operator: Exists"},
	"affinity":                                   {value: map[string]any{"podAntiAffinity": map[string]any{}}, want: "podAntiAffinity: {}"},
	"topologySpreadConstraints": {
		value: []any{map[string]any{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}},
		want:  "topologyKey: zone",
	},
	"priorityClassName": {value: "high", want: "priorityClassName: high"},
}

// ingress lists the values that an Ingress requires.
const ingress = "webhook.enabled webhook.ingress.enabled webhook.ingress.host"

// peer is a NetworkPolicy peer that selects all pods of a namespace.
func peer(namespace string) map[string]any {
	return map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}}}
}

// everything returns values that turn on every optional feature together.
func everything(t *testing.T) map[string]any {
	t.Helper()
	values := map[string]any{}
	for path, e := range effects {
		if e.value != false {
			set(values, path, e.value)
		}
	}
	return values
}

func set(values map[string]any, path string, value any) {
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		if values[key] == nil {
			values[key] = map[string]any{}
		}
		values = values[key].(map[string]any)
	}
	values[keys[len(keys)-1]] = value
}

func TestEveryValueHasAnEffect(t *testing.T) {
	if diff := cmp.Diff(leaves("", load(t).Values), slices.Sorted(maps.Keys(effects))); diff != "" {
		t.Errorf("values.yaml (-) and the table of this test (+) differ:\n%s", diff)
	}
	for path, e := range effects {
		t.Run(path, func(t *testing.T) {
			values := map[string]any{}
			if !strings.HasPrefix(path, "crds.") {
				set(values, "crds.install", false) // the CRDs' long descriptions contain many of the texts, and are slow to render
			}
			for _, other := range strings.Fields(e.with) {
				if other != path {
					set(values, other, effects[other].value)
				}
			}
			byDefault := ""
			// If the value itself is required, the chart cannot be rendered without it.
			if rendered, err := tryRender(t, release, namespace, values); err == nil {
				byDefault = rendered.Manifest()
			}
			set(values, path, e.value)
			got := render(t, values).Manifest()
			if !strings.Contains(got, e.want) || e.want != "" && strings.Contains(byDefault, e.want) {
				t.Errorf("%q is in the rendered chart: %t; by default: %t", e.want, strings.Contains(got, e.want), strings.Contains(byDefault, e.want))
			}
			if e.gone != "" && (strings.Contains(got, e.gone) || !strings.Contains(byDefault, e.gone)) {
				t.Errorf("%q is in the rendered chart: %t; by default: %t", e.gone, strings.Contains(got, e.gone), strings.Contains(byDefault, e.gone))
			}
		})
	}
}

// leaves returns the sorted paths of all values that are not tables. An empty table is a value too.
func leaves(prefix string, values map[string]any) []string {
	var out []string
	for key, value := range values {
		if table, ok := value.(map[string]any); ok && len(table) > 0 {
			out = append(out, leaves(prefix+key+".", table)...)
			continue
		}
		out = append(out, prefix+key)
	}
	slices.Sort(out)
	return out
}

func TestSchemaRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		path  string
		value any
		want  []string // parts of the error message; none if the value is valid
	}{
		"an unknown value":            {path: "replica", value: 2, want: []string{"replica", "not allowed"}},
		"an unknown value further in": {path: "image.repo", value: "x", want: []string{"/image", "repo", "not allowed"}},
		"a wrong type":                {path: "replicas", value: "two", want: []string{"/replicas", "want integer"}},
		"a wrong type further in":     {path: "crds.install", value: "yes", want: []string{"/crds/install", "want boolean"}},
		"a level nobody knows":        {path: "log.level", value: "loud", want: []string{"/log/level", "debug"}},
		"a cut digest":                {path: "image.digest", value: "sha256:e3b0", want: []string{"/image/digest"}},
		"a folder that leads out": {
			path:  "credentials",
			value: []any{map[string]any{"name": "../app", "namespace": "team-a", "volume": map[string]any{"emptyDir": map[string]any{}}}},
			want:  []string{"/credentials/0/name"},
		},
		"a server with credentials":     {path: "eventsAddress", value: "http://user:password@host/", want: []string{"/eventsAddress"}},
		"an alert of somebody else":     {path: "metrics.prometheusRule.disabled", value: []any{"Watchdog"}, want: []string{"/metrics/prometheusRule/disabled/0"}},
		"a peer that is everybody":      {path: "networkPolicy.metricsFrom", value: []any{map[string]any{}}, want: []string{"/networkPolicy/metricsFrom/0"}},
		"a budget that lets no pod go":  {path: "podDisruptionBudget.maxUnavailable", value: 0, want: []string{"/podDisruptionBudget/maxUnavailable"}},
		"an account nobody may act as":  {path: "defaultServiceAccount", value: "reconciler", want: []string{"impersonation.enabled is false"}},
		"an Ingress that leads nowhere": {path: "webhook.ingress", value: map[string]any{"enabled": true, "host": "h"}, want: []string{"webhook.enabled is false"}},
		"an Ingress without a host":     {path: "webhook", value: map[string]any{"enabled": true, "ingress": map[string]any{"enabled": true}}, want: []string{"webhook.ingress.host"}},
		"the metrics' port":             {path: "webhook.port", value: 8080, want: []string{"/webhook/port"}},
		"the health's port":             {path: "webhook.port", value: 9440, want: []string{"/webhook/port"}},
		"an account of everybody":       {path: "serviceAccount.create", value: false, want: []string{"serviceAccount.name"}},
		"a network of 33 bits":          {path: "webhook.trustedProxies", value: []any{"10.0.0.0/33"}, want: []string{"/webhook/trustedProxies/0"}},
		"a network of 129 bits":         {path: "webhook.trustedProxies", value: []any{"fd00::/129"}, want: []string{"/webhook/trustedProxies/0"}},
		"a network of no address":       {path: "webhook.trustedProxies", value: []any{"10.0.256.0/24"}, want: []string{"/webhook/trustedProxies/0"}},
		"networks":                      {path: "webhook.trustedProxies", value: []any{"0.0.0.0/0", "203.0.113.7/32", "::ffff:10.0.0.0/104", "fd00::/8", "::1/128"}},
		"a folder for everybody": {
			path:  "credentials",
			value: []any{map[string]any{"name": "app", "volume": map[string]any{"emptyDir": map[string]any{}}}},
			want:  []string{"/credentials/0", "namespace"},
		},
		"nothing in what a parent chart hands down": {path: "global", value: map[string]any{"anything": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			values := map[string]any{}
			set(values, tc.path, tc.value)
			_, err := tryRender(t, release, namespace, values)
			if err == nil && len(tc.want) > 0 {
				t.Fatal("taken")
			}
			if err != nil && len(tc.want) == 0 {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}

func TestSchemaIsClosedAndKnowsNoOtherValues(t *testing.T) {
	c := load(t)
	var schema map[string]any
	if err := json.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	known := c.Values
	known["global"] = map[string]any{}
	compareWithSchema(t, "values", schema, schema, known)
}

func compareWithSchema(t *testing.T, path string, root, schema, values map[string]any) {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		schema = root["definitions"].(map[string]any)[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s accepts unknown values", path)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(properties))); diff != "" {
		t.Errorf("%s in values.yaml (-) and in the schema (+) differ:\n%s", path, diff)
	}
	for key, property := range properties {
		table, _ := values[key].(map[string]any)
		compareWithSchema(t, path+"."+key, root, property.(map[string]any), table)
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/localcluster"
)

// kubectl runs kubectl with cluster-admin rights.
func kubectl(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	path, err := localcluster.Kubectl(t.Context(), io.Discard)
	must(t, err)
	c := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", shared.Cluster.Kubeconfig()}, args...)...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestTheAPIServerRefusesWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	must(t, shared.Cluster.CreateNamespace(t.Context(), "refusals"))
	const pool = "apiVersion: corral.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: p, namespace: refusals}\nspec: "
	const connection = "apiVersion: corral.dev/v1alpha1\nkind: GitHubConnection\nmetadata: {name: c, namespace: refusals}\nspec: "
	const policy = "apiVersion: corral.dev/v1alpha1\nkind: RunnerPolicy\nmetadata: {name: p, namespace: refusals}\nspec: "
	const source = "apiVersion: corral.dev/v1alpha1\nkind: PoolSource\nmetadata: {name: s, namespace: refusals}\nspec: "
	longName := strings.Repeat("a", 318)
	cases := map[string]struct{ manifest, want string }{
		"min above max":           {pool + "{connectionRef: {name: c}, scale: {min: 3, max: 2}, template: {}}", "min must not be above max"},
		"idle above max":          {pool + "{connectionRef: {name: c}, scale: {idle: 3, max: 2}, template: {}}", "idle must not be above max"},
		"negative":                {pool + "{connectionRef: {name: c}, scale: {max: -1}, template: {}}", "spec.scale.max"},
		"unknown field":           {pool + "{connectionRef: {name: c}, runnerLables: [x], template: {}}", `unknown field "spec.runnerLables"`},
		"no connection":           {pool + "{template: {}}", "spec.connectionRef: Required"},
		"no template":             {pool + "{connectionRef: {name: c}}", "template must be set"},
		"no container":            {pool + "{connectionRef: {name: c}, template: {spec: {}}}", "spec.template.spec.containers: Invalid value: a container must be named runner"},
		"no container's name":     {pool + "{connectionRef: {name: c}, template: {spec: {containers: [{image: x}]}}}", "spec.template.spec.containers[0].name: Required"},
		"no runner":               {pool + "{connectionRef: {name: c}, template: {spec: {containers: [{name: job}], initContainers: [{name: runner}]}}}", "a container must be named runner"},
		"no REST runner":          {pool + "{connectionRef: {name: c}, registration: REST, template: {spec: {containers: [{name: job}]}}}", "a container must be named runner"},
		"two runners":             {pool + "{connectionRef: {name: c}, template: {spec: {containers: [{name: runner}, {name: runner}]}}}", "spec.template.spec.containers[1]: Duplicate value"},
		"an unknown stop":         {pool + "{connectionRef: {name: c}, template: {}, stopPolicy: Freeze}", "spec.stopPolicy"},
		"REST runners on hold":    {pool + "{connectionRef: {name: c}, template: {}, registration: REST, stopPolicy: Hold}", "stopPolicy Hold needs a scale set"},
		"an unknown connection":   {pool + "{connectionRef: {kind: GitLabConnection, name: c}, template: {}}", "spec.connectionRef.kind"},
		"an unknown verification": {connection + "{url: 'https://github.com/acme', secretRef: {name: a}, verification: Stopped}", "spec.verification"},
		"an unknown scope of a proxy": {
			connection + "{url: 'https://github.com/acme', secretRef: {name: a}, proxy: {https: {url: 'http://p'}, scope: Runners}}", "spec.proxy.scope",
		},
		"a namespace of another form": {connection + "{url: 'https://github.com/acme', secretRef: {name: a}, allowedNamespaces: ['ci-?']}", "spec.allowedNamespaces[0]"},
		"an unknown scope of a pause": {policy + "{library: {pause: {reason: x, scope: Jobs}}}", "spec.library.pause.scope"},
		"odd scale set name":          {pool + "{connectionRef: {name: c}, scaleSetName: 'a b', template: {}}", "spec.scaleSetName"},
		"a reserved label":            {pool + "{connectionRef: {name: c}, runnerLabels: [a, Corral-Owner-x], template: {}}", "runnerLabels must not begin with corral-owner-"},
		"a reserved scale set name":   {pool + "{connectionRef: {name: c}, scaleSetName: corral-owner-x, template: {}}", "scaleSetName must not begin with corral-owner-"},
		"a long pattern":              {pool + "{connectionRef: {name: c}, template: {}, demand: {boosts: [{name: s, event: check_run, names: [" + strings.Repeat("x", 256) + "]}]}}", "spec.demand.boosts[0].names[0]: Too long"},
		"no credentials":              {connection + "{url: 'https://github.com/acme'}", "exactly one of secretRef and mount must be set"},
		"both credentials":            {connection + "{url: 'https://github.com/acme', secretRef: {name: a}, mount: {name: b}}", "exactly one of secretRef and mount must be set"},
		"mount outside":               {connection + "{url: 'https://github.com/acme', mount: {name: ../b}}", "spec.mount.name"},
		"URL without an owner":        {connection + "{url: 'https://github.com', secretRef: {name: a}}", "spec.url"},
		"two references":              {source + "{interval: 1m, git: {url: 'https://x/y', ref: {branch: a, tag: b}}}", "exactly one of branch, tag, semver and commit must be set"},
		"a scheme that is not Git's":  {source + "{interval: 1m, git: {url: 'ftp://x/y'}}", "spec.git.url"},
		"the short form of ssh":       {source + "{interval: 1m, git: {url: 'git@github.com:acme/pools'}}", "write ssh://git@github.com/acme/pools"},
		"git and sourceRef":           {source + "{interval: 1m, git: {url: 'https://x/y'}, sourceRef: {kind: GitRepository, name: a}}", "exactly one of git and sourceRef must be set"},
		"neither of them":             {source + "{interval: 1m}", "exactly one of git and sourceRef must be set"},
		"a mode of verification":      {source + "{interval: 1m, git: {url: 'https://x/y', verify: {mode: Branch, secretRef: {name: a}}}}", "spec.git.verify.mode"},
		"an interval of zero":         {source + "{interval: 0s, git: {url: 'https://x/y'}}", "must be a duration of at least 1s"},
		"two times of a schedule": {
			pool + "{connectionRef: {name: c}, template: {}, scale: {schedules: [{name: s, scale: {max: 1}, weekly: {from: '08:00', to: '09:00'}, cron: {schedule: '0 7 * * *', duration: 1h}}]}}",
			"exactly one of weekly, cron and once must be set",
		},
		"a schedule of nothing": {
			pool + "{connectionRef: {name: c}, template: {}, scale: {schedules: [{name: s, scale: {}, weekly: {from: '08:00', to: '09:00'}}]}}", "spec.scale.schedules[0].scale",
		},
		"scheduled min above max": {
			pool + "{connectionRef: {name: c}, template: {}, scale: {schedules: [{name: s, scale: {min: 2, max: 1}, weekly: {from: '08:00', to: '09:00'}}]}}", "min must not be above max",
		},
		"a window that ends before it begins": {
			pool + "{connectionRef: {name: c}, template: {}, scale: {schedules: [{name: s, scale: {max: 1}, once: {from: '2026-12-02T00:00:00Z', to: '2026-12-01T00:00:00Z'}}]}}", "from must be before to",
		},
		"the machine's own zone": {
			pool + "{connectionRef: {name: c}, template: {}, scale: {schedules: [{name: s, timeZone: Local, scale: {max: 1}, weekly: {from: '08:00', to: '09:00'}}]}}", "timeZone must be a name of the IANA database",
		},
		"two sources in a metric": {
			pool + "{connectionRef: {name: c}, template: {}, demand: {metrics: [{name: m, busy: {}, jobs: {repositories: [a]}}]}}", "exactly one of jobs, busy, prometheus and external must be set",
		},
		"a metric without a source": {pool + "{connectionRef: {name: c}, template: {}, demand: {metrics: [{name: m}]}}", "exactly one of jobs, busy, prometheus and external must be set"},
		"a metric each second": {
			pool + "{connectionRef: {name: c}, template: {}, demand: {metrics: [{name: m, interval: 1s, busy: {}}]}}", "must be a duration of 10s to 1h",
		},
		"too large a change": {
			pool + "{connectionRef: {name: c}, template: {}, demand: {metrics: [{name: m, busy: {scaleUpBy: 5000000000}}]}}", "must be 0 to 999999, or a percentage",
		},
		"an unknown event": {pool + "{connectionRef: {name: c}, template: {}, demand: {boosts: [{name: s, event: issues}]}}", "spec.demand.boosts[0].event"},
		"a scale set's name without one": {
			pool + "{connectionRef: {name: c}, template: {}, registration: REST, scaleSetName: x}", "scaleSetName may not be set with registration REST",
		},
		"runners that stay in a scale set": {pool + "{connectionRef: {name: c}, template: {}, lifetime: Persistent}", "lifetime Persistent needs registration REST"},
		"how long one job's runner stays":  {pool + "{connectionRef: {name: c}, template: {}, registration: REST, persistent: {maxJobs: 1}}", "persistent may only be set with lifetime Persistent"},
		"stays for nothing":                {pool + "{connectionRef: {name: c}, template: {}, registration: REST, lifetime: Persistent, persistent: {}}", "spec.persistent"},
		"a comma in a label": {
			pool + "{connectionRef: {name: c}, template: {}, registration: REST, lifetime: Persistent, runnerLabels: ['a,b']}", "runnerLabels of persistent runners must not contain commas",
		},
		"an unknown mode":          {pool + "{connectionRef: {name: c}, template: {}, mode: Watch}", "spec.mode"},
		"a webhook without a key":  {connection + "{url: 'https://github.com/acme', secretRef: {name: a}, webhook: {hookID: 1}}", "spec.webhook.secretRef: Required"},
		"no duration":              {pool + "{connectionRef: {name: c}, template: {}, scale: {idleTimeout: banana}}", "spec.scale.idleTimeout"},
		"too long a duration":      {source + "{interval: 1m, timeout: 99999999999h, git: {url: 'https://x/y'}}", "spec.timeout"},
		"too large a number":       {pool + "{connectionRef: {name: c}, template: {}, update: {maxSurge: 5000000000}}", "must be 0 to 999999, or a percentage"},
		"too large a percentage":   {pool + "{connectionRef: {name: c}, template: {}, update: {canary: {runners: 99999999999%}}}", "spec.update.canary.runners"},
		"a broken exponent":        {pool + "{connectionRef: {name: c}, template: {}, scale: {behavior: {scaleUp: {tolerance: '1e1.5'}}}}", "spec.scale.behavior.scaleUp.tolerance"},
		"an endless exponent":      {policy + "{library: {resources: {maxPerPod: {cpu: '1e-2147483647'}}}}", "spec.library.resources.maxPerPod.cpu"},
		"a long name of a maximum": {policy + "{library: {resources: {maxPerPod: {" + longName + ": 1}}}}", "spec.library.resources.maxPerPod: Invalid"},
		"a long name of a request": {policy + "{library: {resources: {requireRequests: [" + longName + "]}}}", "spec.library.resources.requireRequests[0]: Too long"},
		"a long name of a limit":   {policy + "{library: {resources: {requireLimits: [" + longName + "]}}}", "spec.library.resources.requireLimits[0]: Too long"},
		"a long name of a trust":   {policy + "{library: {podSecurity: {level: baseline, byTrust: {" + longName + ": baseline}}}}", "spec.library.podSecurity.byTrust: Invalid"},
		"a long name of a group": {
			policy + "{library: {ceilings: [{name: c, by: Namespace, max: 1, overrides: {" + longName + ": 1}}]}}", "spec.library.ceilings[0].overrides: Invalid",
		},
		"a time in small letters":       {policy + "{library: {pause: {reason: x, until: '2026-12-20t00:00:00z'}}}", "spec.library.pause.until"},
		"a list instead of a time":      {policy + "{library: {pause: {reason: x, until: []}}}", "spec.library.pause.until"},
		"a pool's name with a dot":      {strings.Replace(pool, "name: ", "name: a.", 1) + "{connectionRef: {name: c}, template: {}}", "must have at most 48 characters and no dots"},
		"days in a duration":            {pool + "{connectionRef: {name: c}, template: {}, scale: {idleTimeout: 7d}}", "must be a duration such as 90s, 10m or 168h"},
		"no time to start":              {pool + "{connectionRef: {name: c}, template: {}, deadlines: {startup: 0s}}", "must be a duration of at least 5s"},
		"surge of another strategy":     {pool + "{connectionRef: {name: c}, template: {}, update: {strategy: Recreate, maxSurge: 50%}}", "may only be set with strategy RollingUpdate"},
		"no canaries":                   {pool + "{connectionRef: {name: c}, template: {}, update: {canary: {runners: 0}}}", "runners must be at least 1"},
		"labels that differ by case":    {pool + "{connectionRef: {name: c}, template: {}, runnerLabels: [linux, Linux]}", "runnerLabels must differ by more than case"},
		"a label with spaces around it": {pool + "{connectionRef: {name: c}, template: {}, runnerLabels: [' x ']}", "runnerLabels must not begin or end with white space"},
		"thresholds the wrong way round": {
			pool + "{connectionRef: {name: c}, template: {}, demand: {metrics: [{name: m, busy: {scaleUpThresholdPercent: 20}}]}}", "must be below scaleUpThresholdPercent",
		},
		"a metric named like a source": {pool + "{connectionRef: {name: c}, template: {}, demand: {metrics: [{name: webhook, busy: {}}]}}", "name must be another than webhook and scaleSet"},
		"no runners for a job":         {pool + "{connectionRef: {name: c}, template: {}, demand: {metrics: [{name: m, jobs: {repositories: [a], runnersPerJob: 0}}]}}", "must be above 0"},
		"a negative tolerance":         {pool + "{connectionRef: {name: c}, template: {}, scale: {behavior: {scaleUp: {tolerance: '-0.1'}}}}", "must not be below 0"},
		"rest of a scale set":          {pool + "{connectionRef: {name: c}, template: {}, rest: {placeholder: Always}}", "rest may only be set with registration REST"},
		"an unknown placeholder":       {pool + "{connectionRef: {name: c}, template: {}, registration: REST, rest: {placeholder: Sometimes}}", "spec.rest.placeholder"},
		"a status of a push":           {pool + "{connectionRef: {name: c}, template: {}, demand: {boosts: [{name: b, event: push, status: queued}]}}", "status and names may only be set with event check_run"},
		"names of a pull request":      {pool + "{connectionRef: {name: c}, template: {}, demand: {boosts: [{name: b, event: pull_request, names: [a]}]}}", "status and names may only be set with event check_run"},
		"actions of a push":            {pool + "{connectionRef: {name: c}, template: {}, demand: {boosts: [{name: b, event: push, actions: [created]}]}}", "actions may not be set with event push"},
		"a pod kept for days":          {pool + "{connectionRef: {name: c}, template: {}, failedPodTTL: 25h}", "must be a duration of at most 24h"},
		"jobs that are dropped":        {policy + "{library: {ceilings: [{name: c, by: All, max: 1, assignedJobs: Drop}]}}", "spec.library.ceilings[0].assignedJobs"},
		"jobs that wait without a max": {policy + "{library: {hours: {open: [{from: '08:00', to: '09:00'}], closed: {idle: 0, assignedJobs: Wait}}}}", "assignedJobs: Wait needs max"},
		"limits of nothing":            {policy + "{library: {hours: {open: [{from: '08:00', to: '09:00'}], closed: {}}}}", "at least one of max, min and idle must be set"},
		"a ceiling without its label":  {policy + "{library: {ceilings: [{name: c, by: Label, max: 1}]}}", "labelKey must be set when by is Label"},
		"parameters in data":           {policy + "{data: {parameters: {a: 1}}}", "data must not have the keys library and parameters"},
		"library in data":              {policy + "{data: {library: {a: 1}}, parameters: {b: 1}}", "data must not have the keys library and parameters"},
		"modules of nothing":           {policy + "{modulesFrom: [{}]}", "spec.modulesFrom[0].configMapRef: Required"},
		"modules twice":                {policy + "{modulesFrom: [{configMapRef: {name: a}}, {configMapRef: {name: a}}]}", "modulesFrom must not name a ConfigMap twice"},
		"unknown deletion word":        {source + "{interval: 1m, deletionPolicy: Keep, git: {url: 'https://x/y'}}", "spec.deletionPolicy"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			manifest := strings.Replace(tc.manifest, "template: {}", "template: {spec: {containers: [{name: runner}]}}", 1)
			must(t, yaml.Unmarshal([]byte(manifest), object))
			// kubectl create uses the same options.
			err := shared.Client.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it says %v, not %q", err, tc.want)
			}
		})
	}
}

// An image bot applies the image of one container. Everything else of the template stays as its author applied it.
func TestAnImageBotAppliesOneContainersImage(t *testing.T) {
	t.Parallel()
	must(t, shared.Cluster.CreateNamespace(t.Context(), "image-bot"))
	apply := func(owner, spec string) *unstructured.Unstructured {
		t.Helper()
		object := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte("apiVersion: corral.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux, namespace: image-bot}\nspec: "+spec), object))
		must(t, shared.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(owner), client.ForceOwnership))
		return object
	}
	const declared = `{connectionRef: {name: acme}, template: {metadata: {labels: {team: a}}, spec: {
  containers: [{name: runner, image: "runner:1", command: [/run.sh], resources: {limits: {cpu: "2"}}}, {name: docker, image: "docker:1"}],
  initContainers: [{name: copy, image: "copy:1"}], volumes: [{name: work, emptyDir: {}}], nodeSelector: {pool: ci}}}}`
	before := apply("author", declared)
	after := apply("image-bot", `{template: {spec: {containers: [{name: runner, image: "runner:2"}]}}}`)
	template := func(object *unstructured.Unstructured, image string) any {
		value, _, _ := unstructured.NestedMap(object.Object, "spec", "template")
		containers, _, _ := unstructured.NestedSlice(value, "spec", "containers")
		containers[0].(map[string]any)["image"] = image
		must(t, unstructured.SetNestedSlice(value, containers, "spec", "containers"))
		return value
	}
	if diff := cmp.Diff(template(before, "runner:2"), after.Object["spec"].(map[string]any)["template"]); diff != "" {
		t.Errorf("the bot changed more than the image (-want +got):\n%s", diff)
	}
	// An author who leaves the image to the bot keeps the bot's.
	left := apply("author", strings.Replace(declared, `image: "runner:1", `, "", 1))
	if diff := cmp.Diff(template(before, "runner:2"), left.Object["spec"].(map[string]any)["template"]); diff != "" {
		t.Errorf("the author's next apply changed the template (-want +got):\n%s", diff)
	}
}

func TestTheAPIServerTakesTheExamples(t *testing.T) {
	t.Parallel()
	must(t, shared.Cluster.CreateNamespace(t.Context(), "runners"))
	objects, err := filepath.Glob(filepath.Join("..", "..", "examples", "*", "objects.yaml"))
	if err != nil || len(objects) < 10 {
		t.Fatalf("%d examples, %v", len(objects), err)
	}
	manifests, err := filepath.Glob(filepath.Join("..", "..", "examples", "*", "manifests.yaml"))
	if err != nil || len(manifests) < 2 {
		t.Fatalf("%d manifests beside examples, %v", len(manifests), err)
	}
	files := strings.Join(append(objects, manifests...), ",")
	if out, err := kubectl(t, "", "create", "--dry-run=server", "-f", files); err != nil {
		t.Error(out)
	}
}

func TestAPoolsRegistrationNeverChanges(t *testing.T) {
	t.Parallel()
	must(t, shared.Cluster.CreateNamespace(t.Context(), "registrations"))
	p := newPool("registrations", "linux", "acme")
	must(t, shared.Client.Create(t.Context(), p))
	for _, change := range []string{`{"spec":{"registration":"REST"}}`, `{"spec":{"mode":"Observe","registration":"REST"}}`} {
		err := shared.Client.Patch(t.Context(), p.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(change)))
		if err == nil || !strings.Contains(err.Error(), "registration is immutable") {
			t.Errorf("%s: the API server said %v", change, err)
		}
	}
	must(t, shared.Client.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"registration":"ScaleSet"}}`))))
	rest := newPool("registrations", "rest", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Registration = v1alpha1.RegisterREST })
	must(t, shared.Client.Create(t.Context(), rest))
	err := shared.Client.Patch(t.Context(), rest.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"lifetime":"Persistent"}}`)))
	if err == nil || !strings.Contains(err.Error(), "lifetime is immutable") {
		t.Errorf("changing lifetime: the API server answered %v", err)
	}
	must(t, shared.Client.Patch(t.Context(), rest, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"lifetime":"Job"}}`))))
	must(t, shared.Client.Delete(t.Context(), p))
}

func TestARunnersSpecNeverChanges(t *testing.T) {
	t.Parallel()
	must(t, shared.Cluster.CreateNamespace(t.Context(), "immutable"))
	ref := v1alpha1.LocalObjectReference{Name: "x"}
	r := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "immutable", Name: "r"},
		Spec:       v1alpha1.RunnerSpec{PoolRef: ref, ConnectionRef: v1alpha1.ConnectionReference{Name: "x"}, ScaleSetID: 1, Revision: "x"},
	}
	must(t, shared.Client.Create(t.Context(), r))
	changed := r.DeepCopy()
	changed.Spec.ScaleSetID = 2
	if err := shared.Client.Patch(t.Context(), changed, client.MergeFrom(r)); err == nil || !strings.Contains(err.Error(), "is immutable") {
		t.Errorf("the API server said %v", err)
	}
	must(t, shared.Client.Delete(t.Context(), r))
}

func TestAConnectionsURLNeverChanges(t *testing.T) {
	t.Parallel()
	must(t, shared.Cluster.CreateNamespace(t.Context(), "urls"))
	c := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "urls", Name: "c"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: "https://github.com/acme", SecretRef: &v1alpha1.LocalObjectReference{Name: "x"}},
	}
	must(t, shared.Client.Create(t.Context(), c))
	changed := c.DeepCopy()
	changed.Spec.URL = "https://github.com/other"
	if err := shared.Client.Patch(t.Context(), changed, client.MergeFrom(c)); err == nil || !strings.Contains(err.Error(), "url is immutable") {
		t.Errorf("the API server said %v", err)
	}
	must(t, shared.Client.Delete(t.Context(), c))
}

// age matches the columns that depend on the current time.
var age = regexp.MustCompile(`\b\d+[smhd]\S*|<invalid>|<unknown>`)

func TestKubectlGetReadsWell(t *testing.T) {
	w := newStory(t, "columns")
	must(t, w.Connect(t.Context(), "columns", "acme", "columns-org"))
	objects := []client.Object{
		newPool("columns", "linux", "acme"),
		&v1alpha1.Runner{
			ObjectMeta: metav1.ObjectMeta{Namespace: "columns", Name: "linux-x7k2p9qd"},
			Spec: v1alpha1.RunnerSpec{
				PoolRef: v1alpha1.LocalObjectReference{Name: "linux"}, ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}, ScaleSetID: 1, Revision: "linux-1",
			},
		},
	}
	for _, obj := range objects {
		must(t, w.Client.Create(t.Context(), obj))
	}
	const status = `{"status":{"jobs":12,"runners":{"total":14,"pending":1,"idle":2,"busy":11,"finished":0,"failed":0,"outdated":0},` +
		`"decision":{"time":"2000-01-01T00:00:00Z","desired":14,"announced":20,"reason":"12 jobs + 2 idle","limits":{"min":0,"max":10,"idle":2}},` +
		`"conditions":[{"type":"Ready","status":"True","reason":"Succeeded","message":"listening","lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`
	must(t, w.Client.Status().Patch(t.Context(), objects[0], client.RawPatch("application/merge-patch+json", []byte(status))))
	const busy = `{"status":{"state":"Busy","reason":"running a job","job":{"id":"j","repository":"acme/app","name":"build"}}}`
	must(t, w.Client.Status().Patch(t.Context(), objects[1], client.RawPatch("application/merge-patch+json", []byte(busy))))
	out, err := kubectl(t, "", "get", "runnerpools,runners", "-n", "columns")
	must(t, err)
	const want = `NAME                          READY   JOBS   DESIRED   RUNNERS   IDLE   BUSY   MAX   WHY                AGE
runnerpool.corral.dev/linux   True    12     14        14        2      11     10    12 jobs + 2 idle   AGE

NAME                               POOL    STATE   REPOSITORY   JOB     REASON          AGE
runner.corral.dev/linux-x7k2p9qd   linux   Busy    acme/app     build   running a job   AGE
`
	if diff := cmp.Diff(want, age.ReplaceAllString(out, "AGE")); diff != "" {
		t.Errorf("kubectl get (-want +got):\n%s", diff)
	}
	for _, args := range []string{"get rpool --field-selector spec.connectionRef.name=acme", "get crunner --field-selector spec.poolRef.name=linux,status.state=Busy"} {
		if out, err := kubectl(t, "", append(strings.Fields(args), "-n", "columns", "-o", "name")...); err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("kubectl %s: %v: %s", args, err, out)
		}
	}
	if out, err := kubectl(t, "", "scale", "rpool", "linux", "-n", "columns", "--replicas=7"); err != nil {
		t.Errorf("kubectl scale: %v: %s", err, out)
	}
	pool := &v1alpha1.RunnerPool{}
	must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(objects[0]), pool))
	if pool.Spec.Scale.GetMin() != 7 {
		t.Errorf("kubectl scale set the min to %d", pool.Spec.Scale.GetMin())
	}
	for _, obj := range objects {
		must(t, w.Client.Delete(t.Context(), obj))
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// tenant is a namespace whose team may push to one repository.
type tenant struct{ *gitops }

func (w *story) newTenant(t *testing.T, namespace string, change ...func(*v1alpha1.PoolSource)) *tenant {
	t.Helper()
	must(t, w.Cluster.CreateNamespace(t.Context(), namespace))
	ends(t, namespace)
	return &tenant{w.newRepositoryOf(t, namespace, "pools", change...)}
}

// newRepositoryOf creates a source with its own repository.
func (w *story) newRepositoryOf(t *testing.T, namespace, name string, change ...func(*v1alpha1.PoolSource)) *gitops {
	t.Helper()
	g := &gitops{w: w, Repository: harness.NewRepository(t), namespace: namespace, key: key(namespace, name)}
	g.Write("pools.cue", w.pools("", ""))
	g.Push("No pools yet")
	s := &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.PoolSourceSpec{Git: &v1alpha1.GitSource{URL: g.URL()}, Interval: metav1.Duration{Duration: time.Hour}},
	}
	for _, c := range change {
		c(s)
	}
	must(t, w.Client.Create(t.Context(), s))
	return g
}

// pools returns CUE that declares the pool base with additional fields, and further definitions. base ensures that
// there is always a pool.
func (w *story) pools(base, more string) string {
	return fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

pools: schema.#Pools
pools: base: spec: {
	connectionRef: {name: "main", namespace: %q}
	scale: max: 5
	template: spec: containers: [{name: "runner", image: "runner:1"}]
}
%s
%s
`, w.estate, base, more)
}

// anotherPool returns CUE that declares a pool on a connection.
func anotherPool(name, connection, more string) string {
	return fmt.Sprintf(`pools: %q: {
	spec: {
		connectionRef: {%s}
		template: spec: containers: [{name: "runner", image: "runner:1"}]
	}
	%s
}
`, name, connection, more)
}

// push pushes definitions, and triggers a reconciliation.
func (p *tenant) push(base, more string) string {
	p.T.Helper()
	p.Write("pools.cue", p.w.pools(base, more))
	return p.pushAndRequest("Try something")
}

// refused waits until a commit has not been applied, for causes with these facts.
func (p *tenant) refused(commit string, facts ...string) {
	p.T.Helper()
	waitSource(p.T, p.key, func(s *v1alpha1.PoolSource) error {
		ready := conditions.Get(s, meta.ReadyCondition)
		if ready == nil || ready.Status != metav1.ConditionFalse || !strings.HasSuffix(s.Status.LastAttemptedRevision, commit) {
			return fmt.Errorf("commit %s: attempted %s, Ready %+v", commit, s.Status.LastAttemptedRevision, ready)
		}
		return hasFacts(s, facts)
	})
}

// hasFacts returns an error unless the condition Ready of an object has these facts: a reason, a code, a parameter or the text of another program.
func hasFacts(obj kube.Object, facts []string) error {
	got := conditions.GetReason(obj, meta.ReadyCondition) + "\n" + recorder.Facts(obj, meta.ReadyCondition)
	for _, fact := range facts {
		if !strings.Contains(got, fact) {
			return fmt.Errorf("%s: %q isn't in %s", obj.GetName(), fact, got)
		}
	}
	return nil
}

func waitSource(t *testing.T, key client.ObjectKey, check func(*v1alpha1.PoolSource) error) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		s := &v1alpha1.PoolSource{}
		if err := shared.Client.Get(ctx, key, s); err != nil {
			return err
		}
		return check(s)
	})
}

// unready waits until an object of Corral is not ready for a reason with these facts, and returns the message.
func unready(t *testing.T, key client.ObjectKey, obj kube.Object, reason string, facts ...string) string {
	t.Helper()
	var message string
	eventually(t, func(ctx context.Context) error {
		if err := shared.Client.Get(ctx, key, obj); err != nil {
			return err
		}
		ready := conditions.Get(obj, meta.ReadyCondition)
		if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != reason {
			return fmt.Errorf("%s: Ready is %+v, want %s", key, ready, reason)
		}
		message = ready.Message
		return hasFacts(obj, facts)
	})
	return message
}

// absent fails the test if an object exists.
func absent(t *testing.T, obj client.Object, key client.ObjectKey) {
	t.Helper()
	if err := shared.Client.Get(t.Context(), key, obj); !apierrors.IsNotFound(err) {
		t.Errorf("%T %s: %v; want none", obj, key, err)
	}
}

// allow sets the namespaces that the platform's connection allows.
func (w *story) allow(t *testing.T, namespaces ...string) {
	t.Helper()
	list := `"` + strings.Join(namespaces, `","`) + `"`
	if len(namespaces) == 0 {
		list = ""
	}
	must(t, w.Client.Patch(t.Context(), &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: w.estate, Name: "main"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"allowedNamespaces":[`+list+`]}}`))))
}

// toApply lists the verbs that a source's account needs.
const toApply = "create, patch, delete"

// grant lets a service account use verbs on a resource of Corral in its namespace.
func grant(t *testing.T, namespace, account, verbs, resource string) {
	t.Helper()
	must(t, shared.Cluster.Apply(t.Context(), fmt.Appendf(nil, `
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: %[1]s, name: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: %[1]s, name: %[2]s}
rules:
- apiGroups: [corral.dev]
  resources: [%[4]s]
  verbs: [%[3]s]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: %[1]s, name: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[2]s}
subjects:
- {kind: ServiceAccount, namespace: %[1]s, name: %[2]s}
`, namespace, account, verbs, resource)))
}

// platform contains the platform team's objects: a connection in its own namespace and a mounted credential. It
// also has an attacker's server that counts requests.
type platform struct {
	*story
	mounts string
	evil   *httptest.Server
	shown  atomic.Int32
}

func (w *story) newPlatform(t *testing.T, estate string) *platform {
	t.Helper()
	w.estate = estate
	must(t, w.Connect(t.Context(), estate, "main", estate+"-org"))
	p := &platform{story: w, mounts: t.TempDir()}
	folder := filepath.Join(p.mounts, estate, "app")
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, v1alpha1.TokenKey), []byte(world.Token), 0o600))
	p.evil = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			p.shown.Add(1)
		}
	}))
	t.Cleanup(p.evil.Close)
	return p
}

// Each subtest states something that a tenant with push access to a repository cannot do.
func TestATenantWithPushRights(t *testing.T) {
	w := newStory(t, "tenants", "tenants-a", "tenants-key", "tenants-server", "tenants-none", "tenants-hang")
	p := w.newPlatform(t, "tenants")
	w.controller(t, "--credentials-dir="+p.mounts)
	w.allow(t, "tenants-a")
	a := w.newTenant(t, "tenants-a")
	a.applied(a.push("", ""))
	for _, try := range []struct {
		name string
		do   func(*testing.T, *platform, *tenant)
	}{
		{"can't touch another namespace", pushAnotherNamespace},
		{"can't touch another source's object", pushAnothersObject},
		{"can't widen a cluster policy", pushWiderPolicy},
		{"can't have one template allowed and another made", pushTwinTemplate},
		{"can't read a connection's key by a pod", pushPodWithKey},
		{"can't have a connection's key shown to a server of its own", pushConnectionElsewhere},
		{"can't use a connection that doesn't allow it", pushForeignConnection},
		{"can't starve others by servers that hang", pushWhileOthersHang},
	} {
		t.Run(try.name, func(t *testing.T) {
			a.T = t
			try.do(t, p, a)
		})
	}
}

func pushAnotherNamespace(t *testing.T, p *platform, a *tenant) {
	commit := a.push(anotherPool("intruder", `name: "main"`, fmt.Sprintf("metadata: namespace: %q", p.estate)), "")
	a.refused(commit, "intruder", p.estate)
	absent(t, &v1alpha1.RunnerPool{}, key(p.estate, "intruder"))
}

func pushAnothersObject(t *testing.T, p *platform, a *tenant) {
	other := p.newRepositoryOf(t, a.namespace, "others")
	other.Write("pools.cue", strings.ReplaceAll(p.pools("", ""), "base", "shared"))
	other.applied(other.pushAndRequest("One pool"))
	commit := a.push(anotherPool("shared", `name: "mine"`, ""), "")
	a.refused(commit, "ObjectHeld", `PoolSource "others"`)
	held := &v1alpha1.RunnerPool{}
	must(t, p.Client.Get(t.Context(), key(a.namespace, "shared"), held))
	if held.Spec.ConnectionRef.Name != "main" || held.Labels[v1alpha1.SourceLabel] != "others" {
		t.Errorf("it has become %+v", held.Spec.ConnectionRef)
	}
	a.applied(a.push("", ""))
	must(t, p.Client.Delete(t.Context(), &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "others"}}))
	must(t, p.Client.Delete(t.Context(), held))
}

func pushWiderPolicy(t *testing.T, p *platform, a *tenant) {
	guard := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard-" + a.namespace}}
	guard.Spec.Namespaces = []string{a.namespace}
	guard.Spec.Modules = map[string]string{"guard.rego": strings.ReplaceAll(teamLimits, "60", "2")}
	must(t, p.Client.Create(t.Context(), guard))
	defer func() { must(t, p.Client.Delete(context.Background(), guard)) }()
	waitLimits(t, key(a.namespace, "base"), 2)
	a.Write("policies/limits.rego", strings.ReplaceAll(strings.ReplaceAll(teamLimits, "atMost", "atLeast"), "60", "4"))
	a.applied(a.push("", ""))
	waitPool(t, key(a.namespace, "base"), func(p *v1alpha1.RunnerPool) error {
		d := p.Status.Decision
		if d == nil || d.Limits == nil || d.Limits.GetMax() != 2 || d.Announced > 2 || len(d.Limits.Conflicts) == 0 {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
	commit := a.push("", fmt.Sprintf(`guard: {apiVersion: "corral.dev/v1alpha1", kind: "ClusterRunnerPolicy", metadata: name: %q, spec: modules: "a.rego": "package corral.scaling"}`, guard.Name))
	a.refused(commit, "ClusterRunnerPolicy")
	a.Remove("policies")
	a.applied(a.push("", ""))
}

// The digests of the two templates start with the same digits. Such a pair can be found in three seconds.
func pushTwinTemplate(t *testing.T, p *platform, a *tenant) {
	guard := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "images-" + a.namespace}}
	guard.Spec.Namespaces = []string{a.namespace}
	guard.Spec.Modules = map[string]string{"images.rego": `package corral.template

deny contains {"msg": "not this image"} if input.pod.spec.containers[0].image == "runner:2"
`}
	must(t, p.Client.Create(t.Context(), guard))
	defer func() { must(t, p.Client.Delete(context.Background(), guard)) }()
	twin := func(metadata, image string) string {
		return fmt.Sprintf(`pools: twin: spec: {
	connectionRef: {name: "main", namespace: %q}
	template: {metadata: {%s}, spec: containers: [{name: "runner", image: %q}]}
}
`, p.estate, metadata, image)
	}
	const first = "twin-0d7f9ec30b"
	a.applied(a.push("", twin(`annotations: n: "992218"`, "runner:1")))
	waitPool(t, key(a.namespace, "twin"), func(p *v1alpha1.RunnerPool) error {
		if p.Status.Revision != first {
			return fmt.Errorf("revision %q", p.Status.Revision)
		}
		return nil
	})
	a.applied(a.push("", twin(`annotations: n: "1790303"`, "runner:2")))
	unready(t, key(a.namespace, "twin"), &v1alpha1.RunnerPool{}, v1alpha1.PolicyDeniedReason, "PreviousRevision\n"+first, "not this image")
	absent(t, &appsv1.ControllerRevision{}, key(a.namespace, first+"-1"))
	commit := a.push("", twin(`annotations: "corral.dev/job": "{}"`, "runner:1"))
	a.refused(commit, "corral.dev/job")
	a.applied(a.push("", ""))
}

func pushPodWithKey(t *testing.T, p *platform, _ *tenant) {
	own := p.newTenant(t, "tenants-key")
	must(t, p.Client.Create(t.Context(), p.CredentialsSecret(own.namespace, "acme")))
	must(t, p.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: own.namespace, Name: "acme"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: p.GitHub.ConfigURL(p.estate + "-org"), SecretRef: &v1alpha1.LocalObjectReference{Name: "acme"}},
	}))
	own.applied(own.push(anotherPool("thief", `name: "acme"`, `spec: template: spec: containers: [{env: [{name: "KEY", valueFrom: secretKeyRef: {name: "acme", key: "github_token"}}]}]`), ""))
	unready(t, key(own.namespace, "thief"), &v1alpha1.RunnerPool{}, v1alpha1.TemplateInvalidReason, "acme")
	pods := &corev1.PodList{}
	must(t, p.Client.List(t.Context(), pods, client.InNamespace(own.namespace)))
	if len(pods.Items) > 0 {
		t.Errorf("%d pods", len(pods.Items))
	}
}

// declareConnection returns CUE that declares a connection.
func declareConnection(name, url, credentials string) string {
	return fmt.Sprintf("connections: schema.#Connections\nconnections: %q: spec: {url: %q, %s}\n", name, url, credentials)
}

// The attacker's connection exists before the connection that owns the credentials, and refers to them later.
func pushConnectionElsewhere(t *testing.T, p *platform, _ *tenant) {
	own := p.newTenant(t, "tenants-server")
	own.applied(own.push("", declareConnection("same-secret", p.evil.URL+"/acme", `secretRef: name: "mine"`)))
	unready(t, key(own.namespace, "same-secret"), &v1alpha1.GitHubConnection{}, v1alpha1.CredentialsMissingReason)
	must(t, p.Client.Create(t.Context(), p.CredentialsSecret(own.namespace, "acme")))
	must(t, p.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: own.namespace, Name: "acme"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: p.GitHub.ConfigURL(p.estate + "-org"), SecretRef: &v1alpha1.LocalObjectReference{Name: "acme"}},
	}))
	eventually(t, func(ctx context.Context) error {
		c := &v1alpha1.GitHubConnection{}
		if err := p.Client.Get(ctx, key(own.namespace, "acme"), c); err != nil || !conditions.IsReady(c) {
			return fmt.Errorf("%w: %+v", err, c.Status.Conditions)
		}
		return nil
	})
	own.applied(own.push("", declareConnection("same-secret", p.evil.URL+"/acme", `secretRef: name: "acme"`)+declareConnection("folder", p.evil.URL+"/acme", `mount: name: "app"`)))
	unready(t, key(own.namespace, "same-secret"), &v1alpha1.GitHubConnection{}, v1alpha1.InvalidSpecReason, "CredentialsOfAnother\nacme")
	unready(t, key(own.namespace, "folder"), &v1alpha1.GitHubConnection{}, v1alpha1.CredentialsMissingReason, "FolderUnreadable\ntenants-server/app")
	commit := own.push("", declareConnection("acme", p.GitHub.ConfigURL(p.estate+"-org"), `secretRef: name: "acme"`))
	own.refused(commit, v1alpha1.ApplyFailedReason, "GitHubConnection acme")
	if n := p.shown.Load(); n != 0 {
		t.Errorf("credentials were shown %d times", n)
	}
}

func pushForeignConnection(t *testing.T, p *platform, _ *tenant) {
	own := p.newTenant(t, "tenants-none")
	own.applied(own.push(anotherPool("probe", `name: "absent", namespace: "tenants"`, ""), ""))
	there := unready(t, key(own.namespace, "base"), &v1alpha1.RunnerPool{}, v1alpha1.AccessDeniedReason, "spec.allowedNamespaces")
	notThere := unready(t, key(own.namespace, "probe"), &v1alpha1.RunnerPool{}, v1alpha1.AccessDeniedReason)
	if strings.ReplaceAll(there, "tenants/main", "X") != strings.ReplaceAll(notThere, "tenants/absent", "X") {
		t.Errorf("what is there is told from what isn't:\n%s\n%s", there, notThere)
	}
	absent(t, &v1alpha1.RunnerScaleSet{}, key(own.namespace, "base"))
}

// More sources than workers name a server that never answers. Other sources are still processed.
func pushWhileOthersHang(t *testing.T, p *platform, a *tenant) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	must(t, err)
	defer deaf.Close()
	const namespace = "tenants-hang"
	must(t, p.Cluster.CreateNamespace(t.Context(), namespace))
	ends(t, namespace)
	for i := range 40 {
		must(t, p.Client.Create(t.Context(), &v1alpha1.PoolSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("hang-%d", i)},
			Spec: v1alpha1.PoolSourceSpec{
				Git:      &v1alpha1.GitSource{URL: fmt.Sprintf("http://%s/%d.git", deaf.Addr(), i)},
				Interval: metav1.Duration{Duration: time.Second}, Timeout: &metav1.Duration{Duration: time.Minute},
			},
		}))
	}
	a.applied(a.push(anotherPool("meanwhile", `name: "main", namespace: "tenants"`, ""), ""))
	a.waitListening("meanwhile")
	a.applied(a.push("", ""))
}

// waitListening waits until a pool of the tenant is ready, through the platform's connection.
func (p *tenant) waitListening(name string) {
	p.T.Helper()
	waitPool(p.T, key(p.namespace, name), func(p *v1alpha1.RunnerPool) error {
		if !ready(p) {
			return fmt.Errorf("Ready is %+v", conditions.Get(p, meta.ReadyCondition))
		}
		return nil
	})
}

// The owner of the connection allows a namespace, disallows it while a job runs, and allows it again.
func TestAConnectionServesTheNamespacesThatItsOwnerAllows(t *testing.T) {
	const namespace = "tenants-served"
	w := newStory(t, "tenants-serve", namespace)
	w.newPlatform(t, "tenants-serve")
	w.controller(t)
	must(t, w.Cluster.CreateNamespace(t.Context(), namespace))
	ends(t, namespace)
	pool := newPool(namespace, "linux", "main", func(p *v1alpha1.RunnerPool) {
		p.Spec.ConnectionRef.Namespace = w.estate
		p.Spec.Scale.Idle = new(int32(1))
	})
	must(t, w.Client.Create(t.Context(), pool))
	unready(t, key(namespace, "linux"), &v1alpha1.RunnerPool{}, v1alpha1.AccessDeniedReason)
	w.allow(t, namespace)
	harness.AllDone(t, w.GitHub, harness.AddJobs(t, w.GitHub, w.estate+"-org", "linux", 1, 100*time.Millisecond))
	secrets := &corev1.SecretList{}
	must(t, w.Client.List(t.Context(), secrets, client.InNamespace(namespace)))
	for i := range secrets.Items {
		if _, copied := secrets.Items[i].Data[v1alpha1.TokenKey]; copied {
			t.Errorf("Secret %s has the token", secrets.Items[i].Name)
		}
	}

	ids := harness.AddJobs(t, w.GitHub, w.estate+"-org", "linux", 1, harness.LongJob)
	waitPool(t, key(namespace, "linux"), func(p *v1alpha1.RunnerPool) error {
		if r := p.Status.Runners; r.Busy != 1 || r.Idle != 1 {
			return fmt.Errorf("runners %+v", r)
		}
		return nil
	})
	w.allow(t)
	unready(t, key(namespace, "linux"), &v1alpha1.RunnerPool{}, v1alpha1.AccessDeniedReason)
	harness.CutShort(t, w.GitHub, ids...)
	eventually(t, func(ctx context.Context) error {
		runners := &v1alpha1.RunnerList{}
		if err := w.Client.List(ctx, runners, client.InNamespace(namespace)); err != nil || len(runners.Items) > 0 {
			return fmt.Errorf("%w: %d runners", err, len(runners.Items))
		}
		for _, s := range w.GitHub.Report().ScaleSets {
			if strings.Contains(s.Scope, w.estate+"-org") && s.SessionOwner != "" {
				return fmt.Errorf("the session is open: %+v", s)
			}
		}
		return nil
	})
	waiting := harness.AddJobs(t, w.GitHub, w.estate+"-org", "linux", 1, 100*time.Millisecond)
	w.allow(t, namespace)
	harness.AllDone(t, w.GitHub, waiting)
}

// A source applies and prunes objects with the permissions of its service account.
func TestASourceHasTheRightsOfItsServiceAccount(t *testing.T) {
	const namespace = "tenants-rights"
	w := newStory(t, "tenants-give", namespace)
	p := w.newPlatform(t, "tenants-give")
	w.controller(t, "--default-service-account=deployer")
	w.allow(t, namespace)
	own := w.newTenant(t, namespace)
	waitSource(t, own.key, func(s *v1alpha1.PoolSource) error {
		ready := conditions.Get(s, meta.ReadyCondition)
		if ready == nil || ready.Reason != v1alpha1.AccessDeniedReason {
			return fmt.Errorf("Ready is %+v", ready)
		}
		return hasFacts(s, []string{"system:serviceaccount:" + namespace + ":deployer", `cannot patch resource "runnerpools"`})
	})
	absent(t, &v1alpha1.RunnerPool{}, key(namespace, "base"))

	grant(t, namespace, "deployer", toApply, "runnerpools")
	own.applied(own.push("", ""))
	commit := own.push("", declareConnection("evil", p.evil.URL+"/acme", `secretRef: name: "any"`))
	own.refused(commit, v1alpha1.AccessDeniedReason, "deployer", `resource "githubconnections"`)
	absent(t, &v1alpha1.GitHubConnection{}, key(namespace, "evil"))

	own.patchSource(`{"spec":{"serviceAccountName":"reader"}}`)
	commit = own.push(anotherPool("more", fmt.Sprintf(`name: "main", namespace: %q`, w.estate), ""), "")
	own.refused(commit, namespace+"/reader")
	absent(t, &v1alpha1.RunnerPool{}, key(namespace, "more"))
	grant(t, namespace, "reader", toApply, "runnerpools")
	own.request()
	own.applied(commit)
	own.applied(own.push("", "")) // and a pool is pruned
	absent(t, &v1alpha1.RunnerPool{}, key(namespace, "more"))
}

func (p *tenant) patchSource(merge string) {
	p.T.Helper()
	s := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: p.key.Name}}
	must(p.T, p.w.Client.Patch(p.T.Context(), s, client.RawPatch("application/merge-patch+json", []byte(merge))))
}

// Each subtest is an attempt by a user who may change all of Corral's objects in a namespace that the connection
// allows.
func TestATenantWithEditRights(t *testing.T) {
	const namespace = "tenants-edit"
	w := newStory(t, "tenants-lend", namespace, "tenants-victim")
	w.newPlatform(t, "tenants-lend")
	w.controller(t)
	for _, ns := range []string{namespace, "tenants-victim"} {
		must(t, w.Cluster.CreateNamespace(t.Context(), ns))
		ends(t, ns)
	}
	w.allow(t, namespace, "tenants-victim")
	grant(t, namespace, "mallory", "get, list, watch, create, update, patch, delete", "'*'")
	config, err := w.Cluster.ServiceAccountConfig(t.Context(), namespace, "mallory")
	must(t, err)
	mallory, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	must(t, err)

	victim := newPool("tenants-victim", "linux", "main", func(p *v1alpha1.RunnerPool) {
		p.Spec.ConnectionRef.Namespace, p.Spec.Scale.Idle = w.estate, new(int32(1))
	})
	must(t, w.Client.Create(t.Context(), victim))
	(&tenant{&gitops{Repository: &harness.Repository{T: t}, namespace: "tenants-victim"}}).waitListening("linux")
	connection := v1alpha1.ConnectionReference{Name: "main", Namespace: w.estate}
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

	t.Run("other namespaces and cluster policies aren't his", func(t *testing.T) {
		for _, obj := range []client.Object{
			newPool("tenants-victim", "intruder", "main"),
			&v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "wider"}},
		} {
			if err := mallory.Create(t.Context(), obj); !apierrors.IsForbidden(err) {
				t.Errorf("%T: %v", obj, err)
			}
		}
	})
	t.Run("a source can't depend on, or be of, another namespace", func(t *testing.T) {
		interval := metav1.Duration{Duration: time.Hour}
		for name, spec := range map[string]v1alpha1.PoolSourceSpec{
			"depends": {Git: &v1alpha1.GitSource{URL: "file:///nowhere"}, Interval: interval, DependsOn: []meta.NamespacedObjectReference{{Name: "pools", Namespace: "tenants-victim"}}},
			"refers":  {SourceRef: &v1alpha1.SourceReference{Kind: v1alpha1.GitRepositoryKind, Name: "pools", Namespace: "tenants-victim"}, Interval: interval},
		} {
			must(t, mallory.Create(t.Context(), &v1alpha1.PoolSource{ObjectMeta: object(name), Spec: spec}))
			unready(t, key(namespace, name), &v1alpha1.PoolSource{}, v1alpha1.AccessDeniedReason)
		}
	})
	t.Run("a source can't act as another namespace's account", func(t *testing.T) {
		must(t, mallory.Create(t.Context(), &v1alpha1.PoolSource{ObjectMeta: object("poses"), Spec: v1alpha1.PoolSourceSpec{
			Git: &v1alpha1.GitSource{URL: "file:///nowhere"}, Interval: metav1.Duration{Duration: time.Hour}, ServiceAccountName: "x:tenants-victim:deployer",
		}}))
		unready(t, key(namespace, "poses"), &v1alpha1.PoolSource{}, v1alpha1.InvalidSpecReason, "spec.serviceAccountName")
	})
	t.Run("a forged record can't speak for another's pool", func(t *testing.T) {
		must(t, mallory.Create(t.Context(), &v1alpha1.RunnerScaleSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forged", Finalizers: []string{v1alpha1.ScaleSetFinalizer}},
			Spec: v1alpha1.RunnerScaleSetSpec{
				PoolRef: v1alpha1.LocalObjectReference{Name: "forged"}, PoolUID: string(victim.UID), ConnectionRef: connection,
				Name: "linux", RunnerGroup: "default", Labels: []string{"stolen"},
			},
		}))
		unready(t, key(namespace, "forged"), &v1alpha1.RunnerScaleSet{}, v1alpha1.InvalidSpecReason, "PoolOfAnotherNamespace")
		must(t, mallory.Delete(t.Context(), &v1alpha1.RunnerScaleSet{ObjectMeta: object("forged")}))
		eventually(t, func(ctx context.Context) error {
			if err := w.Client.Get(ctx, key(namespace, "forged"), &v1alpha1.RunnerScaleSet{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	})
	t.Run("a pool can't take another's scale set", func(t *testing.T) {
		must(t, mallory.Create(t.Context(), newPool(namespace, "taker", "main", func(p *v1alpha1.RunnerPool) {
			p.Spec.ConnectionRef, p.Spec.ScaleSetName = connection, "linux"
		})))
		unready(t, key(namespace, "taker"), &v1alpha1.RunnerPool{}, v1alpha1.OwnedElsewhereReason, "ScaleSetOfAnotherNamespace")
	})
	t.Run("a forged runner can't take another's registration", func(t *testing.T) {
		own := newPool(namespace, "bait", "main", func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef = connection })
		must(t, mallory.Create(t.Context(), own))
		(&tenant{&gitops{Repository: &harness.Repository{T: t}, namespace: namespace}}).waitListening("bait")
		theirs := idleRunner(t, "tenants-victim")
		forged := &v1alpha1.Runner{ObjectMeta: object(theirs.Name), Spec: theirs.Spec}
		forged.Finalizers, forged.Spec.PoolRef.Name = []string{v1alpha1.RunnerFinalizer}, "bait"
		forged.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(own, v1alpha1.GroupVersion.WithKind("RunnerPool"))}
		must(t, mallory.Create(t.Context(), forged))
		unready(t, key(namespace, theirs.Name), &v1alpha1.Runner{}, v1alpha1.ProgressingReason, "PoolSessionMissing")
		absent(t, &corev1.Secret{}, key(namespace, theirs.Name+"-jit"))
		must(t, mallory.Status().Patch(t.Context(), forged, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"runnerID":%d}}`, theirs.Status.RunnerID))))
		must(t, mallory.Delete(t.Context(), forged))
		unready(t, key(namespace, theirs.Name), &v1alpha1.Runner{}, v1alpha1.ConnectionNotReadyReason, "RegistrationUnproved\nbait")
		if again := idleRunner(t, "tenants-victim"); again.UID != theirs.UID || !w.registered(theirs) {
			t.Errorf("the victim's runner %s is %s by now", theirs.Name, again.Name)
		}
		must(t, mallory.Patch(t.Context(), forged, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		must(t, mallory.Delete(t.Context(), own))
	})
	t.Run("a forged runner isn't registered by a connection that doesn't allow it", func(t *testing.T) {
		w.allow(t, "tenants-victim")
		must(t, mallory.Create(t.Context(), &v1alpha1.Runner{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forged-1", Labels: map[string]string{v1alpha1.PoolLabel: "forged"}},
			Spec:       v1alpha1.RunnerSpec{PoolRef: v1alpha1.LocalObjectReference{Name: "forged"}, ConnectionRef: connection, ScaleSetID: 1, Revision: "forged-1"},
		}))
		unready(t, key(namespace, "forged-1"), &v1alpha1.Runner{}, v1alpha1.AccessDeniedReason)
		must(t, mallory.Delete(t.Context(), &v1alpha1.Runner{ObjectMeta: object("forged-1")}))
	})
	sets := 0
	for _, s := range w.GitHub.Report().ScaleSets {
		if strings.Contains(s.Scope, w.estate+"-org") && s.Name != "bait" {
			sets++
			if s.Name != "linux" || s.Labels[0] != "linux" || !strings.Contains(s.SessionOwner, string(victim.UID)) {
				t.Errorf("the victim's scale set is %+v", s)
			}
		}
	}
	if sets != 1 {
		t.Errorf("%d scale sets", sets)
	}
}

// idleRunner waits until the only runner of a namespace is idle.
func idleRunner(t *testing.T, namespace string) *v1alpha1.Runner {
	t.Helper()
	runners := &v1alpha1.RunnerList{}
	eventually(t, func(ctx context.Context) error {
		if err := shared.Client.List(ctx, runners, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(runners.Items) != 1 || runners.Items[0].Status.State != v1alpha1.RunnerIdle || runners.Items[0].Status.RunnerID == 0 {
			return fmt.Errorf("runners %+v", runners.Items)
		}
		return nil
	})
	return &runners.Items[0]
}

// registered reports whether GitHub knows a runner by its ID.
func (w *story) registered(r *v1alpha1.Runner) bool {
	return slices.ContainsFunc(w.GitHub.Report().Runners, func(known githubsim.RunnerReport) bool {
		return int64(known.ID) == r.Status.RunnerID && known.Name == r.Name
	})
}

// A controller that is limited to some namespaces ignores all others, and does not use objects in them.
func TestAControllerOfSomeNamespaces(t *testing.T) {
	w := newStory(t, "tenants-watched")
	w.newPlatform(t, "tenants-elsewhere")
	w.allow(t, "*")
	w.controller(t, "--watch-namespaces=tenants-watched")
	for _, ns := range []string{"tenants-watched", "tenants-unwatched"} {
		must(t, w.Cluster.CreateNamespace(t.Context(), ns))
		ends(t, ns)
		must(t, w.Client.Create(t.Context(), newPool(ns, "linux", "main", func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Namespace = w.estate })))
	}
	unready(t, key("tenants-watched", "linux"), &v1alpha1.RunnerPool{}, v1alpha1.AccessDeniedReason, "NamespaceNotWatched", w.estate)
	p := &v1alpha1.RunnerPool{}
	must(t, w.Client.Get(t.Context(), key("tenants-unwatched", "linux"), p))
	if len(p.Status.Conditions) > 0 {
		t.Errorf("it was looked at: %+v", p.Status.Conditions)
	}
}

func TestSecretsAreReadByNameOnly(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"list", "watch", "update", "patch", "delete"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + world.SystemNamespace + ":" + world.ServiceAccount,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "secrets", Namespace: "default"},
		}}
		must(t, shared.Client.Create(t.Context(), review))
		if review.Status.Allowed {
			t.Errorf("the controller may %s Secrets", verb)
		}
	}
}

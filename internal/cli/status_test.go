// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/kube"
)

// healthyCluster returns a cluster that has everything that status reads: a leader, and a pool in each of two
// namespaces.
func healthyCluster() []client.Object {
	ready := []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.SucceededReason, LastTransitionTime: metav1.Time{Time: noon}}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "corral-system", Name: "corral.corral.dev"}}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("corral-0"), &metav1.MicroTime{Time: noon.Add(-time.Second)}
	objects := []client.Object{lease}
	for _, namespace := range []string{"ci", "qa"} {
		c := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"}}
		p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "linux"}}
		p.Spec.ConnectionRef = v1alpha1.ConnectionReference{Name: "acme", Namespace: "ci"}
		p.Status.Conditions, c.Status.Conditions = slices.Clone(ready), slices.Clone(ready)
		objects = append(objects, c, p)
	}
	return objects
}

// fakeCluster returns a client for the objects. The client refuses the requests for which refuse returns true.
func fakeCluster(refuse func(obj any, namespace string) bool, objects ...client.Object) client.Client {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no"))
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if refuse != nil && refuse(obj, key.Namespace) {
					return forbidden
				}
				return c.Get(ctx, key, obj, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				o := client.ListOptions{}
				o.ApplyOptions(opts)
				if refuse != nil && refuse(list, o.Namespace) {
					return forbidden
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
}

// statusOf reads the status of a cluster that refuses some requests and does not change.
func statusOf(namespace string, refuse func(obj any, namespace string) bool, objects ...client.Object) explain.Page {
	c := fakeCluster(refuse, objects...)
	noWait := func(context.Context, time.Duration) error { return nil }
	g := &statusReader{reader{c, namespace, "ci", briefReason, nil}, "corral-system", func() time.Time { return noon }, noWait}
	return explain.Look(g.read(context.Background()))
}

func TestStatusReadsWithTheCallersRights(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace string
		refuse    func(any, string) bool
		drop      string // kind whose objects are missing
		verdict   explain.Verdict
		pools     int
		want      []string
	}{
		"all namespaces": {verdict: explain.Well, pools: 2, want: []string{"No problems in all namespaces", "corral-0 leads"}},
		"one namespace":  {namespace: "qa", verdict: explain.Well, pools: 1, want: []string{"No problems in namespace qa", "2 connections"}},
		"rights in one namespace": {
			namespace: "ci", refuse: func(obj any, namespace string) bool { return namespace != "ci" }, verdict: explain.Unknown, pools: 1,
			want: []string{"could not check everything", "ClusterRunnerPolicies (no permission to read); whether a controller works (you have no permission to read Lease corral-system/corral.corral.dev)"},
		},
		"rights in one namespace, asked for all": {
			refuse: func(_ any, namespace string) bool { return namespace != "ci" }, verdict: explain.Unknown, pools: 1,
			want: []string{"RunnerPools in namespaces other than ci, GitHubConnections in namespaces other than ci"},
		},
		"no right at all": {
			namespace: "ci", refuse: func(any, string) bool { return true }, verdict: explain.Unknown,
			want: []string{"RunnerPools, GitHubConnections, RunnerScaleSets, Runners, PoolSources, RunnerPolicies, ResourceQuotas, ClusterRunnerPolicies (no permission to read)"},
		},
		"a connection of another namespace that may not be read": {
			namespace: "qa", refuse: func(obj any, namespace string) bool {
				_, is := obj.(*v1alpha1.GitHubConnection)
				return is && namespace == "ci"
			},
			verdict: explain.Unknown, pools: 1, want: []string{"GitHubConnection ci/acme (no permission to read)"},
		},
		"no lease": {drop: "Lease", verdict: explain.Unknown, pools: 2, want: []string{"whether a controller works (there is no Lease corral-system/corral.corral.dev: set --lease-namespace to the controller's namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := healthyCluster()
			if tc.drop == "Lease" {
				objects = objects[1:]
			}
			page := statusOf(tc.namespace, tc.refuse, objects...)
			text := page.Text()
			if page.Verdict != tc.verdict || page.Totals.Pools != tc.pools {
				t.Errorf("%s, %d pools", page.Verdict, page.Totals.Pools)
			}
			for _, part := range tc.want {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in\n%s", part, text)
				}
			}
		})
	}
}

// A lease in another namespace is found only with -A.
func TestTheLeaseIsFoundWhereverItIs(t *testing.T) {
	objects := healthyCluster()
	objects[0].SetNamespace("platform")
	if page := statusOf("", nil, objects...); page.Verdict != explain.Well || len(page.Totals.Leaders) != 1 {
		t.Errorf("got\n%s", page.Text())
	}
}

// A lease in another namespace does not replace the requested lease.
func TestALeaseThatCanNotBeReadIsNamed(t *testing.T) {
	objects := healthyCluster()
	objects[0].SetNamespace("platform")
	named := func(obj any, _ string) bool { _, isOne := obj.(*coordinationv1.Lease); return isOne }
	if page := statusOf("", named, objects...); page.Verdict != explain.Unknown || len(page.Totals.Leaders) != 1 {
		t.Errorf("got\n%s", page.Text())
	}
}

// A controller is running if its lease changes between two reads. This does not depend on the clocks of the
// controller and the user.
func TestAControllerWorksWhoseLeaseIsRenewed(t *testing.T) {
	for name, tc := range map[string]struct {
		age, renewed time.Duration // age of the lease at the first look, and how far its renew time has advanced at the second
		holder, next string
		gone         bool
		err          error
		want         explain.Verdict
		looks        int
	}{
		"lately":                           {age: 2 * time.Second, holder: "corral-0", want: explain.Well},
		"not for long":                     {age: 12 * time.Second, holder: "corral-0", next: "corral-0", want: explain.Trouble, looks: 1},
		"for an hour":                      {age: time.Hour, holder: "corral-0", next: "corral-0", want: explain.Trouble, looks: 1},
		"by a clock that is slow":          {age: time.Hour, renewed: 4 * time.Second, holder: "corral-0", next: "corral-0", want: explain.Well, looks: 1},
		"by a clock that is fast":          {age: -time.Hour, renewed: 4 * time.Second, holder: "corral-0", next: "corral-0", want: explain.Well, looks: 1},
		"by a clock that was fast":         {age: -time.Hour, holder: "corral-0", next: "corral-0", want: explain.Trouble, looks: 1},
		"given up":                         {age: 2 * time.Second, want: explain.Trouble, looks: 1},
		"given up, and taken":              {age: 2 * time.Second, renewed: time.Second, next: "corral-1", want: explain.Well, looks: 1},
		"lost, and taken":                  {age: 16 * time.Second, renewed: 16 * time.Second, holder: "corral-0", next: "corral-1", want: explain.Well, looks: 1},
		"lost, and deleted":                {age: time.Minute, holder: "corral-0", gone: true, want: explain.Trouble, looks: 1},
		"lost, and there was no time left": {age: time.Minute, holder: "corral-0", err: context.DeadlineExceeded, want: explain.Unknown, looks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			objects := healthyCluster()
			lease := objects[0].(*coordinationv1.Lease)
			set := func(holder string, age time.Duration) {
				lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &metav1.MicroTime{Time: noon.Add(-age)}
			}
			set(tc.holder, tc.age)
			c := fakeCluster(nil, objects...)
			looks := 0
			wait := func(_ context.Context, d time.Duration) error {
				looks++
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || d != leaseLook {
					t.Fatal(d, err)
				}
				set(tc.next, tc.age-tc.renewed)
				change := c.Update
				if tc.gone {
					change = func(ctx context.Context, o client.Object, _ ...client.UpdateOption) error { return c.Delete(ctx, o) }
				}
				return errors.Join(tc.err, change(t.Context(), lease))
			}
			g := &statusReader{reader{c, "", "ci", briefReason, nil}, "corral-system", func() time.Time { return noon }, wait}
			page := explain.Look(g.read(t.Context()))
			if page.Verdict != tc.want || looks != tc.looks {
				t.Errorf("looked %d more times:\n%s", looks, page.Text())
			}
		})
	}
}

// A workstation whose clock is off by an hour sees the same status.
func TestTheTimeIsTheAPIServers(t *testing.T) {
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer server.Close()
	config := "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: '" + server.URL + "'}}]\n" +
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n"
	o := bindCluster(pflag.NewFlagSet("corral", pflag.ContinueOnError), "dev", "")
	if d := time.Until(o.clock.Now()).Round(time.Minute); d != 0 {
		t.Errorf("before an answer the clock is %s ahead", d)
	}
	o.kubeconfig = filepath.Join(t.TempDir(), "config")
	writeFile(t, o.kubeconfig, config)
	c, _, err := o.connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &v1alpha1.RunnerPoolList{}); err == nil {
		t.Fatal("this server is not an API server")
	}
	if d := time.Until(o.clock.Now()).Round(time.Minute); d != time.Hour {
		t.Errorf("the clock is %s ahead", d)
	}
}

// pagedClient serves an endless list of quotas, page by page.
type pagedClient struct {
	client.Reader
	pages int
}

func (p *pagedClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	n, _ := strconv.Atoi(o.Continue)
	quotas := list.(*corev1.ResourceQuotaList)
	for i := range o.Limit {
		quotas.Items = append(quotas.Items, corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("q%d", int64(n)*o.Limit+i)}})
	}
	if n+1 < p.pages {
		quotas.Continue = strconv.Itoa(n + 1)
	}
	return nil
}

func TestObjectsAreReadInBoundedParts(t *testing.T) {
	for name, tc := range map[string]struct {
		pages, want int
		err         error
	}{
		"a few parts": {3, 3 * pageSize, nil},
		"too many":    {1000, maxRead, errMore},
	} {
		t.Run(name, func(t *testing.T) {
			names := map[string]bool{}
			var quotas []corev1.ResourceQuota
			err := listPages(t.Context(), &pagedClient{pages: tc.pages}, &corev1.ResourceQuotaList{}, &quotas)
			for i := range quotas {
				names[quotas[i].Name] = true
			}
			if len(names) != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%d objects, %v", len(names), err)
			}
		})
	}
}

func TestStatusRefusesWhatItCanNotShow(t *testing.T) {
	for args, want := range map[string]struct {
		says string
		code int
	}{
		"--watch -o json":                  {"--watch supports only text output, not json", exitError},
		"--watch --interval 10ms":          {"--interval: 10ms is below 1s", exitError},
		"-n ci -A":                         {"none of the others can be", exitError},
		"-o table":                         {"table", exitError},
		"--kubeconfig /nowhere/kubeconfig": {"reading the kubeconfig", exitChanged}, // nothing was checked
	} {
		root := NewRoot("v1.2.3")
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SetArgs(append([]string{"status"}, strings.Fields(args)...))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want.says) || exitCode(err) != want.code {
			t.Errorf("%s: exit code %d: %v", args, exitCode(err), err)
		}
	}
}

func TestTheVerdictIsTheExitCode(t *testing.T) {
	for verdict, want := range map[explain.Verdict]int{explain.Well: exitOK, explain.Trouble: exitError, explain.Unknown: exitChanged} {
		if got := exitCode(verdictError(&explain.Page{Verdict: verdict})); got != want {
			t.Errorf("%s: %d, want %d", verdict, got, want)
		}
	}
}

func TestStatusAsJSONHasAVersion(t *testing.T) {
	var b bytes.Buffer
	if err := (&format{value: "json"}).write(&b, statusOf("", nil, healthyCluster()...)); err != nil {
		t.Fatal(err)
	}
	var got struct {
		APIVersion, Kind, Verdict string
		Totals                    struct{ Pools int }
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.APIVersion != "status.corral.dev/v1alpha1" || got.Kind != "Status" || got.Verdict != "Well" || got.Totals.Pools != 2 {
		t.Errorf("%v: %s", err, b.String())
	}
}

// With --watch, a changed status is printed: as a page on a terminal, otherwise as lines.
func TestStatusIsShownWhenItChanges(t *testing.T) {
	well := statusOf("", nil, healthyCluster()...)
	objects := healthyCluster()
	objects[2].(*v1alpha1.RunnerPool).Status.Conditions[0].Status = metav1.ConditionFalse
	objects[2].(*v1alpha1.RunnerPool).Status.Conditions[0].Reason = v1alpha1.RunnersFailingReason
	trouble := statusOf("", nil, objects...)
	for name, tc := range map[string]struct {
		page, former *explain.Page
		isTerminal   bool
		want         string
	}{
		"at first":                  {&well, nil, false, well.Text()},
		"at first on a terminal":    {&well, nil, true, clearScreen + well.Text()},
		"nothing new":               {&well, &well, false, ""},
		"nothing new on a terminal": {&well, &well, true, ""},
		"trouble":                   {&trouble, &well, false, "12:00:00Z ERROR runners fail: 1 pool, since 12:00:00Z (now): RunnerPool/ci/linux\n"},
		"trouble on a terminal":     {&trouble, &well, true, clearScreen + trouble.Text()},
		"over":                      {&well, &trouble, false, "12:00:00Z RESOLVED runners fail: RunnerPool/ci/linux\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := show(&b, tc.page, tc.former, tc.isTerminal); err != nil || b.String() != tc.want {
				t.Errorf("%v: %q, want %q", err, b.String(), tc.want)
			}
		})
	}
}

// Watching prints each change until the user stops it. The last page determines the exit code.
func TestFollowingEndsWithTheLastVerdict(t *testing.T) {
	well := statusOf("", nil, healthyCluster()...)
	unknown := statusOf("", nil, healthyCluster()[1:]...)
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	look := func(context.Context) explain.Page {
		if looks++; looks == 3 {
			cancel()
		}
		if looks > 1 {
			return unknown
		}
		return well
	}
	var b bytes.Buffer
	err := (&statusOptions{interval: time.Millisecond}).follow(ctx, &b, look)
	if !errors.Is(err, errUnseen) || strings.Count(b.String(), "NOT CHECKED whether a controller works") != 1 || !strings.HasPrefix(b.String(), "No problems") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// While the API server is unreachable, no problem is reported as resolved. Problems that still exist afterwards
// are not reported again.
func TestFollowingOutlastsAnAPIServerThatIsAway(t *testing.T) {
	objects := healthyCluster()
	objects[2].(*v1alpha1.RunnerPool).Status.Conditions[0].Status = metav1.ConditionFalse
	objects[2].(*v1alpha1.RunnerPool).Status.Conditions[0].Reason = v1alpha1.RunnersFailingReason
	trouble, away := statusOf("", nil, objects...), statusOf("", func(any, string) bool { return true }, objects...)
	ctx, cancel := context.WithCancel(t.Context())
	looks := []explain.Page{trouble, away, away, trouble, trouble}
	look := func(context.Context) (page explain.Page) {
		page, looks = looks[0], looks[1:]
		if len(looks) == 0 {
			cancel()
		}
		return page
	}
	var b bytes.Buffer
	err := (&statusOptions{interval: time.Millisecond}).follow(ctx, &b, look)
	changes := strings.TrimPrefix(b.String(), trouble.Text())
	if !errors.Is(err, errTrouble) || strings.Count(changes, "\n") != 2 || !strings.Contains(changes, " NOT CHECKED RunnerPools in") || !strings.Contains(changes, " CHECKED AGAIN RunnerPools in") {
		t.Errorf("%v:\n%s", err, changes)
	}
}

// If all requests fail for the same reason, that reason is reported once, not for each kind.
func TestWhatKeepsAllFromBeingReadIsSaidOnce(t *testing.T) {
	g := &reader{reasonOf: briefReason}
	for _, kind := range []string{"runners", "runnerpools"} {
		g.recordUnseen(kind, &url.Error{Op: "Get", URL: "https://10.0.0.1/apis/corral.dev/v1alpha1/" + kind, Err: errors.New("connection refused")})
		g.recordUnseen(kind, fmt.Errorf("mapping: %w", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}}))
	}
	const missing = "the cluster has no such kind: Corral's CRDs aren't installed"
	want := []explain.Unseen{{What: "runners", Why: "connection refused"}, {What: "runners", Why: missing}, {What: "runnerpools", Why: "connection refused"}, {What: "runnerpools", Why: missing}}
	if !slices.Equal(g.unseen, want) {
		t.Errorf("got %+v", g.unseen)
	}
}

func TestKubectlsPluginNamesItselfAsKubectlDoes(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/local/bin/kubectl-corral": "kubectl corral status [flags]", "kubectl-corral.exe": "kubectl corral status [flags]", "/usr/local/bin/corral": "\n  corral status [flags]",
	} {
		root := NewRootAs(program, "v1.2.3")
		var b bytes.Buffer
		root.SetOut(&b)
		root.SetArgs([]string{"help", "status"})
		if err := root.Execute(); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %v, %q is not in\n%s", program, err, want, b.String())
		}
	}
}

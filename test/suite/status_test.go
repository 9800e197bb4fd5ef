// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/test/golden"
)

// onDuty is corral status in the hands of somebody who is called at night.
type onDuty struct {
	t          *testing.T
	kubeconfig string
	// binary is how corral is called.
	binary string
}

// look runs the command and returns what it says and its exit code.
func (o onDuty) look(ctx context.Context, args ...string) (page string, code int, err error) {
	c := exec.CommandContext(ctx, o.binary, append([]string{"status", "--kubeconfig", o.kubeconfig, "-n", "status", "--lease-namespace", "status-lease"}, args...)...)
	var stdout bytes.Buffer
	c.Stdout, c.Env = &stdout, append(os.Environ(), "KUBECONFIG=/nowhere")
	err = c.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return "", 0, err
	}
	return masked(stdout.String()), c.ProcessState.ExitCode(), nil
}

// masks hide what differs from one run to the next.
var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\d\d:\d\d:\d\dZ \([^)]*\)`), "CLOCK (AGO)"},
	{regexp.MustCompile(`sha1:[0-9a-f]{8,40}`), "sha1:COMMIT"},
	{regexp.MustCompile(`(, )?Runner/status/[a-z0-9-]+(, and \d+ more)?`), ""},
	{regexp.MustCompile(`, \d+ runners?(,)`), "$1"}, // of a pool that fails, by the moment
	{regexp.MustCompile(`\d+ runners in a row`), "SOME runners in a row"},
	{regexp.MustCompile(`next try (by )?\d\d:\d\d:\d\dZ`), "next try ${1}CLOCK"},
	{regexp.MustCompile(`, next attempt by CLOCK \([^)]*\)`), ""}, // until a minute after it
	{regexp.MustCompile(`, crash-\w+-\d+ on node`), ", RUNNER on node"},
	{regexp.MustCompile(`(,| on a node) tainted [^;]*`), ""}, // while the node is not ready yet
	{regexp.MustCompile(`\d+ runners?(: [^.]*)?\. `), "SOME runners. "},
	{regexp.MustCompile(`Controllers: \S+ leads`), "Controllers: SOMEBODY leads"},
	{regexp.MustCompile(`corral.dev: \S+ renewed it last`), "corral.dev: SOMEBODY renewed it last"},
	{regexp.MustCompile(`connection, \d+ polic(y|ies),`), "connection, SOME policies,"}, // of the cluster are other stories'
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST"},
	{regexp.MustCompile(`scale set \d+`), "scale set ID"},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.by)
	}
	return text
}

// sees waits until the page is as reviewed: testdata/status-NAME.txt. When that is written anew, it waits for some words.
func (o onDuty) sees(name string, code int, text string, args ...string) {
	o.t.Helper()
	file := filepath.Join("testdata", "status-"+name+".txt")
	want, err := os.ReadFile(file)
	if err != nil && !golden.Updating() {
		o.t.Fatal(err)
	}
	page := ""
	eventually(o.t, func(ctx context.Context) error {
		var got int
		if page, got, err = o.look(ctx, args...); err != nil {
			return err
		}
		isAsReviewed := page == string(want) || golden.Updating() && strings.Contains(page, text)
		if got != code || !isAsReviewed {
			return fmt.Errorf("%s: exit code %d, want %d:\n%s\nwant:\n%s", name, got, code, page, want)
		}
		return nil
	})
	golden.Compare(o.t, file, page)
}

const statusPools = `package pools

import "corral.dev/schema@v0"

pools: schema.#Pools
pools: [Name=string]: spec: {
	connectionRef: name: "acme"
	runnerLabels: [Name]
	scale: max: 3
	template: spec: containers: [{name: "runner", image: "runner:1"}]
}
pools: linux: {}
pools: crash: {}
`

// Faults of docs/faults.md are seen by who has nothing but corral status: what is wrong, the worst first, whom it hurts and what to do.
func TestStatusSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const namespace = "status"
	// A fault does not end a poll that is held.
	w := newStoryOn(t, githubsim.Options{SessionExpiry: 3 * time.Second, Hold: time.Second}, "--watch-namespaces="+namespace)
	w.elect(t, "status-lease")
	g := w.newGitops(t, namespace, 5*time.Second)
	g.Write("pools.cue", statusPools)
	c := w.start(t)
	g.sync(g.Push("Two pools"))
	on := onDuty{t: t, kubeconfig: w.Cluster.Kubeconfig(), binary: shared.Binary}
	on.sees("well", 0, "All is well")

	restricted := onDuty{t: t, kubeconfig: newQuestion(t, namespace).kubeconfig, binary: shared.Binary}
	restricted.sees("restricted", 3, "Nothing is known to be wrong")
	everywhere := exec.CommandContext(t.Context(), shared.Binary, "status", "--kubeconfig", restricted.kubeconfig, "-A")
	if out, _ := everywhere.Output(); everywhere.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), "RunnerPools of other namespaces than") {
		t.Errorf("with -A, exit code %d:\n%s", everywhere.ProcessState.ExitCode(), out)
	}

	w.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: 500})
	w.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 500})
	on.sees("github-answers-500", 1, "GitHub answers 500: 1 connection, 2 pools")
	w.GitHub.ClearFaults()
	on.sees("well", 0, "All is well")

	heal := w.Node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Namespace: namespace, Labels: map[string]string{v1alpha1.PoolLabel: "crash"}})
	t.Cleanup(heal)
	id, err := w.GitHub.AddJob(githubsim.Job{Repository: namespace + "-org/app", Labels: []string{"crash"}, Duration: time.Millisecond})
	must(t, err)
	g.Write("pools.cue", strings.Replace(statusPools, "max: 3", `max: "three"`, 1))
	g.Push("A number that is none")
	broken := limitPolicy(namespace, "broken", 1)
	broken.Spec.Modules = map[string]string{"limits.rego": "package corral.scaling\n\nlimit contains {"}
	must(t, w.Client.Create(t.Context(), broken))
	on.sees("several", 1, "runners fail: 1 pool")
	heal()
	w.annotate(t, &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "crash"}}, v1alpha1.RetryAnnotation, "mended")
	must(t, w.Client.Delete(t.Context(), broken))
	g.Write("pools.cue", statusPools)
	g.sync(g.Push("A number again"))
	w.allDone(t, []string{id})
	on.sees("well", 0, "All is well")

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"}}
	must(t, w.Client.Delete(t.Context(), secret))
	connection := &v1alpha1.GitHubConnection{ObjectMeta: secret.ObjectMeta}
	w.annotate(t, connection, "reconcile.fluxcd.io/requestedAt", "now") // it is looked at once a minute
	on.sees("secret-gone", 1, "credentials are missing: 1 connection")
	waitPool(t, key(namespace, "linux"), func(p *v1alpha1.RunnerPool) error {
		if message := conditions.GetMessage(p, v1alpha1.ReadyCondition); !strings.HasSuffix(message, "a restart of the controller would stop it") {
			return fmt.Errorf("it goes on with a former token, and says %q", message)
		}
		return nil
	})
	must(t, w.Client.Create(t.Context(), w.CredentialsSecret(namespace, "acme")))
	on.sees("well", 0, "All is well")

	must(t, c.Stop())
	on.plugin().sees("nobody-leads", 1, "no controller works")
	w.start(t)
	on.sees("well", 0, "All is well")
	w.cleanUp(t, namespace)
}

// annotate sets an annotation of an object.
func (w *story) annotate(t *testing.T, object client.Object, name, value string) {
	t.Helper()
	must(t, w.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, value))))
}

// plugin is corral as kubectl runs it: by a link.
func (o onDuty) plugin() onDuty {
	o.t.Helper()
	link := filepath.Join(o.t.TempDir(), "kubectl-corral")
	must(o.t, os.Symlink(o.binary, link))
	help, err := exec.CommandContext(o.t.Context(), link, "status", "--help").Output()
	if err != nil || !strings.Contains(string(help), "kubectl corral status [flags]") {
		o.t.Errorf("%v: %s", err, help)
	}
	o.binary = link
	return o
}

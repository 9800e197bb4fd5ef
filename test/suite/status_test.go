// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/test/recorder"
)

// onDuty runs corral status as an on-call engineer would.
type onDuty struct {
	t          *testing.T
	kubeconfig string
	// binary is the path of the corral command.
	binary string
}

// look runs the command. It returns the findings with their severity, code and objects, the parts that could not
// be read, and the exit code.
func (o onDuty) look(ctx context.Context) (found []string, code int, err error) {
	c := exec.CommandContext(ctx, o.binary, "status", "--kubeconfig", o.kubeconfig, "-n", "status", "--lease-namespace", "status-lease", "-o", "json")
	c.Env = append(os.Environ(), "KUBECONFIG=/nowhere")
	text, err := c.Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return nil, 0, err
	}
	var page explain.Page
	if err := json.Unmarshal(text, &page); err != nil {
		return nil, 0, err
	}
	for _, f := range page.Findings {
		objects := slices.DeleteFunc(f.Objects, func(name string) bool { return strings.HasPrefix(name, "Runner/") }) // the runners depend on timing
		found = append(found, fmt.Sprintf("%s %s: %s", f.Severity, f.Reason, strings.Join(objects, ", ")))
	}
	for _, u := range page.NotLookedAt {
		found = append(found, "not looked at: "+u.What)
	}
	return found, c.ProcessState.ExitCode(), nil
}

// sees waits until the command returns the wanted exit code and findings.
func (o onDuty) sees(code int, want ...string) {
	o.t.Helper()
	eventually(o.t, func(ctx context.Context) error {
		found, got, err := o.look(ctx)
		if err != nil || got != code || !slices.Equal(found, want) {
			return fmt.Errorf("exit code %d, want %d: found %q, want %q: %w", got, code, found, want, err)
		}
		return nil
	})
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

// corral status alone shows faults of docs/faults.md: the problem, with the most severe first, the affected
// objects, and the fix.
func TestStatusSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const namespace = "status"
	// A fault does not end the current poll.
	w := newStoryOn(t, githubsim.Options{SessionExpiry: 3 * time.Second, Hold: time.Second}, "--watch-namespaces="+namespace)
	w.elect(t, "status-lease")
	g := w.newGitops(t, namespace, 5*time.Second)
	g.Write("pools.cue", statusPools)
	c := w.start(t)
	g.sync(g.Push("Two pools"))
	on := onDuty{t: t, kubeconfig: w.Cluster.Kubeconfig(), binary: shared.Binary}
	on.sees(0)

	restricted := onDuty{t: t, kubeconfig: newQuestion(t, namespace).kubeconfig, binary: shared.Binary}
	restricted.sees(3, "not looked at: ResourceQuotas", "not looked at: ClusterRunnerPolicies", "not looked at: whether a controller works")
	everywhere := exec.CommandContext(t.Context(), shared.Binary, "status", "--kubeconfig", restricted.kubeconfig, "-A")
	if out, _ := everywhere.Output(); everywhere.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), "RunnerPools in namespaces other than") {
		t.Errorf("with -A, exit code %d:\n%s", everywhere.ProcessState.ExitCode(), out)
	}

	w.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: 500})
	w.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 500})
	on.sees(1, "error GitHubUnavailable: GitHubConnection/status/acme, RunnerPool/status/crash, RunnerPool/status/linux")
	w.GitHub.ClearFaults()
	on.sees(0)

	heal := w.Node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Namespace: namespace, Labels: map[string]string{v1alpha1.PoolLabel: "crash"}})
	t.Cleanup(heal)
	id, err := w.GitHub.AddJob(githubsim.Job{Repository: namespace + "-org/app", Labels: []string{"crash"}, Duration: time.Millisecond})
	must(t, err)
	g.Write("pools.cue", strings.Replace(statusPools, "max: 3", `max: "three"`, 1))
	g.Push("A number that is none")
	broken := limitPolicy(namespace, "broken", 1)
	broken.Spec.Modules = map[string]string{"limits.rego": "package corral.scaling\n\nlimit contains {"}
	must(t, w.Client.Create(t.Context(), broken))
	on.sees(1, "error RunnersFailing: RunnerPool/status/crash", "warning PolicyInvalid: RunnerPolicy/status/broken, RunnerPool/status/crash, RunnerPool/status/linux",
		"warning BuildFailed: PoolSource/status/pools")
	heal()
	w.annotate(t, &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "crash"}}, v1alpha1.RetryAnnotation, "mended")
	must(t, w.Client.Delete(t.Context(), broken))
	g.Write("pools.cue", statusPools)
	g.sync(g.Push("A number again"))
	w.allDone(t, []string{id})
	on.sees(0)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"}}
	must(t, w.Client.Delete(t.Context(), secret))
	connection := &v1alpha1.GitHubConnection{ObjectMeta: secret.ObjectMeta}
	w.annotate(t, connection, "reconcile.fluxcd.io/requestedAt", "now") // otherwise it is reconciled once a minute
	on.sees(1, "error CredentialsMissing: GitHubConnection/status/acme")
	waitPool(t, key(namespace, "linux"), func(p *v1alpha1.RunnerPool) error {
		if causes, _ := recorder.Causes(p, v1alpha1.ReadyCondition); !strings.HasSuffix(causes, `UsesFormerCredentials connection="acme"`) {
			return fmt.Errorf("it continues with a previous token, and has %s", causes)
		}
		return nil
	})
	must(t, w.Client.Create(t.Context(), w.CredentialsSecret(namespace, "acme")))
	on.sees(0)

	must(t, c.Stop())
	on.plugin().sees(1, "critical NoLeader: Lease/status-lease/corral.corral.dev")
	w.start(t)
	on.sees(0)
	w.cleanUp(t, namespace)
}

// annotate sets an annotation of an object.
func (w *story) annotate(t *testing.T, object client.Object, name, value string) {
	t.Helper()
	must(t, w.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, value))))
}

// plugin returns corral as kubectl runs it, through a link.
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

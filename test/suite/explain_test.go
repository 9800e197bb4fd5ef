// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// asker is a ServiceAccount that may read Corral's objects, the pods and one ConfigMap of a namespace.
// docs/policies/explain.md requires these rights.
const asker = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: asker, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: asker, namespace: NAMESPACE}
rules:
- {apiGroups: [corral.dev], resources: ["*"], verbs: [get, list]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [linux-decisions], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: asker, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: asker}
subjects:
- {kind: ServiceAccount, name: asker, namespace: NAMESPACE}
`

// question runs the corral command with few rights.
type question struct {
	t          *testing.T
	kubeconfig string
}

func newQuestion(t *testing.T, namespace string) question {
	t.Helper()
	must(t, shared.Cluster.Apply(t.Context(), []byte(strings.ReplaceAll(asker, "NAMESPACE", namespace))))
	config, err := shared.Cluster.ServiceAccountConfig(t.Context(), namespace, "asker")
	must(t, err)
	q := question{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	must(t, localcluster.WriteKubeconfig(q.kubeconfig, config))
	return q
}

// ask runs `corral explain` and returns its output, its errors, and its exit code.
func (q question) ask(args ...string) (answer, complaint string, code int) {
	q.t.Helper()
	c := exec.CommandContext(q.t.Context(), shared.Binary, append([]string{"explain", "--kubeconfig", q.kubeconfig}, args...)...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr, c.Env = &stdout, &stderr, append(os.Environ(), "KUBECONFIG=/nowhere")
	err := c.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		q.t.Fatal(err)
	}
	return stdout.String(), stderr.String(), c.ProcessState.ExitCode()
}

// says checks that an answer contains texts.
func (q question) says(args []string, texts ...string) {
	q.t.Helper()
	answer, complaint, code := q.ask(args...)
	if code != 0 || complaint != "" {
		q.t.Errorf("%v: exit code %d: %s", args, code, complaint)
	}
	for _, word := range texts {
		if !strings.Contains(answer, word) {
			q.t.Errorf("%v: %q is not in:\n%s", args, word, answer)
		}
	}
}

// A user whose job waits can find out which pool and which rule are the reason, with permissions in only one namespace.
func TestExplainSaysWhyAJobWaits(t *testing.T) {
	namespace := "explain"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	must(t, w.Client.Create(t.Context(), limitPolicy(namespace, "limits", 1)))
	w.controller(t)
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme")))
	waitLimits(t, key(namespace, "linux"), 1)
	q := newQuestion(t, namespace)

	working, waiting := w.longJob(t, namespace, 9001), w.longJob(t, namespace, 9002)
	runner := busyRunner(t, namespace)
	waitPool(t, key(namespace, "linux"), func(p *v1alpha1.RunnerPool) error {
		if p.Status.GetJobs() != 1 {
			return fmt.Errorf("%d jobs", p.Status.GetJobs())
		}
		return nil
	})
	bound := "RunnerPolicy/explain/limits corral.scaling.limit (limits.rego:3)"
	q.says([]string{"pool/linux", "-n", namespace},
		"RunnerPool explain/linux", "10", "1 by "+bound+": for now", "spec.scale.max", "RunnerPolicy/explain/limits (", "the policies of the cluster: ")
	page := w.GitHub.ConfigURL(namespace+"-org") + "/app/actions/runs/"
	q.says([]string{"job", page + "9001", "-n", namespace}, "1 job", "explain/"+runner+" of RunnerPool explain/linux")
	q.says([]string{"job", page + "9002/job/2", "--labels", "linux", "-n", namespace},
		"RunnerPool explain/linux", "10", bound)
	q.says([]string{"runner/" + runner, "-n", namespace}, "Runner explain/"+runner+" of RunnerPool explain/linux", "Busy", "run 9001")
	historyIsKept(t, q, namespace)

	_, complaint, code := q.ask("pool/lunix", "-n", namespace)
	if want := "Error: there is no RunnerPool \"lunix\" in namespace explain; existing: linux\n"; code != 1 || complaint != want {
		t.Errorf("exit code %d: %s", code, complaint)
	}
	for _, id := range []string{working, waiting} {
		if !w.GitHub.CancelJob(id) {
			t.Errorf("job %s can't be cancelled", id)
		}
	}
	w.cleanUp(t, namespace)
}

// GitHub rejects old runner versions. A pool reports this two weeks in advance, with the remaining time.
func TestAnOldVersionOfTheRunnerIsTold(t *testing.T) {
	t.Parallel()
	const namespace = "version"
	published := time.Now().Add(-20 * 24 * time.Hour)
	w := newStoryOn(t, githubsim.Options{
		SessionExpiry: 3 * time.Second, RunnerVersion: "2.330.0",
		Releases: []githubsim.Release{{Version: "2.331.0", Published: published}, {Version: "2.330.0", Published: published.Add(-24 * time.Hour)}},
	}, "--watch-namespaces="+namespace, "--leader-elect=false")
	c := w.controller(t)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })))
	by := published.Add(30 * 24 * time.Hour).UTC()
	want := fmt.Sprintf(`RunnerVersionEnds version="2.330.0" day=%q latest="2.331.0"`, by.Format(time.DateOnly))
	waitPool(t, key(namespace, "linux"), func(p *v1alpha1.RunnerPool) error {
		if causes, _ := recorder.Causes(p, v1alpha1.RunnerVersionCondition); causes != want || !conditions.IsFalse(p, v1alpha1.RunnerVersionCondition) {
			return fmt.Errorf("the causes of RunnerVersion are %s", causes)
		}
		return nil
	})
	newQuestion(t, namespace).says([]string{"pool/linux", "-n", namespace}, "2.330.0", by.Format(time.RFC3339), "2.331.0")
	measures(t, c, fmt.Sprintf(`corral_pool_runner_update_by_timestamp_seconds{namespace="version",pool="linux",version="2.330.0"} %v`, float64(by.Unix())))
	w.cleanUp(t, namespace)
}

// measures fails the test unless the controller's metrics contain a line.
func measures(t *testing.T, c *world.Controller, line string) {
	t.Helper()
	answer, err := http.Get(c.MetricsURL)
	must(t, err)
	defer answer.Body.Close()
	measured, err := io.ReadAll(answer.Body)
	must(t, err)
	if !strings.Contains(string(measured), line+"\n") {
		t.Errorf("the metrics lack %s", line)
	}
}

// longJob adds a job that lasts until it is cancelled.
func (w *story) longJob(t *testing.T, namespace string, run int64) (id string) {
	t.Helper()
	id, err := w.GitHub.AddJob(githubsim.Job{Repository: namespace + "-org/app", Labels: []string{"linux"}, RunID: run, Duration: time.Hour})
	must(t, err)
	return id
}

// busyRunner waits for a runner whose status contains its job.
func busyRunner(t *testing.T, namespace string) (name string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		list := &v1alpha1.RunnerList{}
		if err := shared.Client.List(ctx, list); err != nil {
			return err
		}
		for _, r := range list.Items {
			if r.Namespace == namespace && r.Status.State == v1alpha1.RunnerBusy && r.Status.Job != nil {
				name = r.Name
				return nil
			}
		}
		return fmt.Errorf("no busy runner among %d", len(list.Items))
	})
	return name
}

// historyIsKept checks that decisions are recorded in the pool's ConfigMap, and that corral explain reads them
// from there.
func historyIsKept(t *testing.T, q question, namespace string) {
	t.Helper()
	pool, config := &v1alpha1.RunnerPool{}, &corev1.ConfigMap{}
	must(t, shared.Client.Get(t.Context(), key(namespace, "linux"), pool))
	must(t, shared.Client.Get(t.Context(), key(namespace, "linux-decisions"), config))
	entries, err := explain.ParseHistory(config.Data[explain.HistoryKey])
	must(t, err)
	if len(entries) == 0 || entries[0].Decision == nil || entries[0].Decision.Announced != 1 || !metav1.IsControlledBy(config, pool) {
		t.Fatalf("the history of %v is %+v", config.OwnerReferences, entries)
	}
	at := entries[0].Time.UTC().Format(time.RFC3339)
	answer, complaint, code := q.ask("pool/linux", "-n", namespace, "--at", at, "-o", "json")
	var past explain.PoolAnswer
	if err := json.Unmarshal([]byte(answer), &past); err != nil || code != 0 || !past.Past || past.Decision.Announced != 1 || past.Decision.ID == "" {
		t.Errorf("at %s: exit code %d, %v: %s%s", at, code, err, complaint, answer)
	}
	if _, complaint, code := q.ask("pool/linux", "-n", namespace, "--at", "240h"); code != 1 || !strings.Contains(complaint, "its history begins at") {
		t.Errorf("ten days ago: exit code %d: %s", code, complaint)
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/test/harness"
)

// source makes a PoolSource that looks at a repository when it is asked to.
func (s *scene) source(name, url string, change ...func(*v1alpha1.PoolSource)) *v1alpha1.PoolSource {
	s.Helper()
	source := &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       v1alpha1.PoolSourceSpec{Git: v1alpha1.GitSource{URL: url}, Interval: metav1.Duration{Duration: time.Hour}},
	}
	for _, c := range change {
		c(source)
	}
	s.create(source)
	return source
}

// declare is a definition of pools on the connection acme.
func declare(names ...string) string {
	var b strings.Builder
	b.WriteString("package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\n")
	for _, name := range names {
		fmt.Fprintf(&b, `pools: %s: spec: {
	connectionRef: name: "acme"
	labels: [%q]
	template: spec: containers: [{name: "runner", image: "runner:1"}]
}
`, name, name)
	}
	return b.String()
}

// vet runs `corral vet` on a repository's files. It returns what is said and the exit code.
func vet(t *testing.T, r *harness.Repository) (string, int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), w.Binary, "vet")
	c.Dir = r.Path("")
	out, err := c.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// refused shows that a definition is refused, in the same words by `corral vet` and by a PoolSource,
// and that the commit before it stays in force.
func (s *scene) refused(r *harness.Repository, name, text, complaint string) {
	s.Helper()
	good := r.Push("Before")
	source := s.source("pools", r.URL())
	s.ready(source)
	r.Write(name, text)
	bad := r.Push("Something bad")
	s.request(source)
	s.says(source, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.BuildFailedReason, Stalled: true,
		Message: complaint + "\nNothing of revision main@sha1:BAD was applied; main@sha1:GOOD stays in force",
	}, bad, "BAD", good, "GOOD")
	said, code := vet(s.T, r)
	if first, _, _ := strings.Cut(said, "\nError: "); first != complaint || code != 1 {
		s.Errorf("vet ended with %d and said:\n%s\nnot:\n%s", code, said, complaint)
	}
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// repository declares one good pool.
func repository(t *testing.T) *harness.Repository {
	t.Helper()
	r := harness.NewRepository(t)
	r.Write("pools.cue", declare("linux"))
	return r
}

func TestATypoInAField(t *testing.T) {
	s := newScene(t)
	s.refused(repository(t), "pools.cue", strings.Replace(declare("linux"), "labels", "lables", 1),
		"pools.cue:8:2: pools.linux.spec.lables: field not allowed; did you mean labels?")
}

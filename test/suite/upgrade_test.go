// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/githubsim"
)

// previousVersion contains the commit from whose controller one can upgrade, and to which one can downgrade. It is the last
// release; before the first one, it is a commit with the same API.
//
//go:embed testdata/previous-version
var previousVersion string

// buildPrevious builds the previous version of the corral command from the history of the repository.
func buildPrevious(t *testing.T) string {
	t.Helper()
	commit := strings.TrimSpace(previousVersion)
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("the history of this clone does not contain %s: git fetch --unshallow", commit)
	}
	dir, err := filepath.Abs("../..")
	must(t, err)
	source := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "archive", "--format=tar", "--output="+filepath.Join(source, "source.tar"), commit)
	archive.Dir = dir
	out, err := archive.CombinedOutput()
	if err != nil {
		t.Fatalf("git archive: %v\n%s", err, out)
	}
	binary := filepath.Join(t.TempDir(), "corral")
	for _, args := range [][]string{{"tar", "-xf", "source.tar"}, {"go", "build", "-ldflags", "-s -w -X main.version=previous", "-o", binary, "./cmd/corral"}} {
		c := exec.CommandContext(t.Context(), args[0], args[1:]...)
		c.Dir, c.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return binary
}

// While jobs run and arrive, the controller is upgraded as a Deployment does it, and later downgraded: a replica of the next
// version starts, and then the previous replica ends.
func TestUpgradeAndDowngradeLoseNoJob(t *testing.T) {
	const namespace = "upgrade"
	w := newStory(t, namespace)
	current, previous := w.Binary, buildPrevious(t)
	w.flags = slices.DeleteFunc(w.flags, func(flag string) bool { return flag == "--leader-elect=false" })
	w.elect(t, namespace+"-lease")
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	w.Binary = previous
	controller := w.start(t)
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme")))
	ids := w.addJobs(t, namespace+"-org", "linux", 20, 3*time.Second)
	for _, next := range []string{current, previous, current} {
		must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return w.GitHub.Report().Jobs[githubsim.JobRunning] > 0 }))
		w.Binary = next
		replica := w.start(t)
		ids = append(ids, w.addJobs(t, namespace+"-org", "linux", 10, 3*time.Second)...)
		must(t, controller.Stop())
		controller = replica
		ids = append(ids, w.addJobs(t, namespace+"-org", "linux", 10, 3*time.Second)...)
	}
	w.allDone(t, ids)
	for _, job := range w.GitHub.Jobs() {
		if job.Starts != 1 {
			t.Errorf("job %s started %d times", job.ID, job.Starts)
		}
	}
	w.cleanUp(t, namespace)
	must(t, controller.Stop())
}

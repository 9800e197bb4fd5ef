// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

func TestUseIsReadFromMetrics(t *testing.T) {
	tests := map[string]struct {
		text string
		want use
		err  string
	}{
		"series are summed": {
			text: `# HELP rest_client_requests_total Number of HTTP requests
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="a b",method="GET"} 12
rest_client_requests_total{code="201",host="a b",method="POST"} 30
rest_client_requests_totally_else 5
process_cpu_seconds_total 1.25
process_resident_memory_bytes 7.0131712e+07
`,
			want: use{KubeRequests: 42, CPUSeconds: 1.25, MemoryBytes: 70131712},
		},
		"nothing":      {},
		"not a number": {text: "process_cpu_seconds_total much\n", err: "reading metric process_cpu_seconds_total"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseUse(strings.NewReader(tc.text))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestErrorsOfALogAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	text := `{"level":"info","msg":"{\"level\":\"error\""}` + "\n" + `{"level":"error","msg":"x"}` + "\n" + `{"level":"error","msg":"y"}` + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countErrors(path); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := countErrors(path + "x"); err == nil {
		t.Error("a log that isn't there has no errors")
	}
}

func TestPoolsWithoutAWaitingJob(t *testing.T) {
	pools := []v1alpha1.RunnerPool{
		{ObjectMeta: metav1.ObjectMeta{Name: "full"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "busy"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "labelled"}, Spec: v1alpha1.RunnerPoolSpec{RunnerLabels: []string{"linux", "arm"}}},
	}
	jobs := []githubsim.JobTimeline{
		{Labels: []string{"full"}, State: githubsim.JobCompleted},
		{Labels: []string{"full"}, State: githubsim.JobQueued},
		{Labels: []string{"busy"}, State: githubsim.JobRunning},
		{Labels: []string{"linux"}, State: githubsim.JobAssigned},
	}
	want := [][]string{{"busy"}, {"linux", "arm"}}
	if diff := cmp.Diff(want, withoutWaitingJob(pools, jobs)); diff != "" {
		t.Error(diff)
	}
}

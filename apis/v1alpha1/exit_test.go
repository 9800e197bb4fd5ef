// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestWhatAnExitAddsToAReason(t *testing.T) {
	killed := v1alpha1.RunnerExit{Code: 137, Reason: "OOMKilled", Node: "n1", Taints: []string{"spot=gone:NoExecute"}}
	elsewhere := v1alpha1.RunnerExit{Code: 1, Reason: "Error", Taints: []string{"spot=gone:NoExecute"}, Message: "bye"}
	for reason, tc := range map[string]struct {
		exit v1alpha1.RunnerExit
		want string
	}{
		"job failed":                          {killed, "; OOMKilled, exit code 137 on node n1, tainted spot=gone:NoExecute"},
		"OOMKilled (exit code 137)":           {killed, " on node n1, tainted spot=gone:NoExecute"},
		"OOMKilled (exit code 137), in a job": {killed, "; it ended on node n1, tainted spot=gone:NoExecute"},
		"Completed (exit code 0)":             {v1alpha1.RunnerExit{Node: "n1"}, " on node n1"},
		"Error (exit code 1)":                 {elsewhere, " on a node tainted spot=gone:NoExecute; last output: bye"},
		"Evicted: The node was low on memory": {v1alpha1.RunnerExit{Code: 137, Reason: "Evicted", Node: "n1"}, "; exit code 137 on node n1"},
		"Terminated: the node shuts down":     {v1alpha1.RunnerExit{Reason: "Terminated", Node: "n1"}, "; on node n1"},
		"its pod is being removed":            {v1alpha1.RunnerExit{Reason: "Deleted", Node: "n1"}, "; Deleted on node n1"},
		"ended":                               {elsewhere, "; exit code 1 on a node tainted spot=gone:NoExecute; last output: bye"},
	} {
		if got := tc.exit.After(reason); got != tc.want {
			t.Errorf("%s%s, want %q", reason, got, tc.want)
		}
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// A job is on a pod if the mark names the pod's own runner and registration; a template can't know them.
func TestAMarkCountsOnItsOwnRunnersPod(t *testing.T) {
	job := &v1alpha1.JobReference{ID: "j", Repository: "acme/app"}
	marked := func(uid types.UID, id int64) string {
		text, err := poolstatus.Mark(job, uid, id)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, tc := range map[string]struct {
		mark string
		want bool
	}{
		"its own":              {marked("u1", 7), true},
		"of another runner":    {marked("u2", 7), false},
		"of another's id":      {marked("u1", 8), false},
		"as a template has it": {`{"id":"j"}`, false},
		"of nobody":            {marked("", 0), false},
		"of no job":            {`{"runnerUID":"u1","runnerID":7}`, false},
		"none":                 {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				v1alpha1.RunnerUIDAnnotation: "u1", v1alpha1.RunnerIDAnnotation: "7", v1alpha1.JobAnnotation: tc.mark,
			}}}
			if got := poolstatus.JobOf(pod); (got != nil) != tc.want || got != nil && *got != *job {
				t.Errorf("it has job %+v", got)
			}
		})
	}
}

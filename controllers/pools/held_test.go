// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
)

func TestDescribeHeld(t *testing.T) {
	var held []*v1alpha1.Runner
	for _, finalizers := range [][]string{{"example.com/b"}, {"example.com/a", "example.com/b"}} {
		held = append(held, &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Finalizers: finalizers}})
	}
	const want = "finalizer example.com/a keeps 1 Runner, finalizer example.com/b keeps 2 Runners; " +
		"they have ended and do not count; the controller that added the finalizer must remove it"
	if got := describeHeld(held); got != want {
		t.Errorf("got %q", got)
	}
}

// The more names are taken, the more numbers are left out.
func TestAvoid(t *testing.T) {
	e := &expectations{last: 3}
	taken := make([]runners.Failure, 5)
	for i := range taken {
		taken[i].NameTaken = i != 2
	}
	e.avoid(taken)
	if got := e.next(); got != 3+0+1+2+4+1 {
		t.Errorf("the next number is %d", got)
	}
	for range 100 {
		e.avoid(taken)
	}
	if e.leap != maxLeap {
		t.Errorf("%d numbers are left out", e.leap)
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestProfilesAreOffUnlessAPortOfLocalhostIsGiven(t *testing.T) {
	for port, want := range map[uint16]string{0: "", 6060: "127.0.0.1:6060"} {
		if got := (ManagerOptions{ProfilesPort: port}).profilesAddress(); got != want {
			t.Errorf("port %d: %q", port, got)
		}
	}
}

// A ControllerRevision of any size, with a pool's label set by a user, takes little memory.
func TestALargeRevisionIsNotCached(t *testing.T) {
	for size, want := range map[int]int{100: 100, 1 << 20: 0} {
		made := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"example.com/x": strings.Repeat("x", 1000)}},
			Data:       runtime.RawExtension{Raw: make([]byte, size)},
		}
		got, err := trimRevision(made)
		if err != nil || len(got.(*appsv1.ControllerRevision).Data.Raw) != want || len(made.Annotations) != 0 {
			t.Errorf("of %d bytes there are left %+v, %v", size, got, err)
		}
	}
}

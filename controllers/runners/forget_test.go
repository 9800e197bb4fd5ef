// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// A tenant may create and delete pools for ever, each with a new name.
func TestNothingIsRememberedOfADeletedPool(t *testing.T) {
	m, key := NewMemory(), types.NamespacedName{Namespace: "ci", Name: "preview-1"}
	m.setStoredSecret(key)
	Claims{Memory: m}.Forget(key)
	if len(m.stored) > 0 {
		t.Errorf("%v", m.stored)
	}
}

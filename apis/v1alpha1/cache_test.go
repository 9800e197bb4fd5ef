// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

func TestTheSizeOfACacheIsReadAsTheSchemaTakesIt(t *testing.T) {
	for size, want := range map[string]int64{"1Mi": 1 << 20, "50Gi": 50 << 30, "999999Ti": 999999 << 40, "0Gi": -1, "1": -1, "1e999999": -1, "1.5Gi": -1, "50G": -1, "1000000Gi": -1, "": -1} {
		got, err := (&CacheSpec{Size: size}).Bytes()
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v", size, got, err)
		}
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestRunnerNamesFitEverywhere(t *testing.T) {
	for _, pool := range []string{"linux", strings.Repeat("x", 253), strings.Repeat("a.", 100), strings.Repeat("x", 37) + "-.x"} {
		begin := NameStem(pool, "p1")
		name := begin + strconv.Itoa(1<<40)
		if bad := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...); len(bad) > 0 || len(name) > maxRunnerName {
			t.Errorf("%q: %v", name, bad)
		}
		if n := NumberOf(begin, name); n != 1<<40 {
			t.Errorf("%q has number %d", name, n)
		}
	}
	for _, foreign := range []string{"linux-x", "linux-1", NameStem("linux", "p2") + "7", NameStem("linux", "p1") + "-7"} {
		if n := NumberOf(NameStem("linux", "p1"), foreign); n != 0 {
			t.Errorf("%q has number %d", foreign, n)
		}
	}
}

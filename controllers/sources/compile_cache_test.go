// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"fmt"
	"strings"
	"testing"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
)

// sized returns a result of about kib KiB.
func sized(kib int) compile.Result {
	return compile.Result{Diagnostics: []v1alpha1.Diagnostic{{Message: strings.Repeat("x", (kib-1)<<10)}}}
}

func TestNobodysRevisionsTakeThePlaceOfOthers(t *testing.T) {
	s := newCompileCache(100 << 10)
	victim := cacheKey{source: "victim", revision: "1"}
	s.add("quiet", victim, sized(8))
	for i := range 500 {
		s.add("greedy", cacheKey{source: "attacker", revision: fmt.Sprint(i)}, sized(10))
	}
	if _, ok := s.get("quiet", victim); !ok {
		t.Error("the quiet namespace's revision is gone")
	}
	if _, ok := s.get("greedy", cacheKey{source: "attacker", revision: "499"}); !ok {
		t.Error("the newest of the greedy one is gone, though there is room")
	}
	if s.kept > s.most {
		t.Errorf("%d bytes kept; want at most %d", s.kept, s.most)
	}
	s.add("greedy", cacheKey{source: "attacker", revision: "large"}, sized(50))
	if _, ok := s.get("greedy", cacheKey{source: "attacker", revision: "large"}); ok {
		t.Error("one that takes half of the room is kept")
	}
	if _, ok := s.get("greedy", victim); ok {
		t.Error("a namespace is given another's")
	}
}

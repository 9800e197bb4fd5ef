// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// Definitions choose how much memory a result takes once it is decoded: an object with one field has 8 bytes of JSON, and takes more than
// 300 in a map.
func TestKeptRevisionsTakeTheMemoryThatTheyCount(t *testing.T) {
	c := newCompileCache(CacheMemory)
	memory := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := memory()
	for i := range 20 {
		var list []any
		for range 10_000 {
			list = append(list, map[string]any{"a": int64(1)})
		}
		object := unstructured.Unstructured{Object: map[string]any{"apiVersion": "corral.dev/v1alpha1", "kind": "RunnerPolicy", "spec": map[string]any{"data": list}}}
		c.add("greedy", cacheKey{revision: fmt.Sprint(i)}, compile.Result{Objects: []compile.Object{{Manifest: object}}})
	}
	if took := memory() - before; took > 2*c.kept {
		t.Errorf("results that count for %d bytes take %d", c.kept, took)
	}
	if result, ok := c.get("greedy", cacheKey{revision: "19"}); !ok || len(result.Objects[0].Manifest.Object["spec"].(map[string]any)["data"].([]any)) != 10_000 {
		t.Error("a result is not what was added")
	}
}

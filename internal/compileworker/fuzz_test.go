// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compileworker

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/corral-dev/corral/internal/compile"
)

// FuzzWorker feeds any bytes as definitions to children with small limits: whatever they are, there is
// a result within the limits, fit to be shown, and this process lives on. What explodes is
// welcome here.
func FuzzWorker(f *testing.F) {
	const same = "package pools\n"
	for _, seed := range []string{
		pools, growing(), endless, "", same, same + "x: [...] & [for a in x for b in x {a+b}]",
		same + "import \"strings\"\nx: strings.Repeat(\"x\", 1000000)+x", same + "import \"list\"\nx: list.Range(0, 5000000, 1)",
		same + "x: {a: 1} | {b: 2} | {c: 3}\ny: x & x & x & x & x & x", same + "#a: {b: #a, c: #a}\nx: #a",
	} {
		f.Add([]byte(seed), []byte(pools), ".")
		f.Add([]byte(same), []byte(seed), "team")
	}
	limits := Limits{Memory: 192 << 20, CPU: time.Second, Wall: 5 * time.Second, OutputBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, root, team []byte, path string) {
		w, err := New(1, limits)
		if err != nil {
			t.Fatal(err)
		}
		result, err := w.Compile(t.Context(), compile.Files{"root.cue": root, "team/team.cue": team}, compile.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(result); err != nil || len(text) > 2*limits.OutputBytes {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		for _, d := range result.Diagnostics {
			if text := compile.Format(d); len(text) > 4<<10 || !utf8.ValidString(text) || d.Message == "" {
				t.Errorf("not fit to be shown: %q", text)
			}
		}
	})
}

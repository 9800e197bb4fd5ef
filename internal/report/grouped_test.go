// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheSameOfManySubjectsIsToldOnce(t *testing.T) {
	denied := func(pool string, line int, path string) Finding {
		return Finding{
			Level: Error, Rule: "images", Subject: "pool " + pool, Message: "not allowed", Path: "pools." + pool + ".spec." + path,
			Place: Place{File: "pools.cue", Line: line},
		}
	}
	for name, tc := range map[string]struct {
		findings []Finding
		want     []string
	}{
		"in one place":          {[]Finding{denied("b", 7, "x"), denied("a", 7, "x")}, []string{"pool b:7 not allowed (2 pools: a, b)"}},
		"of few, in their own":  {[]Finding{denied("a", 1, "x"), denied("b", 2, "x")}, []string{"pool a:1 not allowed", "pool b:2 not allowed"}},
		"of many, in their own": {[]Finding{denied("a", 1, "x"), denied("b", 2, "x"), denied("c", 3, "x"), denied("d", 4, "x")}, []string{"pool a:1 not allowed (4 pools: a, b, c, and 1 more)"}},
		"of other fields":       {[]Finding{denied("a", 7, "x"), denied("b", 7, "y")}, []string{"pool a:7 not allowed", "pool b:7 not allowed"}},
		"of nobody":             {[]Finding{{Message: "m"}, {Message: "m"}}, []string{":0 m", ":0 m"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range Grouped(tc.findings) {
				got = append(got, fmt.Sprintf("%s:%d %s", f.Subject, f.Place.Line, f.Message))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

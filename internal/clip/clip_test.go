// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package clip

import "testing"

func TestTextsAreClippedBetweenCharacters(t *testing.T) {
	for name, tc := range map[string]struct {
		clip func(string, int) string
		text string
		most int
		want string
	}{
		"bytes that fit":            {Bytes, "grün", 5, "grün"},
		"bytes that don't":          {Bytes, "grünes", 6, "gr…"},
		"a character at the cut":    {Bytes, "abcü-ü", 7, "abc…"},
		"only dots":                 {Bytes, "grünes", 3, "…"},
		"characters that fit":       {Runes, "grün", 4, "grün"},
		"characters that don't":     {Runes, "grünes", 4, "grü…"},
		"no room for any character": {Runes, "grün", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.clip(tc.text, tc.most); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

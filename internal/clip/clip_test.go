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

func TestWhatActsOnATerminalIsEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"grün, 東京 \xff":            "grün, 東京 \xff",
		"a\x1b[31m\n\tb\u009b\x7f": "a\\u001b[31m\n\\u0009b\\u009b\\u007f",
		"a\u202eb":                 "a\\u202eb",
	} {
		if got := Visible(text, "\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

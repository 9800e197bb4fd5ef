// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"strings"
	"testing"
)

// The mark ^ is where the mistake is. The parser's error is in the last line.
func TestBracketMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"a: ^{\n\tb: 1\n":                   "the { here is never closed",
		"a: {\n\tb: ^[\n\t\t1,\n}\n":        "the [ here is never closed",
		"a: {\n\tb: ^{\n\tc: 1\n}\nd: {}\n": "the { here is never closed",
		"a: [^{b: 1]\n":                     "the { here is never closed",
		"a: {b: 1}\n^}\n":                   "this } closes nothing: remove it",
		"a: {b: 1^]\n":                      "this ] closes the { of 1:4: write }",
		"a: {\n\tb: ^{\n\t\tc: {}\n\t}]\n":  "the { here is closed by }]: write [{ … }]",
		"a: \"^\\(b\"\n":                    `the \( here is never closed`,
		"a: \"x\\(b) ^\\(c[0]\"\n":          `the \( here is never closed`,
		"a: {b: ^\"c, d: \"e\"}\n":          "the string here is never closed: close each string with a double quote on the same line",
		"a: ^\"b\nc\"\n":                    "the string here is never closed: close each string with a double quote on the same line",
		"// } ] )\na: ^{ // }\n\tb: \"}\"\n\tc: '}'\n\td: #\"\\}\"#\n": "the { here is never closed",
		"d: \"\"\"\n\tit's a \"quoted\" {\n\t\"\"\"\na: ^{\n":          "the { here is never closed",
		"d: '''\n\t{[(\n\t'''\r\na: ^{\r\n\tb: 1\r\n":                  "the { here is never closed",
		"a: {b: [1, (2)], c: \"\\(d[\"e\"] + \"\\(f)\")\"} g h\n":      "",
	} {
		source := []byte(strings.Replace(text, "^", "", 1))
		lines := strings.Count(text, "\n")
		if strings.HasPrefix(want, "the {") || strings.HasPrefix(want, "the [") {
			lines++ // the end of the file
		}
		offset, message := bracketMistake(source, lines)
		if message != want || want != "" && offset != strings.Index(text, "^") {
			t.Errorf("%q: got %d %q", text, offset, message)
		}
	}
	if _, message := bracketMistake(bytes.Repeat([]byte("{},"), 300_000), 1); message != "" {
		t.Error(message)
	}
}

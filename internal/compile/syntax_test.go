// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"
)

// Brackets in strings and comments do not count.
func TestTheBracketThatIsNotClosed(t *testing.T) {
	for _, text := range []string{
		"package p\na: ^{\n\tb: 1\n",
		"package p\na: {\n\tb: ^[\n\t\t1,\n}\nc: {}\n",
		"package p\n// } ] )\na: ^{ // }\n\tb: \"}\"\n\tc: '}'\n\td: #\"\\}\"#\n",
		"package p\nd: \"\"\"\n\tit's a \"quoted\" {\n\t\"\"\"\na: ^{\n\tb: 1\n",
		"package p\nd: '''\n\t{[(\n\t'''\na: ^{\r\n\tb: 1\r\n",
	} {
		want := strings.Index(text, "^")
		source := strings.Replace(text, "^", "", 1)
		if got, message := bracketMistake([]byte(source), strings.Count(source, "\n")); got != want || message == "" {
			t.Errorf("%q: got %d %q, want %d", text, got, message, want)
		}
	}
	if _, message := bracketMistake([]byte("a: {b: [1, (2)]}\n"), 1); message != "" {
		t.Errorf("got %q in a file without a mistake", message)
	}
}

// A generated file may have all its text in one line.
func TestAMistakeInALongLine(t *testing.T) {
	for _, text := range []string{"{},", `"a",`} {
		files := repository("package pools\n\n_x: [" + strings.Repeat(text, 700_000/len(text)) + "] )")
		if len(Compile(files, Options{}).Diagnostics) == 0 {
			t.Errorf("no diagnostic for many %s", text)
		}
	}
}

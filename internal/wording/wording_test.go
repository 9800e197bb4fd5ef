// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"strings"
	"testing"
	"time"
)

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	for name, tc := range map[string]struct {
		cut  func(string, int) string
		text string
		most int
		want string
	}{
		"bytes that fit":            {Truncate, "grün", 5, "grün"},
		"bytes that don't":          {Truncate, "grünes", 6, "gr…"},
		"a character at the cut":    {Truncate, "abcü-ü", 7, "abc…"},
		"the end that fits":         {TruncateStart, "grün", 5, "grün"},
		"the end that doesn't":      {TruncateStart, "grünes", 6, "…nes"},
		"a character at its cut":    {TruncateStart, "abcüde", 6, "…de"},
		"only dots":                 {Truncate, "grünes", 3, "…"},
		"characters that fit":       {TruncateRunes, "grün", 4, "grün"},
		"characters that don't":     {TruncateRunes, "grünes", 4, "grü…"},
		"no room for any character": {TruncateRunes, "grün", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.cut(tc.text, tc.most); got != tc.want {
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
		if got := Escape(text, "\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNumbersAgreeWithTheirNouns(t *testing.T) {
	for want, got := range map[string]string{
		"1 pool": Count(1, "pool"), "0 pools": Count(int32(0), "pool"), "1 policy": Count(1, "policy"), "2 policies": Count(2, "policy"),
		"7": Max(7), "unbounded": Max(2147483647),
		"deleted at 1970-01-01T00:00:01Z; 2 runners finish their jobs":              Leaving(time.Unix(1, 0), 2, 0),
		"deleted at 1970-01-01T00:00:01Z; 1 runner finishes its job, 3 more to end": Leaving(time.Unix(1, 0), 1, 3),
		"deleted at 1970-01-01T00:00:01Z; 1 runner to end":                          Leaving(time.Unix(1, 0), 0, 1),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhatLooksLikeCredentialsIsReplaced(t *testing.T) {
	long := strings.Repeat("aB3/", 25)
	for text, want := range map[string]string{
		"curl: (22) 403 of https://api.github.com/orgs/acme: high_load, basic authentication": "curl: (22) 403 of https://api.github.com/orgs/acme: high_load, basic authentication",
		"ghs_16C7e42F292c6912E7, github_pat_11AA_b, ghp_x.y":                                  "***, ***, ***",
		"\x1b[31mghs_16C7e42F\x1b[0m":                                                         "\x1b[31m***\x1b[0m",
		"+ ./run.sh --jitconfig eyIucnVubmVyIjoiZXlK+/aQ== --once":                            "+ ./run.sh --jitconfig *** --once",
		"of a JWT eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2ln-_: expired":                       "of a JWT ***: expired",
		"the rest of one, " + long + "==.":                                                    "the rest of one, ***.",
		"image@sha256:" + strings.Repeat("0a", 32):                                            "image@sha256:" + strings.Repeat("0a", 32),
		"HTTPS_PROXY=http://corral:hunter2@proxy:3128 NO_PROXY=a@b":                           "HTTPS_PROXY=http://***@proxy:3128 NO_PROXY=a@b",
		"DB_PASSWORD=hunter2 GITHUB_TOKEN='abcdef' client-secret=\"x1y2z3\"":                  "DB_PASSWORD=*** GITHUB_TOKEN=*** client-secret=***",
		`{"access_token": "0123456789", "expires": 1}`:                                        `{"access_token": ***, "expires": 1}`,
		"authorization: Bearer 0123456789abcdef; unexpected token: word":                      "authorization: Bearer ***; unexpected token: ***",
		`{"log":"\nghp_0123456789\n"} a%3Dghs_0123456789`:                                     `{"log":"\n***\n"} a%3D***`,
		"Authorization: Basic dTpwdw==, passwd=ab,cd;ef":                                      "Authorization: Basic ***, passwd=***",
		`PASSWORD="hunter two" {"password":"ab\"cd"} --token AABF --url x`:                    `PASSWORD=*** {"password":***} --token *** --url x`,
		`parse "http://user:pa/ss@proxy:3128": bad`:                                           `parse "http://***@proxy:3128": bad`,
		"https://0123456789abcdef01234567@git.example/x":                                      "https://***@git.example/x",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nnext":          "***\nnext",
		"tokens=128 used, tokenizer=fast, docker://alpine@sha256:" + strings.Repeat("0a", 32): "tokens=128 used, tokenizer=fast, docker://alpine@sha256:" + strings.Repeat("0a", 32),
		"the end of a JWT " + strings.Repeat("aB3_-", 24):                                     "the end of a JWT ***",
		"keyIdentifier of git@github.com:acme/app.git":                                        "keyIdentifier of git@github.com:acme/app.git",
	} {
		if got := Redact(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Letters in the wrong order are the most likely mistake.
func TestSuggestionForAName(t *testing.T) {
	for given, want := range map[string]string{
		"mni": "; did you mean min?",
		"mx":  "; did you mean max?",
		"MAX": "; did you mean max?",
		"cap": "; did you mean max?",
		"all": "; allowed here: idle, max, min",
	} {
		if got := Suggestion(given, []string{"idle", "max", "min"}); got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
	if got := Suggestion("x", nil); got != "" {
		t.Error(got)
	}
}

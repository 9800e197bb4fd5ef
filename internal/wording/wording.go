// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package wording makes texts fit for their place: short enough, with dots for what is left out, without what acts on a terminal or is a
// credential, and with numbers that agree with their nouns.
package wording

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Clock is the layout of a time of day, in UTC, as package time has layouts.
const Clock = "15:04:05Z"

const dots = "…"

// Truncate returns a text of at most so many bytes, 3 or more. No character is cut in two.
func Truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// TruncateStart returns the end of a text, of at most so many bytes, 3 or more.
func TruncateStart(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return dots + strings.ToValidUTF8(text[len(text)-most+len(dots):], "")
}

// TruncateRunes returns a text of at most so many characters; none if most is not above 0.
func TruncateRunes(text string, most int) string {
	switch {
	case utf8.RuneCountInString(text) <= most:
		return text
	case most <= 0:
		return ""
	}
	return string([]rune(text)[:most-1]) + dots
}

// Texts visits the texts of a value, given by its pointer, with the field that each is in. Fields that aren't exported and maps are left out.
func Texts(value any, visit func(text reflect.Value, of reflect.StructField)) {
	visitTexts(reflect.ValueOf(value).Elem(), reflect.StructField{}, visit)
}

func visitTexts(v reflect.Value, of reflect.StructField, visit func(text reflect.Value, of reflect.StructField)) {
	switch kind := v.Kind(); {
	case !v.CanSet():
	case kind == reflect.String:
		visit(v, of)
	case kind == reflect.Pointer && !v.IsNil():
		visitTexts(v.Elem(), of, visit)
	case kind == reflect.Slice:
		for i := range v.Len() {
			visitTexts(v.Index(i), of, visit)
		}
	case kind == reflect.Struct:
		for i := range v.NumField() {
			visitTexts(v.Field(i), v.Type().Field(i), visit)
		}
	}
}

// FirstLine returns a text up to its first line feed.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// Escape returns a text with those characters escaped, as \u001b, that act on a terminal or turn the direction of reading, but for the
// ones to keep.
func Escape(text, keep string) string {
	acts := func(r rune) bool {
		return (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !strings.ContainsRune(keep, r)
	}
	if strings.IndexFunc(text, acts) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if acts(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// workflowCommand is what GitHub's runner takes for a command at the beginning of a line: it passes over all that
// Unicode takes for spaces.
var workflowCommand = regexp.MustCompile(`(?m)^([ \t\v\f\r\x{85}\p{Z}]*):(:)`)

// EscapeCommands returns a text of which no line begins with a command to GitHub's runner.
func EscapeCommands(text string) string { return workflowCommand.ReplaceAllString(text, `$1\u003a$2`) }

// credentials are expressions of what looks like one, each with parts, in lower case, one of which each of them has: expressions are slow, and most texts
// have none. Groups are kept.
var credentials = []struct {
	of    *regexp.Regexp
	parts []string
}{
	{regexp.MustCompile(`()(?:gh[oprsu]_|github_pat_)[\w.-]+`), []string{"gh"}},
	{regexp.MustCompile(`()ey[IJ][\w.+/=-]{16,}`), []string{"ey"}}, // what begins as JSON does, in base64: JWTs and JIT configurations
	{regexp.MustCompile(`(?i)(--[\w-]*(?:passw(?:or)?d|secret|token)\s+|(?:passw(?:or)?d|secret|token)["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']+)`),
		[]string{"passw", "secret", "token"}},
	{regexp.MustCompile(`(?i)(authorization["']?\s*[:=]\s*["']?(?:\w+\s+)?)[^\s"',;]+`), []string{"authorization"}},
	{regexp.MustCompile(`(?i)(\bbearer\s+)[\w.+/=~-]{8,}`), []string{"bearer"}},
	{regexp.MustCompile(`(?i)(\bbasic\s+)[\w+/=-]{16,}`), []string{"basic"}},
	{regexp.MustCompile(`(://)(?:[^\s"'/@:]*:[^\s"'@]*(?:@[^\s"'@/]*)*|[^\s"'/@:?#]{20,})(@)`), []string{"://"}},
	{regexp.MustCompile(`()(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), []string{"private key"}},
}

// longBase64 is a run of characters of base64, of which only long ones are masked.
var longBase64 = regexp.MustCompile(`[\w+/-]+=*`)

// maxBase64 is the length from which on base64 is taken for a credential.
const maxBase64 = 100

// Redact returns a text with *** for what looks like credentials.
func Redact(text string) string {
	lower := strings.ToLower(text)
	for _, c := range credentials {
		if slices.ContainsFunc(c.parts, func(part string) bool { return strings.Contains(lower, part) }) {
			text = c.of.ReplaceAllString(text, "$1***$2")
		}
	}
	if len(text) < maxBase64 {
		return text
	}
	return longBase64.ReplaceAllStringFunc(text, func(run string) string {
		if len(run) < maxBase64 {
			return run
		}
		return "***"
	})
}

// Count writes how many there are of a noun, as "1 pool", "2 pools" and "2 policies".
func Count[N int | int32](n N, noun string) string {
	if stem, ok := strings.CutSuffix(noun, "cy"); ok && n != 1 {
		return fmt.Sprintf("%d %scies", n, stem)
	}
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Max writes the most runners or jobs that there may be; 2147483647 stands for no limit.
func Max(n int32) string {
	if n == math.MaxInt32 {
		return "unbounded"
	}
	return strconv.Itoa(int(n))
}

// Leaving says what is left of a pool that was deleted at a time: runners that finish their jobs, and others that end.
func Leaving(deleted time.Time, working, ending int) string {
	text := "deleted at " + deleted.UTC().Format(time.RFC3339)
	if working == 1 {
		text += "; 1 runner finishes its job"
	} else if working > 1 {
		text += fmt.Sprintf("; %d runners finish their jobs", working)
	}
	switch {
	case ending > 0 && working > 0:
		text += fmt.Sprintf(", %d more to end", ending)
	case ending > 0:
		text += fmt.Sprintf("; %s to end", Count(ending, "runner"))
	}
	return text
}

// Qualified names an object, with its namespace if it has one.
func Qualified(namespace, name string) string { return strings.TrimPrefix(namespace+"/"+name, "/") }

// List names at most so many of names, and counts the others: "a, b, and 3 more".
func List(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if rest := len(names) - most; rest > 0 {
		text += fmt.Sprintf(", and %d more", rest)
	}
	return text
}

// Lines writes the first of a list, a line each, and counts the others.
func Lines[T any](list []T, most int, text func(T) string) string {
	var lines []string
	for _, one := range list[:min(len(list), most)] {
		lines = append(lines, text(one))
	}
	if rest := len(list) - len(lines); rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(lines, "\n")
}

// Closest returns the other name that resembles a name the most, with at most so many letters of another kind, in any case; or "".
func Closest(name string, others []string, most int) string {
	best := ""
	for _, other := range others {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(other)); d <= most && other != name {
			best, most = other, d-1
		}
	}
	return best
}

// Refusal says what an API server would refuse, without the field.
func Refusal(r *field.Error) string {
	detail := strings.TrimPrefix(r.Detail, r.Field+" in body ") // as the library for schemas has it
	if strings.HasPrefix(detail, "should have at ") {
		return detail
	}
	switch r.Type {
	case field.ErrorTypeRequired:
		return cmp.Or(detail, "must be set")
	case field.ErrorTypeDuplicate:
		if keys, ok := r.BadValue.(map[string]any); ok {
			return fmt.Sprintf("%s is there twice", strings.Trim(fmt.Sprint(slices.Collect(maps.Values(keys))), "[]"))
		}
		return fmt.Sprintf("%v is there twice", r.BadValue)
	}
	value := reflect.Indirect(reflect.ValueOf(r.BadValue))
	written := fmt.Sprint(value)
	switch {
	case value.Kind() == reflect.String && value.Len() > 0:
		written = strconv.Quote(value.String())
	case !value.CanInt() && !value.CanFloat() && value.Kind() != reflect.Bool:
		return detail
	}
	if strings.Contains(detail, "(octal)") && !strings.ContainsAny(written, "-89") {
		detail += "; did you mean 0o" + written + "?"
	}
	if r.Type == field.ErrorTypeNotFound {
		return cmp.Or(detail, written+" was not found")
	}
	return fmt.Sprintf("invalid value %s: %s", written, detail)
}

// arcFields are Corral's fields for those of actions-runner-controller.
var arcFields = map[string]string{
	"minRunners": "scale.idle", "maxRunners": "scale.max", "minReplicas": "scale.min", "maxReplicas": "scale.max", "replicas": "scale.min and scale.max",
	"runnerScaleSetName": "scaleSetName", "scaleSetLabels": "runnerLabels", "runsOn": "runnerLabels", "labels": "runnerLabels", "group": "runnerGroup",
	"workVolumeClaimTemplate": "containerMode.kubernetes.workVolumeClaim", "kubernetesModeWorkVolumeClaim": "containerMode.kubernetes.workVolumeClaim",
	"workDir": "workFolder", "scheduledOverrides": "scale.schedules", "dockerdWithinRunnerContainer": "containerMode",
	"githubConfigUrl": "url of the GitHubConnection that connectionRef names", "githubConfigSecret": "secretRef of the GitHubConnection that connectionRef names",
	"organization": "url of the GitHubConnection that connectionRef names", "repository": "url of the GitHubConnection that connectionRef names",
	"enterprise": "url of the GitHubConnection that connectionRef names", "proxy": "proxy of the GitHubConnection that connectionRef names",
	"githubServerTLS": "ca of the GitHubConnection that connectionRef names",
}

// FromARC names Corral's field for a field of a spec of actions-runner-controller, given by its path; empty for others.
func FromARC(path string) string {
	name := strings.TrimPrefix(path, "spec.")
	if own := arcFields[name]; own != "" {
		return fmt.Sprintf("; ARC's %s is Corral's %s", name, own)
	}
	return ""
}

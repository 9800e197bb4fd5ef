// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package wording formats texts for their destination. It shortens texts, masks credentials, replaces control characters,
// and inflects nouns.
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

// Clock is the layout of a time of day in UTC, for package time.
const Clock = "15:04:05Z"

const dots = "…"

// Truncate shortens a text to at most the given number of bytes, which must be 3 or more. It does not cut a character in
// two, and marks the cut with ….
func Truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// TruncateStart is like Truncate, but removes the start of a text instead of its end.
func TruncateStart(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return dots + strings.ToValidUTF8(text[len(text)-most+len(dots):], "")
}

// TruncateRunes shortens a text to at most the given number of characters, and marks the cut with ….
func TruncateRunes(text string, most int) string {
	switch {
	case utf8.RuneCountInString(text) <= most:
		return text
	case most <= 0:
		return ""
	}
	return string([]rune(text)[:most-1]) + dots
}

// Texts calls visit for each string in a value, together with the struct field that contains it. The argument is a pointer
// to the value. Texts skips unexported fields and maps.
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

// Escape replaces control characters, and characters that change the direction of text, by escapes such as \u001b. It does
// not replace the characters in keep.
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

// workflowCommand matches the beginning of a line that GitHub's runner treats as a command. The runner ignores leading
// characters that Unicode classifies as spaces.
var workflowCommand = regexp.MustCompile(`(?m)^([ \t\v\f\r\x{85}\p{Z}]*):(:)`)

// EscapeCommands escapes the beginning of lines that GitHub's runner would treat as commands.
func EscapeCommands(text string) string { return workflowCommand.ReplaceAllString(text, `$1\u003a$2`) }

// credentials are patterns for credentials. Because matching is slow and most texts contain no credential, Redact applies a
// pattern only if the text, in lower case, contains one of the parts. The text that the two groups of a pattern match is not
// masked.
var credentials = []struct {
	of    *regexp.Regexp
	parts []string
}{
	{regexp.MustCompile(`()(?:gh[oprsu]_|github_pat_)[\w.-]+`), []string{"gh"}},
	{regexp.MustCompile(`()ey[IJ][\w.+/=-]{16,}`), []string{"ey"}}, // the base64 encoding of a JSON object, as in JWTs and JIT configurations
	{regexp.MustCompile(`(?i)(--[\w-]*(?:passw(?:or)?d|secret|token)\s+|(?:passw(?:or)?d|secret|token)["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']+)`),
		[]string{"passw", "secret", "token"}},
	{regexp.MustCompile(`(?i)(authorization["']?\s*[:=]\s*["']?(?:\w+\s+)?)[^\s"',;]+`), []string{"authorization"}},
	{regexp.MustCompile(`(?i)(\bbearer\s+)[\w.+/=~-]{8,}`), []string{"bearer"}},
	{regexp.MustCompile(`(?i)(\bbasic\s+)[\w+/=-]{16,}`), []string{"basic"}},
	{regexp.MustCompile(`(://)(?:[^\s"'/@:]*:[^\s"'@]*(?:@[^\s"'@/]*)*|[^\s"'/@:?#]{20,})(@)`), []string{"://"}},
	{regexp.MustCompile(`()(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), []string{"private key"}},
}

// longBase64 matches sequences of base64 characters. Redact masks only sequences of at least maxBase64 bytes.
var longBase64 = regexp.MustCompile(`[\w+/-]+=*`)

// maxBase64 is the length in bytes from which Redact treats a base64 sequence as a credential.
const maxBase64 = 100

// Redact replaces everything that looks like a credential with ***.
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

// Count returns a number with its noun: "1 pool", "2 pools" or "2 policies".
func Count[N int | int32](n N, noun string) string {
	if stem, ok := strings.CutSuffix(noun, "cy"); ok && n != 1 {
		return fmt.Sprintf("%d %scies", n, stem)
	}
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Max formats a maximum number of runners or jobs. 2147483647 means that there is no maximum.
func Max(n int32) string {
	if n == math.MaxInt32 {
		return "unbounded"
	}
	return strconv.Itoa(int(n))
}

// Leaving describes the remaining runners of a pool that was deleted: runners that finish their job, and runners that are
// being deleted.
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

// Qualified returns the name of an object, with its namespace if it has one.
func Qualified(namespace, name string) string { return strings.TrimPrefix(namespace+"/"+name, "/") }

// List joins at most the given number of names, and adds the number of the others: "a, b, and 3 more".
func List(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if rest := len(names) - most; rest > 0 {
		text += fmt.Sprintf(", and %d more", rest)
	}
	return text
}

// Lines formats the first elements of a list, one per line, and adds the number of the others.
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

// maxCompared is the number of letters up to which Closest looks for a name similar to the given one.
const maxCompared = 253

// Closest returns the name in others that is most similar to the given name. It may differ by at most the given number of
// letters, ignoring case; two neighboring letters in the wrong order count as one. Closest returns "" if there is no such
// name, or if the given name has more than maxCompared letters, because the comparison would take too much time.
func Closest(name string, others []string, most int) string {
	best, letters := "", utf8.RuneCountInString(name)
	for _, other := range others {
		more := utf8.RuneCountInString(other) - letters
		if letters > maxCompared || more > most || -more > most {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(other)); d <= most && other != name {
			best, most = other, d-1
		}
	}
	return best
}

func distance(a, b string) int {
	d := levenshtein.ComputeDistance(a, b)
	for i := range len(a) - 1 {
		if d == 2 && a[:i]+a[i+1:i+2]+a[i:i+1]+a[i+2:] == b {
			return 1
		}
	}
	return d
}

// DidYouMean suggests a name: "; did you mean size?". It returns "" if there is no name.
func DidYouMean(name string) string {
	if name == "" {
		return ""
	}
	return "; did you mean " + name + "?"
}

// maxListed is the maximum number of names that Suggestion lists if none is similar.
const maxListed = 12

// Suggestion returns the most similar name for an unknown one, or all names if none is similar and there are at most 12: ";
// did you mean size?", or "; allowed here: max, size".
func Suggestion(given string, names []string) string {
	if best := Closest(given, names, len(given)/3+1); best != "" {
		return DidYouMean(best)
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == given })
	if len(names) == 0 || len(names) > maxListed {
		return ""
	}
	return "; allowed here: " + strings.Join(names, ", ")
}

// Refusal returns the message of a validation error of the API server, without the path of the field.
func Refusal(r *field.Error) string {
	detail := strings.TrimPrefix(r.Detail, r.Field+" in body ") // added by the schema library
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
		return notFound(r.Field, written, detail)
	}
	return fmt.Sprintf("invalid value %s: %s", written, detail)
}

// notFound returns the message for a field that refers to an object that does not exist.
func notFound(path, name, detail string) string {
	if strings.Contains(path, ".volumeMounts[") {
		return fmt.Sprintf("there is no volume %s in volumes of the pod: add it", name)
	}
	return cmp.Or(detail, name+" was not found")
}

// arcFields maps fields of actions-runner-controller to Corral's fields.
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

// misplaced maps fields that users write at the top of a spec or of its template, although they belong elsewhere, to their
// paths in the spec.
var misplaced = map[string]string{
	"min": "scale.min", "max": "scale.max", "idle": "scale.idle", "schedules": "scale.schedules", "webhook": "demand.webhook", "connection": "connectionRef",
	"image": containerField + "image", "command": containerField + "command", "env": containerField + "env", "resources": containerField + "resources",
	"volumeMounts": containerField + "volumeMounts", "containers": podField + "containers", "initContainers": podField + "initContainers",
	"volumes": podField + "volumes", "nodeSelector": podField + "nodeSelector", "tolerations": podField + "tolerations", "affinity": podField + "affinity",
	"serviceAccountName": podField + "serviceAccountName", "imagePullSecrets": podField + "imagePullSecrets", "securityContext": podField + "securityContext",
}

const (
	podField       = "template.spec."
	containerField = podField + "containers[0]."
)

// FieldHint returns a hint for an unknown field of a spec, given by its path: Corral's field for a field of
// actions-runner-controller, or the path of a field that belongs elsewhere. It is empty for other fields.
func FieldHint(path string) string {
	name := strings.TrimPrefix(path, "spec.")
	if own := arcFields[name]; own != "" {
		return fmt.Sprintf("; ARC's %s is Corral's %s", name, own)
	}
	if place := misplaced[strings.TrimPrefix(name, "template.")]; place != "" {
		return fmt.Sprintf("; did you mean spec.%s?", place)
	}
	return ""
}

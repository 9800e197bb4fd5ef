// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	_ "embed" // the templates of answers
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

//go:embed answers.tmpl
var templates string

// zeros matches the units at the end of a duration that are zero.
var zeros = regexp.MustCompile(`([hm])(?:0m)?0s$`)

// book renders the answers. Its functions must not call phrase: phrase uses book, so the initialization of
// book would depend on itself.
var book = &wording.Book{Source: templates, Functions: template.FuncMap{
	"when": when, "prefixed": strings.HasPrefix,
	"oldest": func(all []Entry) instant { return all[len(all)-1].start() }, "clock": clock, "stamp": stamp,
	"advice":      func(code string, values ...any) string { return catalog.Of(code).Advice(values...) },
	"conditionOf": ConditionOf, "isFalse": (*Condition).isFalse, "remedy": catalog.RemedyOf, "remedyFor": RemedyFor, "runnerRemedy": RunnerRemedy, "trim": strings.TrimRight, "alike": strings.EqualFold, "first": wording.FirstLine,
	"demand": (*PoolFacts).demand, "limits": (*PoolFacts).limitAdvice, "stuck": (*PoolFacts).stuck, "unready": (*PoolFacts).unready,
	"labels": (*PoolFacts).labels, "isOfConnection": (*PoolFacts).isOfConnection,
	"at":      func(now time.Time, value any) moment { return moment{now, value} },
	"deref":   func(v any) any { return reflect.Indirect(reflect.ValueOf(v)).Interface() },
	"split":   func(text string) []string { return strings.SplitN(text, "/", 2) },
	"upper":   func(s Severity) string { return strings.ToUpper(string(s)) },
	"brief":   func(text string) string { return wording.TruncateRunes(problems(text), maxMessage) },
	"length":  func(d metav1.Duration) string { return zeros.ReplaceAllString(d.Duration.String(), "$1") },
	"capital": capital, "condition": (*Condition).text, "why": briefReason, "blames": (*PoolAnswer).blames, "loses": (*Candidate).loses,
	"named": (*Finding).named, "unseen": notRead, "lacks": (*Page).isUnread, "isStuck": (*Judgement).isStuck, "troubles": (*Page).Troubles,
	"shown": func(all []Finding) []Finding { return all[:min(len(all), maxFindings)] },
	"more":  func(all []Finding) int { return max(0, len(all)-maxFindings) },
	"verdicts": func(v *v1alpha1.TemplateVerdict) map[string][]v1alpha1.PolicyFinding {
		return map[string][]v1alpha1.PolicyFinding{"denied": v.Denials, "warning": v.Warnings}
	},
}}

// moment is a value and the time at which it is rendered.
type moment struct {
	Now time.Time
	A   any
}

// phrase renders a template as one line.
func phrase(name string, data any) string { return book.Phrase(name, data) }

// further matches a line break in a value, with the white space around it.
var further = regexp.MustCompile(`[ ]*` + wording.FurtherLine + `[\s\v]*`)

// answerText renders an answer for people. Further lines of a value are indented below its first.
func answerText(name string, now time.Time, answer any) string {
	var all strings.Builder
	for line := range strings.Lines(book.Execute(name, moment{now, answer})) {
		margin := line[:len(line)-len(strings.TrimLeft(line, " "))]
		text := further.ReplaceAllString(strings.TrimSpace(line), "\n"+margin+"  ")
		all.WriteString(strings.TrimRight(margin+text, " ") + "\n")
	}
	return all.String()
}

// instant is a time.Time, a metav1.Time, or a pointer to one.
type instant interface{ UTC() time.Time }

// when writes a time, and its distance from now.
func when(now time.Time, t instant) string {
	return fmt.Sprintf("%s (%s)", stamp(t), distance(t.UTC(), now))
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func stamp(t instant) string { return t.UTC().Format(time.RFC3339) }

// distance returns how long ago a time was, or how far in the future it is, in the format of kubectl.
func distance(t, now time.Time) string {
	switch d := now.Sub(t); {
	case d < -time.Second:
		return "in " + duration.HumanDuration(-d)
	case d < time.Second:
		return "now"
	default:
		return duration.HumanDuration(d) + " ago"
	}
}

// text returns a condition's reason and message. It does not repeat the reason if the message contains it.
func (c *Condition) text() string {
	if c.Row().Role == catalog.Named {
		return c.Message
	}
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

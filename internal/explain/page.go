// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	_ "embed" // the templates of answers
	"fmt"
	"regexp"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

//go:embed answers.tmpl
var templates string

var (
	// keyword is a line of a template with nothing but a keyword.
	keyword = regexp.MustCompile(`(?m)^[ \t]*(\{\{(?:if|else|end|range|with|define|template)\b[^{}\n]*\}\})[ \t]*\n`)
	// answers are parsed once, and not at the start of each command.
	answers = sync.OnceValue(parsed)
)

// furtherLine stands for a line break in a value. It can't be printed, so that no value has one of its own.
const furtherLine = "\v"

// functions of the templates.
var functions = template.FuncMap{
	"safe": safe, "when": when, "clock": clock, "stamp": func(t *metav1.Time) string { return stamp(t.Time) },
	"max": func(n int32) string { return wording.Max(n) }, "deref": func(v any) any { return deref(v) },
	"join":  func(texts []string) string { return strings.Join(texts, ", ") },
	"upper": func(s Severity) string { return strings.ToUpper(string(s)) },
	"brief": func(text string) string { return wording.TruncateRunes(problems(text), maxMessage) },
	"count": func(n any, noun string) string {
		if small, is := n.(int32); is {
			return wording.Count(small, noun)
		}
		return wording.Count(n.(int), noun)
	},
	"job": jobText, "condition": (*Condition).text, "readiness": (*Condition).readiness,
	"headline": (*Page).headline, "finding": (*Finding).headline, "named": (*Finding).named, "unseen": (*Page).unseen, "totals": (*Page).totals,
	"shown":   func(all []Finding) []Finding { return all[:min(len(all), maxFindings)] },
	"more":    func(all []Finding) int { return max(0, len(all)-maxFindings) },
	"leaving": (*GoneAnswer).leaving, "selector": (*GoneAnswer).selector,
	"jobTitle": func(a *JobAnswer) string { return capital(a.title) }, "events": (*Candidate).eventLines,
	"closed": func(a *PoolAnswer) bool { return a.closed }, "updated": func(a *PoolAnswer) bool { return a.isUpdated },
	"since": func(a *PoolAnswer) *metav1.Time { return a.since }, "kept": (*PoolAnswer).kept, "numbers": (*PoolAnswer).numbers, "target": (*PoolAnswer).target,
	"undecided": func(v *v1alpha1.TemplateVerdict) string { return capital(undecided(v)) }, "why": briefReason, "verdicts": verdicts,
	"source": (*Source).title, "signal": (*Source).text, "receives": (*Demand).receivesBy, "severalCount": (*Demand).severalCount,
	"busy": func(d *Demand) int32 { return d.busy }, "sets": (*HoldingSchedule).text, "scale": scaleText,
	"origin": (*Limit).origin, "differs": (*Limit).differs, "mode": (*Policy).mode, "state": (*Policy).state,
	"several": func(all []Entry) bool { return len(all) > 1 }, "entry": (*Entry).text,
}

// parsed returns the templates. Each value that they write goes through safe.
func parsed() *template.Template {
	t := template.Must(template.New("").Funcs(functions).Parse(keyword.ReplaceAllString(templates, "$1")))
	for _, one := range t.Templates() {
		escape(one.Tree, one.Root)
	}
	return t
}

func escape(tree *parse.Tree, n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, one := range n.Nodes {
				escape(tree, one)
			}
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			name := parse.NewIdentifier("safe").SetTree(tree).SetPos(n.Pos)
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{name}})
		}
	case *parse.IfNode:
		escape(tree, n.List)
		escape(tree, n.ElseList)
	case *parse.RangeNode:
		escape(tree, n.List)
		escape(tree, n.ElseList)
	case *parse.WithNode:
		escape(tree, n.List)
		escape(tree, n.ElseList)
	}
}

// safe is a value that can't break out of its place. A space replaces each character that can't be printed.
func safe(value any) string {
	text := strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, fmt.Sprint(value))
	return strings.ReplaceAll(strings.TrimRight(strings.TrimLeft(text, " \n"), "\n"), "\n", furtherLine)
}

// answerText writes an answer for people.
func answerText(name string, now time.Time, answer any) string {
	var b, all strings.Builder
	if err := answers().ExecuteTemplate(&b, name, struct {
		Now time.Time
		A   any
	}{now, answer}); err != nil {
		return err.Error() // the tests write each part of each answer
	}
	for line := range strings.Lines(b.String()) {
		text := strings.TrimSpace(line)
		margin := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for i, part := range strings.Split(text, furtherLine) {
			switch part = strings.TrimSpace(part); {
			case text == "":
				all.WriteString("\n")
			case i == 0:
				all.WriteString(margin + part + "\n")
			case part != "":
				all.WriteString(margin + "  " + part + "\n")
			}
		}
	}
	return all.String()
}

// when writes a time, and its distance from now.
func when(now time.Time, t any) string {
	at := timeIn(t)
	return fmt.Sprintf("%s (%s)", stamp(at), distance(at, now))
}

// timeIn is the time in a value of an answer.
func timeIn(t any) time.Time {
	switch t := t.(type) {
	case metav1.Time:
		return t.Time
	case *metav1.Time:
		return timeOf(t)
	}
	return time.Time{}
}

// deref is what a pointer of an answer points to.
func deref(v any) any {
	switch v := v.(type) {
	case *bool:
		return *v
	case *int32:
		return *v
	}
	return v
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// distance writes how long ago a time was, or in how long it comes.
func distance(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < -time.Second:
		return "in " + span(-d)
	case d < time.Second:
		return "now"
	}
	return span(d) + " ago"
}

// span writes a time span in one unit, or two.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// capacity writes the most jobs that a pool accepts.
func capacity(most int32) string {
	switch most {
	case 0:
		return "no jobs"
	case v1alpha1.UnboundedMax:
		return "any number of jobs"
	}
	return "up to " + wording.Count(most, "job") + " in total"
}

// text is a condition's reason and message, the reason once.
func (c *Condition) text() string {
	if c.Row().Role == catalog.Named {
		return c.Message
	}
	return with(c.Reason, c.Message)
}

// readiness says whether an object with the condition Ready is so.
func (c *Condition) readiness() string {
	switch {
	case c == nil:
		return "not looked at yet"
	case c.Status == metav1.ConditionTrue:
		return "ready"
	}
	return "not ready"
}

// with appends a detail, if there is one.
func with(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

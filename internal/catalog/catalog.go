// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package catalog defines every cause that a status may contain: its reason, its severity, and the templates that its
// message and remedy are rendered from. Each cause is defined by a Row. Controllers create causes from rows, and no code
// parses rendered messages.
package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// Severity of a cause.
type Severity string

// Severities, the most severe first.
const (
	// Critical means that nothing works.
	Critical Severity = "critical"
	// Error means that pools accept no jobs, or that runners do not start.
	Error Severity = "error"
	// Warning means that something works differently from its configuration.
	Warning Severity = "warning"
	// Ahead means that nothing is wrong yet, but that a problem may follow.
	Ahead Severity = "ahead"
	// Note means that a user requested this state, or that it is temporary.
	Note Severity = "note"
)

// Role of a row.
type Role string

// Roles of rows that are not plain causes.
const (
	// Named is a cause whose message makes the reason obvious. corral explain prints its message without the reason.
	Named Role = "named"
	// Fact is not a cause by itself. It adds information to the causes before it, such as the expiry date of a token.
	Fact Role = "fact"
	// Meanwhile is a Fact that says what stays in force, or how to trigger another attempt.
	Meanwhile Role = "meanwhile"
	// Aside is a Fact whose changes emit no event.
	Aside Role = "aside"
	// Lead is an Aside that is placed before the message, for example the name of the runner that has the causes.
	Lead Role = "lead"
	// Finding is not a cause of a condition. Only corral status or corral explain reports it.
	Finding Role = "finding"
)

// adds reports whether the row only adds information to other causes.
func (r *Row) adds() bool { return r.Role != "" && r.Role != Named && r.Role != Finding }

// Row defines one cause. If the code of a row is a condition reason of the API, the other rows with that reason inherit its
// title, severity, grace period and remedy.
type Row struct {
	// Code identifies the row. Reason is the reason of the condition; if it is empty, define sets it to the code.
	Code, Reason string
	// Title is a short name of the cause. Title, Early, Message and Remedy are templates: {name} stands for a parameter. The
	// detail of a cause follows its message, unless the message contains {detail}.
	Title, Message, Remedy string
	// Awaits is a template that names the event that must happen next. It is appended to the message, after "waiting for".
	Awaits string
	// Meanwhile is appended to the remedy and describes what stays in force until the problem is fixed.
	Meanwhile string
	// Remedies replace Remedy for objects of certain kinds. The keys are the kinds.
	Remedies map[string]string
	Severity Severity
	// Grace is how long the cause is reported only as a note. During that time its title is Early, if set.
	Grace time.Duration
	Early string
	// SameAs is the code of another cause. A change between the two emits no event.
	SameAs string
	// Volatile lists parameters that may change while the cause stays the same. Such a change emits no event.
	Volatile []string
	// Stalls is true if retries cannot fix the problem, so that a controller may report the object as Stalled.
	Stalls bool
	// Role says how the row is combined with the other causes of a condition.
	Role Role
	// Doc is the anchor of the documentation, if there is a page about this cause.
	Doc string

	names  []string // names of the parameters, in the order of their first occurrence in Message, Remedy and Title
	quotes bool     // whether the message contains the detail
}

// Rows by their code.
var rows = map[string]*Row{}

// Rows returns all rows, sorted by code.
func Rows() []*Row {
	return slices.SortedFunc(maps.Values(rows), func(a, b *Row) int { return strings.Compare(a.Code, b.Code) })
}

// placeholder is a parameter in a template.
var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// Placeholders that are not parameters.
const detail, next, nextBy = "detail", "next", "nextBy"

// define adds a row to the catalog.
func define(r Row) *Row {
	if r.Reason == "" && !r.adds() {
		r.Reason = r.Code
	}
	if r.Awaits != "" {
		r.Message = strings.TrimPrefix(r.Message+"; waiting for "+r.Awaits, "; ")
	}
	for _, m := range placeholder.FindAllStringSubmatch(r.Message+r.Remedy+r.Title, -1) {
		r.quotes = r.quotes || m[1] == detail
		if !slices.Contains([]string{detail, next, nextBy}, m[1]) && !slices.Contains(r.names, m[1]) {
			r.names = append(r.names, m[1])
		}
	}
	rows[r.Code] = &r
	return &r
}

// Of returns the row of a code. For an unknown code, for example from another release, it returns a warning whose title and
// reason are the code.
func Of(code string) *Row {
	if r := rows[code]; r != nil {
		return r
	}
	return &Row{Code: code, Reason: code, Title: code, Severity: Warning}
}

// Parameters returns the names of the row's parameters, in the order in which With expects their values.
func (r *Row) Parameters() []string { return r.names }

// Cause is a v1alpha1.Cause together with the error that it was created from, if any.
type Cause struct {
	v1alpha1.Cause
	Err error
}

// With creates a cause with values for the parameters, in the order of Parameters.
func (r *Row) With(values ...any) Cause {
	c := Cause{Cause: v1alpha1.Cause{Code: r.Code}}
	for i, v := range values {
		c.Parameters = append(c.Parameters, v1alpha1.CauseParameter{Name: r.names[i], Value: fmt.Sprint(v)})
	}
	return c
}

// Text returns a cause that has only a reason and a text. Use it for objects without causes, for example from an older
// release.
func Text(reason, text string) Cause {
	return Cause{Cause: v1alpha1.Cause{Code: reason, Detail: text}}
}

// Wrap sets the error of the cause. The error's text becomes the detail.
func (c Cause) Wrap(err error) Cause {
	c.Err = err
	return c.Detailed(err.Error())
}

// Detailed sets the detail: a text that another program wrote, such as GitHub or the API server.
func (c Cause) Detailed(text string) Cause {
	c.Detail = text
	return c
}

// About sets the object that is at fault.
func (c Cause) About(kind, namespace, name string) Cause {
	c.Subject = &v1alpha1.CauseSubject{Kind: kind, Namespace: namespace, Name: name}
	return c
}

// String renders the cause.
func (c Cause) String() string { return Message(&c.Cause) }

// Retry sets the time of the next attempt.
func (c Cause) Retry(at time.Time) Cause {
	c.NextAttempt = &metav1.Time{Time: at.UTC().Truncate(time.Second)}
	return c
}

// Plain removes the errors and returns the causes in the form that a status stores.
func Plain(causes []Cause) []v1alpha1.Cause {
	list := make([]v1alpha1.Cause, len(causes))
	for i, c := range causes {
		list[i] = c.Cause
	}
	return list
}

// Reason returns the reason of a condition with these causes, which is the reason of the first one.
func Reason(causes []v1alpha1.Cause) string { return Of(causes[0].Code).Reason }

// Message renders one cause.
func Message(c *v1alpha1.Cause) string {
	row := Of(c.Code)
	text := render(row.Message, c)
	switch {
	case c.Detail == "" || row.quotes:
		return text
	case text == "":
		return c.Detail
	}
	return text + ": " + c.Detail
}

// Awaited renders the Awaits template of the first cause whose row has one; "" if no row has one.
func Awaited(causes []v1alpha1.Cause) string {
	for i := range causes {
		if awaits := Of(causes[i].Code).Awaits; awaits != "" {
			return render(awaits, &causes[i])
		}
	}
	return ""
}

// Messages renders the causes of a condition.
func Messages(causes []v1alpha1.Cause) string {
	text := ""
	for i := range causes {
		row, part := Of(causes[i].Code), Message(&causes[i])
		switch {
		case i == 0:
			text = part
		case row.Role == Lead:
			text = part + ": " + text
		case row.adds() && unicode.IsLower([]rune(part + " ")[0]): // a part that begins in lower case continues the sentence
			text += "; " + part
		default:
			text += "\n" + part
		}
	}
	return text
}

// Problem renders the causes, without the part about what stays in force.
func Problem(causes []v1alpha1.Cause) string {
	return Messages(slices.DeleteFunc(slices.Clone(causes), func(c v1alpha1.Cause) bool { return Of(c.Code).Role == Meanwhile }))
}

// Title renders the title of a cause, and its title during the grace period. If the cause's row has no title, the row of its
// reason provides both.
func Title(c *v1alpha1.Cause) (title, early string) {
	row := Of(c.Code)
	if row.Title == "" {
		row = Of(row.Reason)
	}
	title = render(row.Title, c)
	return title, cmp.Or(render(row.Early, c), title)
}

// RemedyOf returns the remedy for a condition reason on an object of the given kind.
func RemedyOf(kind, reason string) string {
	row := Of(reason)
	return cmp.Or(row.Remedies[kind], row.Remedy+row.Meanwhile)
}

// Advice renders the remedy of a row with values for its parameters, in the order of Parameters.
func (r *Row) Advice(values ...any) string {
	c := r.With(values...).Cause
	return Remedy(&c)
}

// Remedy renders the remedy of a cause; "" if its row has no remedy of its own.
func Remedy(c *v1alpha1.Cause) string { return render(Of(c.Code).Remedy, c) + Of(c.Code).Meanwhile }

func render(template string, c *v1alpha1.Cause) string {
	return placeholder.ReplaceAllStringFunc(template, func(name string) string {
		switch name = strings.Trim(name, "{}"); {
		case name == detail:
			return c.Detail
		case name == next && c.NextAttempt != nil:
			return c.NextAttempt.UTC().Format("; next try " + wording.Clock)
		case name == nextBy && c.NextAttempt != nil:
			return c.NextAttempt.UTC().Format("; next try by " + wording.Clock)
		}
		return c.Parameter(name)
	})
}

// Same reports whether two lists have the same causes: the same codes, conditions, subjects and parameters. It treats a code
// and its SameAs code as equal, and ignores volatile parameters, Asides and Leads.
func Same(a, b []v1alpha1.Cause) bool { return Identity(a) == Identity(b) }

// SameDetails reports whether two lists of causes have the same details.
func SameDetails(a, b []v1alpha1.Cause) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.Cause) bool { return a.Detail == b.Detail })
}

// Identity returns a key that is equal for lists that Same considers the same.
func Identity(causes []v1alpha1.Cause) (text string) {
	for i := range causes {
		if role := Of(causes[i].Code).Role; role != Aside && role != Lead {
			text += identity(&causes[i]) + "\n"
		}
	}
	return text
}

func identity(c *v1alpha1.Cause) string {
	row := Of(c.Code)
	text := cmp.Or(row.SameAs, c.Code) + "|" + c.Condition
	if c.Subject != nil {
		text += fmt.Sprintf("|%s/%s/%s", c.Subject.Kind, c.Subject.Namespace, c.Subject.Name)
	}
	for _, p := range c.Parameters {
		if !slices.Contains(row.Volatile, p.Name) {
			text += fmt.Sprintf("|%s=%q", p.Name, p.Value)
		}
	}
	return text
}

// Settle prepares causes for a status. It limits their number, truncates their texts and sets Since: to the time in the
// earlier causes if they contain the same cause, otherwise to now unless it is already set.
func Settle(causes, earlier []v1alpha1.Cause, now time.Time) []v1alpha1.Cause {
	causes = slices.Clone(causes[:min(len(causes), v1alpha1.MaxCauses)])
	for i := range causes {
		c := &causes[i]
		c.Parameters = slices.Clone(c.Parameters)
		c.Code = wording.Truncate(c.Code, v1alpha1.MaxCauseCode)
		c.Detail = wording.Truncate(c.Detail, v1alpha1.MaxCauseText)
		for j := range c.Parameters {
			c.Parameters[j].Value = wording.Truncate(c.Parameters[j].Value, v1alpha1.MaxCauseText)
		}
		if c.Since == nil {
			c.Since = &metav1.Time{Time: now.UTC().Truncate(time.Second)}
		}
		if k := slices.IndexFunc(earlier, func(e v1alpha1.Cause) bool { return identity(&e) == identity(c) }); k >= 0 && earlier[k].Since != nil {
			c.Since = earlier[k].Since
		}
	}
	return causes
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// page is a text that is being written. Text of others can't break out of its place.
type page struct {
	b   strings.Builder
	now time.Time
}

// line writes a line. Further lines of a text are indented below it. A space replaces each character that can't be
// printed.
func (p *page) line(indent int, format string, args ...any) {
	text := strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, fmt.Sprintf(format, args...))
	margin := strings.Repeat(" ", indent)
	for i, l := range strings.Split(strings.TrimSpace(text), "\n") {
		l = strings.TrimSpace(l)
		switch {
		case i == 0:
			p.b.WriteString(margin + l + "\n")
		case l != "":
			p.b.WriteString(margin + "  " + l + "\n")
		}
	}
}

// gap writes an empty line.
func (p *page) gap() { p.b.WriteString("\n") }

// section writes a heading.
func (p *page) section(title string) {
	p.b.WriteString("\n" + title + "\n")
}

// list writes a section with an item for each text; nothing without texts.
func (p *page) list(title string, texts []string) {
	if len(texts) == 0 {
		return
	}
	p.section(title)
	for _, t := range texts {
		p.line(2, "- %s", t)
	}
}

// when writes a time, and its distance from now.
func (p *page) when(t time.Time) string {
	return fmt.Sprintf("%s (%s)", stamp(t), distance(t, p.now))
}

func (p *page) String() string { return p.b.String() }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Distance writes how long ago a time was, or in how long it comes.
func Distance(t, now time.Time) string { return distance(t, now) }

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

// with appends a detail, if there is one.
func with(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

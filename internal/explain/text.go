// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/wording"
)

const (
	// maxNamed is how many objects a line names.
	maxNamed = 3
	// maxFindings is how many findings the text has.
	maxFindings = 30
	// maxMessage is how many characters of a message the text has; corral explain, or kubectl describe, has the rest.
	maxMessage = 240
)

// Text writes the page for people.
func (p Page) Text() string { return answerText("status", p.Time.Time, &p) }

// problems are what a message says is wrong, in one line.
func problems(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ")
}

// named names the first objects.
func (f *Finding) named() string {
	return wording.List(append(slices.Clip(f.Objects), make([]string, f.More)...), maxNamed) // those left out have no name
}

// unseen says what wasn't looked at, those for the same reason together.
func (p *Page) unseen() string {
	byReason := map[string][]string{}
	var parts []string
	for _, u := range p.NotLookedAt {
		byReason[u.Why] = append(byReason[u.Why], u.What)
	}
	for _, u := range p.NotLookedAt {
		if what := byReason[u.Why]; what[0] == u.What {
			parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(what, ", "), u.Why))
		}
	}
	return strings.Join(parts, "; ")
}

// poolsRead is what pools are called among what could not be looked at.
const poolsRead = "RunnerPools"

// lacks reports whether nothing of a kind was looked at.
func (p *Page) lacks(what string) bool {
	return slices.ContainsFunc(p.NotLookedAt, func(u Unseen) bool { return u.What == what })
}

// clock writes a time, of this day alone, and its distance.
func clock(now time.Time, t instant) string {
	layout, at := wording.Clock, t.UTC()
	if now.Sub(at).Abs() > 12*time.Hour {
		layout = "2006-01-02 15:04Z"
	}
	return fmt.Sprintf("%s (%s)", at.Format(layout), distance(at, now))
}

// Changes are lines on what became other since a former page: what is new, and what is over.
func (p *Page) Changes(former *Page) []string {
	lines := book.Sentences("status-changes", struct {
		Now               time.Time
		New, Over         []Finding
		Unseen, WasUnseen string
	}{
		p.Time.Time,
		slices.DeleteFunc(slices.Clone(p.Findings), func(is Finding) bool {
			return slices.ContainsFunc(former.Findings, func(was Finding) bool { return was.key == is.key && was.line() == is.line() })
		}),
		slices.DeleteFunc(p.gone(former), func(was Finding) bool { return !p.isOver(&was) }),
		p.unseen(), former.unseen(),
	})
	for i, line := range lines { // messages are anybody's
		lines[i] = strings.ReplaceAll(line, "\n", " ")
	}
	return lines
}

// gone are the findings that a former page has, and this one hasn't.
func (p *Page) gone(former *Page) []Finding {
	return slices.DeleteFunc(slices.Clone(former.Findings), func(f Finding) bool {
		return slices.ContainsFunc(p.Findings, func(is Finding) bool { return is.key == f.key })
	})
}

// isOver reports whether what was found before, and isn't any more, is over: not if it may be among what could not be looked at.
func (p *Page) isOver(f *Finding) bool { return len(p.NotLookedAt) == 0 || p.unseen() == f.unseen }

// Keep adds what a former page has and can't be known to be over: the next page is compared with it.
func (p *Page) Keep(former *Page) {
	kept := slices.DeleteFunc(p.gone(former), func(was Finding) bool { return p.isOver(&was) })
	p.Findings = append(p.Findings, kept...)
}

// line is what makes a finding another one.
func (f *Finding) line() string {
	return fmt.Sprint(f.Severity, f.What, f.Hurts, f.named())
}

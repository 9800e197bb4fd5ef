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
	// maxNamed limits how many objects a line names.
	maxNamed = 3
	// maxFindings limits how many findings the text contains.
	maxFindings = 30
	// maxMessage limits how many characters of a message the text contains. corral explain and kubectl describe show the
	// full message.
	maxMessage = 240
)

// Text renders the page for people.
func (p Page) Text() string { return answerText("status", p.Time.Time, &p) }

// problems returns a message on one line.
func problems(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ")
}

// named returns the names of the first objects.
func (f *Finding) named() string {
	return wording.List(append(slices.Clip(f.Objects), make([]string, f.More)...), maxNamed) // objects that were left out have no name
}

// notRead describes what was not read, grouped by reason.
func notRead(all []Unseen) string {
	byReason := map[string][]string{}
	var parts []string
	for _, u := range all {
		byReason[u.Why] = append(byReason[u.Why], u.What)
	}
	for _, u := range all {
		if what := byReason[u.Why]; what[0] == u.What {
			parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(what, ", "), u.Why))
		}
	}
	return strings.Join(parts, "; ")
}

// poolsRead is the name of pools in the list of what could not be read.
const poolsRead = "RunnerPools"

// isUnread reports whether no objects of a kind were read.
func (p *Page) isUnread(what string) bool {
	return slices.ContainsFunc(p.NotLookedAt, func(u Unseen) bool { return u.What == what })
}

// clock formats a time and its distance from now, without the date if it is less than twelve hours away.
func clock(now time.Time, t instant) string {
	layout, at := wording.Clock, t.UTC()
	if now.Sub(at).Abs() > 12*time.Hour {
		layout = "2006-01-02 15:04Z"
	}
	return fmt.Sprintf("%s (%s)", at.Format(layout), distance(at, now))
}

// Changes returns lines that describe the differences from an earlier page: new problems and problems that are over.
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
		notRead(p.NotLookedAt), notRead(former.NotLookedAt),
	})
	for i, line := range lines { // messages may contain text from any user or program
		lines[i] = strings.ReplaceAll(line, "\n", " ")
	}
	return lines
}

// gone returns the findings of an earlier page that this page does not have.
func (p *Page) gone(former *Page) []Finding {
	return slices.DeleteFunc(slices.Clone(former.Findings), func(f Finding) bool {
		return slices.ContainsFunc(p.Findings, func(is Finding) bool { return is.key == f.key })
	})
}

// isOver reports whether a finding that this page no longer has is resolved. This is certain if this page read
// everything, or if exactly the same objects were unread when the problem was found.
func (p *Page) isOver(f *Finding) bool {
	return len(p.NotLookedAt) == 0 || notRead(p.NotLookedAt) == f.unseen
}

// Keep adds the findings of an earlier page that may still exist although this page does not have them, so that the
// next page is compared with them too.
func (p *Page) Keep(former *Page) {
	kept := slices.DeleteFunc(p.gone(former), func(was Finding) bool { return p.isOver(&was) })
	p.Findings = append(p.Findings, kept...)
}

// line returns the parts of a finding that matter to the reader. If they change, Changes reports the finding again.
func (f *Finding) line() string {
	return fmt.Sprint(f.Severity, f.What, f.Hurts, f.named())
}

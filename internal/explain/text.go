// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

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

// printable replaces what isn't to be printed: messages are anybody's.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

func (p *Page) headline() string {
	where := "in all namespaces"
	if p.Namespace != "" {
		where = "in namespace " + p.Namespace
	}
	where += ", at " + p.Time.UTC().Format(time.RFC3339)
	counts := map[Severity]int{}
	for _, f := range p.Findings {
		counts[f.Severity]++
	}
	troubles := counts[Critical] + counts[Error] + counts[Warning]
	switch {
	case troubles == 1:
		return "1 thing is wrong " + where + "."
	case troubles > 1:
		return fmt.Sprintf("%d things are wrong %s.", troubles, where)
	case p.Verdict == Unknown:
		return "Nothing is known to be wrong " + where + ", but not all was looked at."
	case counts[Ahead] > 0:
		return "Nothing is wrong yet " + where + "."
	}
	return "All is well " + where + "."
}

// headline says in one line what is wrong, whom it hurts, since when, and when it is tried again.
func (f *Finding) headline(now time.Time) string {
	text := f.What
	if hurts := f.Hurts.text(); hurts != "" {
		text += ": " + hurts
	}
	if f.Since != nil {
		text += ", since " + clock(now, f.Since)
	}
	if f.By != nil {
		text += ", by " + clock(now, f.By)
	}
	if f.Next != nil {
		text += ", next attempt by " + clock(now, f.Next)
	}
	return text
}

// text says whom it hurts.
func (h Hurts) text() string {
	var parts []string
	for _, c := range []struct {
		n    int
		noun string
	}{{h.Connections, "connection"}, {h.Sources, "source"}, {h.Policies, "policy"}, {h.Pools, "pool"}, {h.Runners, "runner"}} {
		if c.n > 0 {
			parts = append(parts, wording.Count(c.n, c.noun))
		}
	}
	switch {
	case h.Jobs == 1:
		parts = append(parts, "1 job waits")
	case h.Jobs > 1:
		parts = append(parts, fmt.Sprintf("%d jobs wait", h.Jobs))
	}
	return strings.Join(parts, ", ")
}

// named names the first objects.
func (f *Finding) named() string {
	text := strings.Join(f.Objects[:min(len(f.Objects), maxNamed)], ", ")
	if rest := len(f.Objects) + f.More - maxNamed; rest > 0 {
		text += fmt.Sprintf(", and %d more", rest)
	}
	return text
}

// unseen says what wasn't looked at, those for the same reason together.
func (p *Page) unseen() string {
	var whys []string
	for _, u := range p.NotLookedAt {
		if !slices.Contains(whys, u.Why) {
			whys = append(whys, u.Why)
		}
	}
	var parts []string
	for _, why := range whys {
		var what []string
		for _, u := range p.NotLookedAt {
			if u.Why == why {
				what = append(what, u.What)
			}
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(what, ", "), why))
	}
	return strings.Join(parts, "; ")
}

// totals are the numbers of what was looked at.
func (p *Page) totals() string {
	var kinds []string
	for _, c := range []struct {
		n          int
		noun, what string
	}{
		{p.Totals.Sources, "source", "PoolSources"}, {p.Totals.Connections, "connection", "GitHubConnections"},
		{p.Totals.Policies, "policy", "RunnerPolicies"}, {p.Totals.Pools, "pool", poolsRead},
	} {
		if !p.lacks(c.what) {
			kinds = append(kinds, wording.Count(c.n, c.noun))
		}
	}
	text := strings.Join(kinds, ", ")
	if p.lacks(poolsRead) { // runners and jobs are as the pools have them
		return text
	}
	return text + ". " + RunnersText(p.Totals.Runners) + ". " + p.Totals.jobs() + "."
}

// jobs says how many there are, as far as they were counted.
func (t *Totals) jobs() string {
	text, of := wording.Count(t.Jobs, "job"), wording.Count(t.JobsUnknown, "pool")
	if t.JobsUnknown == t.Pools && t.Jobs == 0 && t.Pools > 0 {
		return "The jobs of " + of + " aren't known"
	}
	if t.Waiting > 0 {
		text += fmt.Sprintf(", %d of them without a runner", t.Waiting)
	}
	if t.JobsUnknown > 0 {
		text += "; the jobs of " + of + " aren't known"
	}
	return text
}

// poolsRead is what pools are called among what could not be looked at.
const poolsRead = "RunnerPools"

// lacks reports whether nothing of a kind was looked at.
func (p *Page) lacks(what string) bool {
	return slices.ContainsFunc(p.NotLookedAt, func(u Unseen) bool { return u.What == what })
}

// clock writes a time, of this day alone, and its distance.
func clock(now time.Time, t any) string {
	layout, at := wording.Clock, timeIn(t)
	if now.Sub(at).Abs() > 12*time.Hour {
		layout = "2006-01-02 15:04Z"
	}
	return fmt.Sprintf("%s (%s)", at.UTC().Format(layout), distance(at, now))
}

// Changes are lines on what became other since a former page: what is new, and what is over.
func (p *Page) Changes(former *Page) []string {
	was := map[string]string{}
	for i := range former.Findings {
		f := &former.Findings[i]
		was[f.key] = f.line()
	}
	var lines []string
	for i := range p.Findings {
		if f := &p.Findings[i]; was[f.key] != f.line() {
			lines = append(lines, printable(fmt.Sprintf("%s %s", strings.ToUpper(string(f.Severity)), f.headline(p.Time.Time))+": "+f.named()))
		}
	}
	for _, f := range p.gone(former) {
		if p.isOver(&f) {
			lines = append(lines, printable("OVER "+f.What+": "+f.named()))
		}
	}
	switch unseen := p.unseen(); {
	case unseen == former.unseen():
	case unseen == "":
		lines = append(lines, printable("LOOKED AT AGAIN "+former.unseen()))
	default:
		lines = append(lines, printable("NOT LOOKED AT "+unseen))
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
	for _, f := range p.gone(former) {
		if !p.isOver(&f) {
			p.Findings = append(p.Findings, f)
		}
	}
}

// line is what makes a finding another one.
func (f *Finding) line() string {
	return fmt.Sprintf("%s %s %s %s", f.Severity, f.What, f.Hurts.text(), f.named())
}

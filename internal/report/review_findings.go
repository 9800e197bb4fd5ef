// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// Rules of a review that aren't a policy's.
const (
	ruleDefinition = "corral.definition"
	ruleBase       = "corral.review.base"
	ruleFailure    = "corral.review.failed"
	rulePrices     = "corral.prices"
	ruleFailed     = "corral.policy.failed"
	ruleAudit      = "corral.policy.audit"
	ruleLimit      = "corral.review.limit"
	ruleOverlap    = "corral.review.overlap"
	ruleConnection = "corral.review.connection"
	rulePolicy     = "corral.review.policy"
	ruleGone       = "corral.review.deleted"
	ruleRenamed    = "corral.review.renamed"
	rulePrune      = "corral.review.prune"
	ruleClass      = "corral.review."
)

// ReviewFindings lists what of a review belongs to a line of a file: for annotations and SARIF. Denials are errors. Changes that
// lose jobs or send them elsewhere, and what policies newly warn of, are warnings; the rest are notes.
func ReviewFindings(r *review.Result) []Finding {
	var findings []Finding
	rule, title := ruleDefinition, "Definition refused"
	switch {
	case r.Failed:
		rule, title = ruleFailure, "The review failed"
	case r.Head.Unpriced:
		rule, title = rulePrices, "Prices can't be read"
	}
	for _, d := range r.Head.Diagnostics {
		findings = append(findings, Finding{
			Level: Error, Rule: rule, Title: title, Message: d.Message, Path: d.Path,
			Place: Place{File: d.File, Line: d.Line, Column: d.Column},
		})
	}
	if n := len(r.Base.Diagnostics); n > 0 {
		findings = append(findings, Finding{
			Level: Warning, Rule: ruleBase, Title: "The base can't be compared",
			Message: fmt.Sprintf("%s of %s, so what changes isn't known. The first: %s", wording.Count(n, "problem"), r.Base.Name, compile.Format(r.Base.Diagnostics[0])),
		})
	}
	for _, warning := range r.Warnings {
		findings = append(findings, Finding{Level: Warning, Rule: rulePrune, Title: "Too many pools go at once", Message: warning})
	}
	for i := range r.Pools {
		findings = append(findings, poolFindings(&r.Pools[i])...)
	}
	for _, o := range r.Overlaps {
		findings = append(findings, Finding{
			Level: Warning, Rule: ruleOverlap, Title: "Pools for the same jobs", Subject: "pool " + o.Pool, Place: Place(o.At),
			Message: o.Message, Help: "give one of them another label or runner group, if that isn't meant",
		})
	}
	for _, c := range r.Connections {
		findings = append(findings, connectionFinding(c))
	}
	for _, p := range r.Policies {
		findings = append(findings, policyFinding(p))
	}
	return findings
}

func poolFindings(p *review.Pool) []Finding {
	subject := "pool " + wording.Qualified(p.Namespace, p.Name)
	at := placeAtHead(p.BaseAt, p.HeadAt)
	var findings []Finding
	for _, f := range p.Findings {
		if found, ok := judged(f); ok {
			found.Subject = subject
			findings = append(findings, found)
		}
	}
	if f, ok := changeFinding(p); ok {
		f.Subject, f.Place = subject, at
		findings = append(findings, f)
	}
	for _, b := range newBounds(p) {
		findings = append(findings, Finding{
			Level: Note, Rule: ruleLimit, Title: "Limit by policy", Subject: subject, Place: at,
			Message: fmt.Sprintf("%s %s is made %s: %s", b.Field, wording.Max(b.Declared), wording.Max(b.Value), b.Reason),
			Source:  Place{File: b.Rule.File, Line: b.Rule.Line}, By: ruleText(b.Rule),
		})
	}
	return findings
}

// judged is what a policy says of a pod; false for what was so before and keeps nothing, and for what is mended.
func judged(f review.Finding) (Finding, bool) {
	out := Finding{
		Rule: f.Rule.Name, Message: f.Message, Help: f.Remediation, Path: f.Path, Place: Place(f.At),
		Source: Place{File: f.Rule.File, Line: f.Rule.Line}, By: ruleText(f.Rule),
	}
	if f.Code != "" && !strings.Contains(out.Rule, f.Code) {
		out.Rule += "/" + f.Code
	}
	switch {
	case f.State == review.Fixed:
		return Finding{}, false
	case f.Level == review.Failure:
		out.Level, out.Title, out.Rule, out.Message = Error, "Policy failed", ruleFailed, "a policy failed, so nothing is decided: "+f.Message
	case f.Level == review.Deny:
		out.Level, out.Title, out.Message = Error, "Denied by policy", "denied: "+f.Message
	case f.State == review.Still:
		return Finding{}, false
	case f.Level == review.Warn:
		out.Level, out.Title, out.Message = Warning, "Warning by policy", "warning: "+f.Message
	default:
		out.Level, out.Title, out.Rule, out.Message = Note, "Audited policy", ruleAudit, "audit: "+f.Message
	}
	return out, true
}

// changeFinding tells how far a pool's change reaches.
func changeFinding(p *review.Pool) (Finding, bool) {
	f := Finding{Level: Warning, Message: strings.Join(p.Effects, " ")}
	class := p.Class()
	switch {
	case p.Change == review.Deleted:
		f.Rule, f.Title = ruleGone, "Pool deleted"
	case p.Change == review.Renamed:
		f.Rule, f.Title = ruleRenamed, "Pool renamed"
	case class == "":
		return f, false
	case class == review.Identity:
		f.Rule, f.Title = ruleClass+"identity", "Another pool to GitHub"
	case class == review.Routing:
		f.Rule, f.Title = ruleClass+"routing", "Jobs go elsewhere"
	default:
		f.Level, f.Rule = Note, ruleClass+strings.ToLower(string(class))
		f.Title = map[review.Class]string{review.Template: "Runners are rolled", review.Scale: "Other numbers"}[class]
		f.Title = cmp.Or(f.Title, "Other settings")
	}
	f.Message = cmp.Or(f.Message, changeWord(p))
	return f, true
}

// newBounds are the rules that bound a number at the head otherwise than at the base.
func newBounds(p *review.Pool) []v1alpha1.LimitBound {
	if p.After == nil {
		return nil
	}
	known := map[string]bool{}
	key := func(b v1alpha1.LimitBound) string {
		return fmt.Sprint(b.Field, b.Declared, b.Value, b.Rule.Policy, b.Rule.Name, b.Reason)
	}
	if p.Before != nil {
		for _, b := range p.Before.Bounds {
			known[key(b)] = true
		}
	}
	var bounds []v1alpha1.LimitBound
	for _, b := range p.After.Bounds {
		if !known[key(b)] {
			bounds = append(bounds, b)
		}
	}
	return bounds
}

func connectionFinding(c review.Connection) Finding {
	f := Finding{
		Level: Note, Rule: ruleConnection, Title: "Connection changed", Subject: "connection " + wording.Qualified(c.Namespace, c.Name),
		Message: strings.Join(c.Effects, " "), Place: placeAtHead(c.BaseAt, c.HeadAt),
	}
	if c.Class == review.Identity {
		f.Level = Warning
	}
	f.Message = cmp.Or(f.Message, strings.ToLower(string(c.Change)))
	return f
}

func policyFinding(p review.PolicyChange) Finding {
	f := Finding{Level: Note, Rule: rulePolicy, Title: "Policy changed", Subject: p.Policy, Place: placeAtHead(p.BaseAt, p.HeadAt)}
	f.Message = strings.ToLower(string(p.Change)) + ", " + movesNone
	if len(p.Moved) > 0 {
		f.Message = fmt.Sprintf("%s, moves %s: %s", strings.ToLower(string(p.Change)), wording.Count(len(p.Moved), "pool"), strings.Join(p.Moved, ", "))
	}
	return f
}

// placeAtHead is a place at the head. Of what is only at the base there is the file: its lines are others now.
func placeAtHead(base, head *review.Place) Place {
	switch {
	case head != nil:
		return Place(*head)
	case base != nil:
		return Place{File: base.File}
	}
	return Place{}
}

// ruleText names a rule and its policy.
func ruleText(r v1alpha1.RuleReference) string {
	text := r.Name
	if r.Policy != "" {
		text = strings.TrimPrefix(text+" of "+r.Policy, " of ")
	}
	if at := (Place{File: r.File, Line: r.Line}).String(); at != "" {
		text += ", " + at
	}
	return text
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/schema"
)

// Rules of findings that aren't a policy's.
const (
	ruleDefinition  = "corral.definition"
	ruleFailed      = "corral.policy.failed"
	ruleNotAsked    = "corral.policy.not-asked"
	ruleEffect      = "corral.policy.effect"
	ruleSchedule    = "corral.schedule"
	ruleCompeting   = "corral.pool.competing"
	ruleUncommitted = "corral.file.uncommitted"
	ruleConnection  = "corral.pool.connection"
	ruleCredentials = "corral.pool.credentials"
	ruleUnfinished  = "corral.connection.unfinished"
	ruleScaleSet    = "corral.pool.scale-set"
	ruleTrust       = "corral.pool.certificates"
	rulePersistent  = "corral.pool.persistent"
	ruleQuota       = "corral.pool.quota"
	ruleCache       = "corral.pool.cache"
	ruleGone        = "corral.pool.gone"
	ruleSchema      = "corral.schema.stale"
	ruleTest        = "corral.test"
	ruleCoverage    = "corral.coverage"
)

// findings lists all that vet found.
func (r *vetReport) findings() []report.Finding {
	return append(diagnosed(r.Diagnostics), r.found()...)
}

// found is what was found in definitions that are well: alike findings are one.
func (r *vetReport) found() []report.Finding {
	var findings []report.Finding
	for _, p := range r.Policies {
		if p.Remark != "" {
			findings = append(findings, report.Finding{
				Level: report.Warning, Rule: ruleNotAsked, Title: "Policy not asked", Subject: p.Policy, Message: p.Remark,
				Place: report.Place{File: p.File, Line: p.Line},
			})
		}
	}
	findings = append(findings, r.warnings...)
	for _, p := range r.Pools {
		findings = append(findings, p.findings(r.titles)...)
	}
	return report.Grouped(findings)
}

// warning is a finding of what is declared well, and is likely not what is meant.
func warning(rule, title string, d v1alpha1.Diagnostic) report.Finding {
	return report.Finding{
		Level: report.Warning, Rule: rule, Title: title, Path: d.Path, Message: "warning: " + d.Message,
		Place: report.Place{File: d.File, Line: d.Line, Column: d.Column},
	}
}

// titlesOf reads the titles in the metadata of rules, those of the library too.
func titlesOf(policies []*declaredPolicy) map[annotated]string {
	titles := map[annotated]string{}
	add := func(ref string, modules map[string]string) {
		annotations, _ := policy.Annotations(modules) // they were loaded: there is nothing wrong with them
		for _, a := range annotations {
			if a.Title != "" {
				titles[annotated{ref, a.File, a.Line}] = a.Title
			}
		}
	}
	for _, p := range policies {
		add(p.source.Ref(), p.source.Modules)
	}
	if library, err := policy.LibraryModules(); err == nil {
		add("", library)
	}
	return titles
}

// titleOf returns a rule's title, if it has one.
func titleOf(titles map[annotated]string, r rule, otherwise string) string {
	own, library := titles[r.at], titles[annotated{"", r.at.module, r.at.line}]
	return cmp.Or(own, library, otherwise)
}

// diagnosed are the findings of diagnostics.
func diagnosed(diagnostics []v1alpha1.Diagnostic) []report.Finding {
	var findings []report.Finding
	for _, d := range diagnostics {
		findings = append(findings, report.Finding{
			Level: report.Error, Rule: ruleDefinition, Title: "Definition refused", Message: d.Message, Path: d.Path,
			Place: report.Place{File: d.File, Line: d.Line, Column: d.Column},
		})
	}
	return findings
}

// findings lists what policies say of the pool.
func (p vetPool) findings(titles map[annotated]string) []report.Finding {
	var findings []report.Finding
	add := func(f report.Finding) {
		f.Subject = "pool " + p.name()
		f.Place = report.Place{File: p.File, Line: p.Line, Column: p.Column}
		findings = append(findings, f)
	}
	for _, v := range p.Template.Denials {
		add(p.judged(v, report.Error, titleOf(titles, v.Rule, "Denied by policy"), "denied: "))
	}
	for _, f := range p.failures() {
		add(report.Finding{Level: report.Error, Rule: ruleFailed, Title: "Policy failed", Message: "a policy failed, so nothing is decided: " + f.String(), Path: p.Path})
	}
	for _, v := range p.Template.Warnings {
		add(p.judged(v, report.Warning, titleOf(titles, v.Rule, "Warning by policy"), "warning: "))
	}
	for _, note := range p.notes() {
		add(report.Finding{Level: report.Note, Rule: ruleEffect, Title: "Effect of policies", Message: note, Path: p.Path})
	}
	return findings
}

// failures of all decisions, each once.
func (p vetPool) failures() []policy.Failure {
	var all []policy.Failure
	for _, f := range slices.Concat(p.Template.Failures, p.Scaling.Failures, p.Update.Failures) {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// ruleID tells rules of one set apart by their codes.
func (v verdict) ruleID() string {
	if v.Code == "" || strings.Contains(v.Rule.Name, v.Code) {
		return v.Rule.Name
	}
	return v.Rule.Name + "/" + v.Code
}

func (p vetPool) judged(v verdict, level report.Level, title, prefix string) report.Finding {
	f := report.Finding{
		Level: level, Rule: v.ruleID(), Title: title, Message: prefix + v.Message, Help: v.Remediation,
		Path: p.Path + ".spec.template", Source: report.Place{File: v.Rule.File, Line: v.Rule.Line}, By: v.Rule.full(),
	}
	if v.Path != "" {
		f.Path += "." + v.Path
	}
	return f
}

// plain writes a finding as text: a line as compilers do, and below it what more there is.
func plain(f report.Finding) string {
	var b strings.Builder
	if f.Place.File != "" {
		b.WriteString(f.Place.String())
		if f.Place.Column > 0 {
			fmt.Fprintf(&b, ":%d", f.Place.Column)
		}
		b.WriteString(": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	} else if f.Subject != "" {
		b.WriteString(f.Subject + ": ")
	}
	b.WriteString(f.Message + "\n")
	if f.By != "" {
		fmt.Fprintf(&b, "  rule: %s\n", f.By)
	}
	if f.Help != "" {
		fmt.Fprintf(&b, "  fix: %s\n", f.Help)
	}
	return b.String()
}

// checkoutOf is the top folder of the repository that a folder is in, or else of what GitHub checked out; empty if there is neither.
func checkoutOf(folder string) string {
	workspace := os.Getenv("GITHUB_WORKSPACE")
	dir, err := filepath.Abs(folder)
	for ; err == nil && dir != workspace; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return workspace
}

// fromCheckout names files as GitHub knows them: from the top of the repository that a folder is in, also when a command works in a
// folder of it.
func fromCheckout(folder string, findings []report.Finding) []report.Finding {
	checkout := checkoutOf(folder)
	if checkout == "" {
		return findings
	}
	rename := func(file string) string {
		absolute, err := filepath.Abs(file)
		if err != nil || file == "" {
			return file
		}
		rel, err := filepath.Rel(checkout, absolute)
		if err != nil || !filepath.IsLocal(rel) {
			return file
		}
		return filepath.ToSlash(rel)
	}
	for i := range findings {
		findings[i].Place.File, findings[i].Source.File = rename(findings[i].Place.File), rename(findings[i].Source.File)
	}
	return findings
}

// suites tells the report as tests: one row a mistake, and a row for each pool with what policies say of it.
func (r *vetReport) suites() []report.Suite {
	policies, pools := report.Suite{Name: "policies"}, report.Suite{Name: "pools"}
	for _, f := range r.found() {
		if f.Level == report.Error {
			policies.Cases = append(policies.Cases, failing(f))
		}
	}
	for _, p := range r.Pools {
		var output strings.Builder
		p.Template.write(&output)
		p.Scaling.write(&output)
		p.Update.write(&output)
		pools.Cases = append(pools.Cases, report.Case{
			Name: p.name(), Place: report.Place{File: p.File, Line: p.Line}, Output: output.String(), Skipped: p.isRefused(),
		})
	}
	suites := []report.Suite{definitionSuite(r.Diagnostics)}
	for _, s := range []report.Suite{policies, pools} {
		if len(s.Cases) > 0 {
			suites = append(suites, s)
		}
	}
	return suites
}

// definitionSuite is a case for each mistake, or one that passes.
func definitionSuite(diagnostics []v1alpha1.Diagnostic) report.Suite {
	suite := report.Suite{Name: "definitions"}
	for _, f := range diagnosed(diagnostics) {
		suite.Cases = append(suite.Cases, failing(f))
	}
	if len(suite.Cases) == 0 {
		suite.Cases = []report.Case{{Name: "compile"}}
	}
	return suite
}

// failing is a finding as a test that fails.
func failing(f report.Finding) report.Case {
	name := f.Rule
	if f.Path != "" {
		name += " " + f.Path
	}
	return report.Case{Name: name, Place: report.Place{File: f.Place.File, Line: f.Place.Line}, Failure: strings.TrimSuffix(plain(f), "\n")}
}

// staleSchema warns of a copy of the schema that differs from the one of this corral, which vet and the controller go by.
func (w *workspace) staleSchema() []report.Finding {
	files := map[string][]byte{}
	if err := addSchema(files); err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(filepath.Join(w.root, filepath.FromSlash(name)))
		if err == nil && !bytes.Equal(text, files[name]) {
			return []report.Finding{{
				Level: report.Warning, Rule: ruleSchema, Title: "Stale schema", Place: report.Place{File: name, Line: 1, Column: 1},
				Message: fmt.Sprintf("the copy of the schema differs from %s, which this corral has: editors and the cue command go by other rules than vet; run corral init --schema-only", schema.Version),
			}}
		}
	}
	return nil
}

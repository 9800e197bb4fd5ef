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
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/schema"
)

// Rules of Corral's own findings. The rule of a policy's finding has the name of the Rego rule.
const (
	ruleDefinition  = "corral.definition"
	ruleFailed      = "corral.policy.failed"
	ruleNotAsked    = "corral.policy.not-asked"
	ruleEffect      = "corral.policy.effect"
	ruleSchedule    = "corral.schedule"
	ruleCompeting   = "corral.pool.competing"
	ruleUncommitted = "corral.file.uncommitted"
	ruleUnread      = "corral.file.unread"
	ruleForeign     = "corral.object.foreign"
	ruleConnection  = "corral.pool.connection"
	ruleCredentials = "corral.pool.credentials"
	ruleUnfinished  = "corral.connection.unfinished"
	ruleScaleSet    = "corral.pool.scale-set"
	ruleLabels      = "corral.pool.labels"
	ruleWorkFolder  = "corral.pool.work-folder"
	ruleTrust       = "corral.pool.certificates"
	rulePersistent  = "corral.pool.persistent"
	ruleQuota       = "corral.pool.quota"
	ruleCache       = "corral.pool.cache"
	ruleGone        = "corral.pool.gone"
	ruleSchema      = "corral.schema.stale"
	ruleCommand     = "corral.pool.command"
	ruleDoubt       = "corral.policy.doubt"
	ruleTest        = "corral.test"
	ruleCoverage    = "corral.coverage"
)

// findings returns all findings, including the diagnostics.
func (r *vetReport) findings() []report.Finding {
	return append(definitionFindings(r.Diagnostics), r.results()...)
}

// results returns the findings except diagnostics. It combines equal findings about many pools, see report.Grouped.
func (r *vetReport) results() (findings []report.Finding) {
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

// warning returns a finding about a valid declaration that is probably a mistake.
func warning(rule, title string, d v1alpha1.Diagnostic) report.Finding {
	return report.Finding{
		Level: report.Warning, Rule: rule, Title: title, Path: d.Path, Message: "warning: " + d.Message,
		Place: report.Place{File: d.File, Line: int(d.Line), Column: int(d.Column)},
	}
}

// titlesOf returns the titles in the metadata of the rules of policies and of the built-in library.
func titlesOf(policies []*declaredPolicy) map[annotated]string {
	titles := map[annotated]string{}
	add := func(ref string, modules map[string]string) {
		annotations, _ := policy.Annotations(modules) // the modules were loaded, so they are valid
		for _, a := range annotations {
			if a.Title != "" {
				titles[annotated{ref, a.File, a.Line}] = a.Title
			}
		}
	}
	for _, p := range policies {
		add(p.source.Ref(), p.source.Modules)
	}
	add("", policy.LibraryModules())
	return titles
}

// titleOf returns the title of a rule, or the text otherwise if the rule has no title.
func titleOf(titles map[annotated]string, r rule, otherwise string) string {
	own, library := titles[r.at], titles[annotated{"", r.at.module, r.at.line}]
	return cmp.Or(own, library, otherwise)
}

// definitionFindings converts diagnostics into findings.
func definitionFindings(diagnostics []v1alpha1.Diagnostic) []report.Finding {
	return converted(diagnostics, func(d v1alpha1.Diagnostic) report.Finding {
		return report.Finding{
			Level: report.Error, Rule: ruleDefinition, Title: "Definition refused", Message: d.Message, Path: d.Path,
			Place: report.Place{File: d.File, Line: int(d.Line), Column: int(d.Column)},
		}
	})
}

// findings returns the results of policies for the pool.
func (p *vetPool) findings(titles map[annotated]string) (findings []report.Finding) {
	add := func(level report.Level, rule, title, message string) {
		findings = append(findings, report.Finding{Level: level, Rule: rule, Title: title, Subject: "pool " + p.name(), Message: message, Place: p.Place, Path: p.Path})
	}
	judged := func(level report.Level, verdicts []verdict, title, prefix string) {
		for _, v := range verdicts {
			add(level, v.ruleID(), titleOf(titles, v.Rule, title), prefix+v.Message)
			f := &findings[len(findings)-1]
			f.Path = p.Path + "." + podspec.DeclaredPath(p.declared, strings.TrimSuffix("spec.template."+v.Path, "."))
			f.Source = v.Rule.Place
			f.By, f.Help = v.Rule.qualified(), v.Remediation
		}
	}
	judged(report.Error, p.Template.Denials, "Denied by policy", "denied: ")
	for _, f := range p.failures() {
		add(report.Error, ruleFailed, "Policy failed", "a policy failed, so nothing is decided: "+f.String())
	}
	judged(report.Warning, p.Template.Warnings, "Warning by policy", "warning: ")
	for _, note := range p.notes() {
		add(report.Note, ruleEffect, "Effect of policies", note)
	}
	return findings
}

// ruleID returns the name of the rule and the code of the verdict, because one rule can contain several checks with
// different codes.
func (v verdict) ruleID() string {
	if v.Code == "" || strings.Contains(v.Rule.Name, v.Code) {
		return v.Rule.Name
	}
	return v.Rule.Name + "/" + v.Code
}

// checkoutOf returns the top folder of the Git repository that contains a folder, or else the folder of the checkout in a
// GitHub workflow; empty if there is neither.
func checkoutOf(folder string) string {
	workspace := os.Getenv("GITHUB_WORKSPACE")
	for dir, err := filepath.Abs(folder); err == nil && dir != workspace && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
	}
	return workspace
}

// fromCheckout changes the file names in findings to names relative to the top of the repository that contains a folder, as
// GitHub expects them.
func fromCheckout(folder string, findings []report.Finding) []report.Finding {
	checkout := checkoutOf(folder)
	rename := func(file *string) {
		absolute, err := filepath.Abs(*file)
		rel, relErr := filepath.Rel(checkout, absolute)
		if err == nil && relErr == nil && *file != "" && filepath.IsLocal(rel) {
			*file = filepath.ToSlash(rel)
		}
	}
	for i := range findings {
		rename(&findings[i].Place.File)
		rename(&findings[i].Source.File)
	}
	return findings
}

// suites returns the report as test suites: a failed case for each error, and a case for each pool with the decisions of
// policies. The case of a refused pool is skipped, because another case reports the error.
func (r *vetReport) suites() []report.Suite {
	policies, pools := report.Suite{Name: "policies"}, report.Suite{Name: "pools"}
	for _, f := range r.results() {
		if f.Level == report.Error {
			policies.Cases = append(policies.Cases, failedCase(f))
		}
	}
	for _, p := range r.Pools {
		c := report.Case{Name: p.name(), Place: p.Place, Result: report.Pass, Output: texts.Execute("answers", &p.answers)}
		if p.isRefused() {
			c.Result = report.Skip
		}
		pools.Cases = append(pools.Cases, c)
	}
	suites := []report.Suite{definitionSuite(r.Diagnostics), policies, pools}
	return slices.DeleteFunc(suites, func(s report.Suite) bool { return len(s.Cases) == 0 })
}

// definitionSuite returns a suite with a failed case for each diagnostic, or with a single case that passes if there are
// none.
func definitionSuite(diagnostics []v1alpha1.Diagnostic) report.Suite {
	if len(diagnostics) == 0 {
		return report.Suite{Name: "definitions", Cases: []report.Case{{Name: "compile", Result: report.Pass}}}
	}
	return report.Suite{Name: "definitions", Cases: converted(definitionFindings(diagnostics), failedCase)}
}

// failedCase converts a finding into a failed case.
func failedCase(f report.Finding) report.Case {
	return report.Case{Name: strings.TrimSpace(f.Rule + " " + f.Path), Place: f.Place, Result: report.Fail, Failure: strings.TrimSuffix(texts.Execute("finding", f), "\n")}
}

// staleSchema warns if the copy of the schema in the repository differs from the built-in schema, which vet and the
// controller use.
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
				Message: fmt.Sprintf("the copy of the schema differs from the built-in version %s, so that editors and the cue command apply other rules than vet: run corral init --schema-only", schema.Version),
			}}
		}
	}
	return nil
}

// doubts returns warnings about valid rules that probably do not have the effect that their author intended.
func (w *workspace) doubts() (found []report.Finding) {
	for _, p := range w.deciding() {
		for _, d := range p.translate(p.loaded.Facts().Doubts) {
			f := warning(ruleDoubt, "Rule may not do what it is meant to do", d)
			f.Subject = p.source.Ref()
			found = append(found, f)
		}
	}
	return found
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package review compares the output of `corral review` with an oracle. It generates pull requests over a
// generated fleet. The oracle predicts the effect on each pool with its own arithmetic, from the intended fleet
// rather than from the files.
package review

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/cli"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/worker"
	"github.com/corral-dev/corral/test/inprocess"
)

func TestMain(m *testing.M) {
	if worker.IsChild() {
		worker.Main()
	}
	os.Exit(m.Run())
}

// save writes a side to a folder.
func (f *fleet) save(t *testing.T, folder string) {
	t.Helper()
	f.files, f.places = map[string]string{}, map[string]string{}
	f.render()
	for name, text := range f.files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// corral runs `corral review`. It returns the printed text and the decoded JSON report.
func corral(t *testing.T, folder, own string) (text string, r review.Result) {
	t.Helper()
	t.Chdir(folder)
	written, rules := filepath.Join(t.TempDir(), "review.json"), filepath.Join(t.TempDir(), "guard.rego")
	if err := os.WriteFile(rules, []byte(guard), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	root := cli.NewRoot("v1.2.3")
	root.SetContext(cli.WithEngines(t.Context(), inprocess.Compiler{}, &inprocess.Evaluator{}))
	root.SetArgs([]string{"review", "base", "head", "--at", at.Format(rfc3339), "--policy", rules, "--write", "json=" + written, "--namespace", own})
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	cli.Run(root)
	data, err := os.ReadFile(written)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return stdout.String(), r
}

// factsOf returns the reported facts about a pool, in the oracle's form.
func factsOf(p *review.Pool) []string {
	facts := []string{
		fmt.Sprintf("%s %v loses jobs: %t", p.Change, p.Classes, p.LosesJobs),
		fmt.Sprintf("declared at %s → %s", placed(p.BaseAt), placed(p.HeadAt)),
		"limits " + limitsOf(p.Before) + " → " + limitsOf(p.After),
	}
	for _, f := range p.Fields {
		facts = append(facts, fmt.Sprintf("%s of %s at %s", f.Class, f.Path, placed(cmp.Or(f.HeadAt, f.BaseAt))))
	}
	for _, f := range p.Findings {
		facts = append(facts, fmt.Sprintf("%s %s %s at %s by %s", f.State, f.Level, f.Code, placed(&f.At), placed(&review.Place{File: f.Rule.File, Line: int(f.Rule.Line)})))
	}
	for _, effect := range p.Effects {
		if from, _, ok := strings.Cut(effect, " on, its limits are "); ok {
			facts = append(facts, strings.ToLower(from[:1])+from[1:])
		}
	}
	slices.Sort(facts)
	return facts
}

// placed returns a position without the folder of its side.
func placed(p *review.Place) string {
	if p == nil {
		return ""
	}
	_, at, _ := strings.Cut(p.String(), "/")
	return at
}

// seen holds the facts and costs of a pool that the test compares.
type seen struct {
	Facts []string
	Costs [2]*amounts
}

func costsOf(c *review.Cost) (costs [2]*amounts) {
	if c != nil {
		costs = [2]*amounts{(*amounts)(c.Before), (*amounts)(c.After)}
	}
	return costs
}

func limitsOf(l *review.Limits) string {
	switch {
	case l == nil:
		return "none"
	case l.Effective == nil:
		return "undecided"
	}
	text := fmt.Sprintf("{%d %d %d}", l.Effective.Min, l.Effective.Max, l.Effective.Idle)
	if l.AssignedJobs == v1alpha1.AssignedJobsWait {
		text += " jobs wait"
	}
	if len(l.Audit) > 0 {
		text += " audited"
	}
	return text
}

// Set CORRAL_REVIEWS to run more than 60 reviews.
func TestReviewsAgreeWithAnOracle(t *testing.T) {
	t.Setenv("GITHUB_WORKSPACE", "")
	pullRequests, err := strconv.Atoi(cmp.Or(os.Getenv("CORRAL_REVIEWS"), "60"))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(pullRequests) {
		i := int(seed)
		own := []string{"", "ci"}[i%2]
		r, same := rand.New(rand.NewPCG(17, seed)), rand.New(rand.NewPCG(17, seed))
		base, head := newFleet(r, own), newFleet(same, own)
		a := &author{Rand: r, fleet: head, touched: map[int]bool{}}
		chosen := []int{i % len(edits)}
		for range i % 4 {
			chosen = append(chosen, r.IntN(len(edits)))
		}
		var names []string
		for n, e := range chosen {
			if n == 0 || !slices.Contains(lonely, edits[e].name) && !slices.Contains(chosen[:n], e) {
				edits[e].make(a)
				names = append(names, edits[e].name)
			}
		}
		t.Run(fmt.Sprintf("%02d %s", i, strings.Join(names, " and ")), func(t *testing.T) { compare(t, base, head, a.texts) })
	}
}

// compare compares a review with the oracle's prediction.
func compare(t *testing.T, base, head *fleet, texts []string) {
	t.Helper()
	folder := t.TempDir()
	base.save(t, filepath.Join(folder, "base"))
	head.save(t, filepath.Join(folder, "head"))
	text, got := corral(t, folder, base.own)
	want := (&pair{base, head}).judgeAll()
	if first, _, _ := strings.Cut(text, "\n"); first != want.line() {
		t.Errorf("the first line is\n%s, want\n%s", first, want.line())
	}
	reported, predicted := map[string]seen{}, map[string]seen{}
	for i := range got.Pools {
		p := &got.Pools[i]
		reported[strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")] = seen{factsOf(p), costsOf(p.Cost)}
	}
	for _, j := range want.pools {
		if j.isListed {
			predicted[name(cmp.Or(j.head, j.base))] = seen{j.facts, j.cost}
		}
	}
	const cent = 0.011 // half a cent may be rounded either way
	if diff := gocmp.Diff(predicted, reported, cmpopts.EquateApprox(0, cent)); diff != "" {
		t.Errorf("of pools (-want +got):\n%s", diff)
	}
	var problems []string
	for _, d := range got.Head.Diagnostics {
		problems = append(problems, placed(&review.Place{File: d.File, Line: int(d.Line)}))
	}
	slices.Sort(problems)
	slices.Sort(want.problems)
	if !slices.Equal(problems, want.problems) {
		t.Errorf("problems at %v, want %v", problems, want.problems)
	}
	if head.broken < 0 && head.prices != nil {
		if diff := gocmp.Diff([2]*amounts{&want.cost[0], &want.cost[1]}, costsOf(got.Cost), cmpopts.EquateApprox(0, 10*cent)); diff != "" {
			t.Errorf("costs of side (-want +got):\n%s", diff)
		}
	}
	for _, s := range texts {
		if head.broken < 0 && !strings.Contains(text, s) {
			t.Errorf("there is no %q in\n%s", s, text)
		}
	}
	if t.Failed() && testing.Verbose() {
		t.Log(text)
	}
}

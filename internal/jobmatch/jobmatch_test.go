// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobmatch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

var (
	repo       = Scope{Host: "github.com", Kind: Repository, Path: "Acme/web"}
	org        = Scope{Host: "github.com", Kind: Organization, Path: "acme"}
	enterprise = Scope{Host: "github.com", Kind: Enterprise, Path: "big"}
	day        = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
)

func pool(name string, s Scope, labels ...string) Pool {
	return NewPool(Pool{Namespace: "ci", Name: name, Scope: s, Created: day}, registered(labels))
}

// registered returns the labels of a runner in these tests, on x64 unless arm64 is declared.
func registered(labels []string) []string {
	arch := "x64"
	if slices.ContainsFunc(labels, func(l string) bool { return strings.EqualFold(l, "arm64") }) {
		arch = "ARM64"
	}
	return append([]string{"self-hosted", "Linux", arch}, labels...)
}

func with(p Pool, change func(*Pool)) Pool {
	change(&p)
	p.repositories = CompileRepositories(p.Repositories)
	return p
}

func job(labels ...string) Job {
	return Job{Host: "github.com", Repository: "acme/Web", Enterprise: "big", Labels: labels}
}

func TestOnePoolWins(t *testing.T) {
	older := func(p *Pool) { p.Created = day.Add(-time.Hour) }
	inGroup := func(p *Pool) { p.Group = "builders" }
	cases := map[string]struct {
		job    Job
		pools  []Pool
		hidden map[string]bool
		want   string
	}{
		"labels whatever their case":            {job: job("GPU"), pools: []Pool{pool("a", org, "gpu")}, want: "a"},
		"each label must be there":              {job: job("gpu", "big"), pools: []Pool{pool("a", org, "gpu")}},
		"those of each runner count as there":   {job: job("self-hosted", "Linux", "X64", "gpu"), pools: []Pool{pool("a", org, "gpu")}, want: "a"},
		"another architecture is not there":     {job: job("arm64", "gpu"), pools: []Pool{pool("a", org, "gpu")}},
		"a declared architecture is":            {job: job("arm64", "gpu"), pools: []Pool{pool("a", org, "gpu", "ARM64")}, want: "a"},
		"and no other":                          {job: job("x64", "gpu"), pools: []Pool{pool("a", org, "gpu", "ARM64")}},
		"a job without labels":                  {job: job(), pools: []Pool{pool("a", org, "gpu")}},
		"a job on GitHub's own runners":         {job: job("ubuntu-latest"), pools: []Pool{pool("a", org, "gpu")}},
		"the repository's first":                {job: job("gpu"), pools: []Pool{pool("a", enterprise, "gpu"), pool("b", org, "gpu"), with(pool("c", repo, "gpu", "x", "y"), func(p *Pool) { p.Created = day.Add(1) })}, want: "c"},
		"the organization's before":             {job: job("gpu"), pools: []Pool{pool("a", enterprise, "gpu"), pool("b", org, "gpu")}, want: "b"},
		"a group before the default":            {job: job("gpu"), pools: []Pool{with(pool("a", org, "gpu"), older), with(pool("b", org, "gpu", "big"), inGroup)}, want: "b"},
		"the fewest labels beyond":              {job: job("gpu"), pools: []Pool{with(pool("a", org, "gpu", "big"), older), pool("b", org, "gpu")}, want: "b"},
		"the older":                             {job: job("gpu"), pools: []Pool{pool("a", org, "gpu"), with(pool("b", org, "gpu"), older)}, want: "b"},
		"the first by name":                     {job: job("gpu"), pools: []Pool{pool("b", org, "gpu"), pool("a", org, "gpu")}, want: "a"},
		"one that rests comes last":             {job: job("gpu"), pools: []Pool{with(pool("a", repo, "gpu"), func(p *Pool) { p.Resting = true }), pool("b", enterprise, "gpu", "big")}, want: "b"},
		"and gets what no other gets":           {job: job("gpu"), pools: []Pool{with(pool("a", repo, "gpu"), func(p *Pool) { p.Resting = true })}, want: "a"},
		"a group that the repository can't use": {job: job("gpu"), pools: []Pool{pool("a", repo, "gpu"), pool("b", org, "gpu")}, hidden: map[string]bool{"a": true}, want: "b"},
		"another organization":                  {job: Job{Host: "github.com", Repository: "other/web", Labels: []string{"gpu"}}, pools: []Pool{pool("a", org, "gpu")}},
		"another repository":                    {job: Job{Host: "github.com", Repository: "acme/api", Labels: []string{"gpu"}}, pools: []Pool{pool("a", repo, "gpu")}},
		"another enterprise":                    {job: Job{Host: "github.com", Repository: "acme/web", Enterprise: "small", Labels: []string{"gpu"}}, pools: []Pool{pool("a", enterprise, "gpu")}},
		"another GitHub":                        {job: Job{Host: "ghe.acme.io", Repository: "acme/web", Labels: []string{"gpu"}}, pools: []Pool{pool("a", org, "gpu")}},
		"a user's repository":                   {job: Job{Host: "github.com", Repository: "acme/web", OfUser: true, Labels: []string{"gpu"}}, pools: []Pool{pool("a", org, "gpu"), pool("b", repo, "gpu")}, want: "b"},
		"and no organization's runners":         {job: Job{Host: "github.com", Repository: "acme/web", OfUser: true, Enterprise: "big", Labels: []string{"gpu"}}, pools: []Pool{pool("a", org, "gpu"), pool("b", enterprise, "gpu")}},
		"a repository that isn't one":           {job: Job{Host: "github.com", Repository: "acme", Labels: []string{"gpu"}}, pools: []Pool{pool("a", org, "gpu")}},
		"repositories by pattern":               {job: job("gpu"), pools: []Pool{with(pool("a", org, "gpu"), func(p *Pool) { p.Repositories = []string{"acme/api", "ACME/w*"} })}, want: "a"},
		"and no other repository":               {job: job("gpu"), pools: []Pool{with(pool("a", org, "gpu"), func(p *Pool) { p.Repositories = []string{"acme/api"} })}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			i := Winner(tc.job, tc.pools, func(i int) Visibility {
				if tc.hidden[tc.pools[i].Name] {
					return Hidden
				}
				return Unknown
			})
			got := ""
			if i >= 0 {
				got = tc.pools[i].Name
			}
			if got != tc.want {
				t.Errorf("the winner is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPoolsCompete(t *testing.T) {
	only := func(patterns ...string) func(*Pool) { return func(p *Pool) { p.Repositories = patterns } }
	in := func(group string) func(*Pool) { return func(p *Pool) { p.Group = group } }
	cases := map[string]struct {
		a, b Pool
		want bool
	}{
		"the same labels":            {a: pool("a", org, "gpu", "Linux"), b: pool("b", org, "GPU"), want: true},
		"other labels":               {a: pool("a", org, "gpu"), b: pool("b", org, "cpu")},
		"more labels":                {a: pool("a", org, "gpu"), b: pool("b", org, "gpu", "big")},
		"another scope":              {a: pool("a", org, "gpu"), b: pool("b", repo, "gpu")},
		"another organization":       {a: pool("a", org, "gpu"), b: pool("b", Scope{Host: "github.com", Kind: Organization, Path: "other"}, "gpu")},
		"one in a group":             {a: pool("a", org, "gpu"), b: with(pool("b", org, "gpu"), func(p *Pool) { p.Group = "builders" })},
		"in two groups":              {a: with(pool("a", org, "gpu"), in("x")), b: with(pool("b", org, "gpu"), in("y"))},
		"both in one group":          {a: with(pool("a", org, "gpu"), in("builders")), b: with(pool("b", org, "gpu"), in("Builders")), want: true},
		"the default group, named":   {a: with(pool("a", org, "gpu"), in("")), b: with(pool("b", org, "gpu"), in("Default")), want: true},
		"repositories apart":         {a: with(pool("a", org, "gpu"), only("acme/web")), b: with(pool("b", org, "gpu"), only("acme/api"))},
		"a repository in common":     {a: with(pool("a", org, "gpu"), only("acme/*")), b: with(pool("b", org, "gpu"), only("acme/api")), want: true},
		"one for all repositories":   {a: pool("a", org, "gpu"), b: with(pool("b", org, "gpu"), only("acme/api")), want: true},
		"the architecture is enough": {a: pool("a", org, "gpu", "arm64"), b: pool("b", org, "gpu")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Compete(&tc.a, &tc.b); got != tc.want {
				t.Errorf("they compete: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestThePoolOfAnObject(t *testing.T) {
	set := &v1alpha1.RunnerPool{Spec: v1alpha1.RunnerPoolSpec{RunnerLabels: []string{"gpu"}, Demand: v1alpha1.DemandSpec{Webhook: &v1alpha1.WebhookDemand{Repositories: []string{"acme/web"}}}}}
	rest := set.DeepCopy()
	rest.Spec.Registration = v1alpha1.RegisterREST
	observes := set.DeepCopy()
	observes.Spec.Mode = v1alpha1.Observe
	for name, tc := range map[string]struct {
		pool *v1alpha1.RunnerPool
		want bool
	}{"a scale set's jobs name its labels only": {set, false}, "a runner has more": {rest, true}, "so have those that are observed": {observes, true}} {
		p := Of(tc.pool, org)
		if got := Winner(job("self-hosted", "linux", "gpu"), []Pool{p}, func(int) Visibility { return Unknown }) == 0; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
		if Winner(Job{Host: "github.com", Repository: "acme/api", Labels: []string{"gpu"}}, []Pool{p}, func(int) Visibility { return Unknown }) == 0 {
			t.Errorf("%s: it takes jobs of another repository", name)
		}
	}
}

func TestScopeOf(t *testing.T) {
	for raw, want := range map[string]Scope{
		"https://github.com/Acme":              org,
		"https://www.GitHub.com/acme/":         org,
		"https://github.com/acme/Web":          {Host: "github.com", Kind: Repository, Path: "acme/web"},
		"https://ghe.acme.io/enterprises/Big":  {Host: "ghe.acme.io", Kind: Enterprise, Path: "big"},
		"https://ghe.acme.io:8443/acme":        {Host: "ghe.acme.io:8443", Kind: Organization, Path: "acme"},
		"https://github.com":                   {},
		"https://github.com/acme/web/settings": {},
		"acme/web":                             {},
		"https://github.com/acme//":            org,
		":":                                    {},
	} {
		if got, ok := ScopeOf(raw); got != want || ok != (want != Scope{}) {
			t.Errorf("ScopeOf(%q) = %+v, %v", raw, got, ok)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, text   string
		want, unbounded bool
	}{
		{"acme/*", "acme/web", true, true},
		{"acme/*", "acme/", true, true},
		{"*/web", "acme/web", true, true},
		{"*", "acme/web", false, true},
		{"acme/w*b", "acme/web", true, true},
		{"acme/w*x", "acme/web", false, false},
		{"release/*", "release/1/2", false, true},
		{"*/*b", "x/y/b", false, true},
		{"*a*b", "xaab", true, true},
		{"a[", "a[", true, true},
		{"a", "aa", false, false},
		{"", "", true, true},
		{"**", "", true, true},
		{"", "a", false, false},
	} {
		if got := Glob(tc.pattern, tc.text); got != tc.want {
			t.Errorf("Glob(%q, %q) = %v", tc.pattern, tc.text, got)
		}
		if got := CompileNames([]string{tc.pattern}).Any(tc.text); got != tc.unbounded {
			t.Errorf("as a name, %q matches %q: %v", tc.pattern, tc.text, got)
		}
	}
}

// Patterns that once took quadratic time visit each character once.
func TestAComparisonIsLinear(t *testing.T) {
	looked := 0
	cut = func(text, wanted string) (string, string, bool) {
		before, after, found := strings.Cut(text, wanted)
		looked += len(before) + len(wanted)
		return before, after, found
	}
	defer func() { cut = strings.Cut }()
	for _, pattern := range []string{
		strings.Repeat("*a", 200) + "*b", "*" + strings.Repeat("a", 500) + "b*", "*" + strings.Repeat("a", 500) + "b", strings.Repeat("*a", 512) + "*ab*", strings.Repeat("*", 1000) + "b*",
	} {
		text := strings.Repeat("a", 1024)
		looked = 0
		if CompileNames([]string{pattern}).Any(text) || Glob(pattern, text) {
			t.Errorf("%.20q matches", pattern)
		}
		if most := 3 * (len(text) + len(pattern)); looked > most { // in two comparisons
			t.Errorf("%.20q of %d characters: %d characters were looked at, want %d at most", pattern, len(pattern), looked, most)
		}
	}
}

// Patterns match as if each * were tried with every number of characters.
func FuzzPatterns(f *testing.F) {
	for _, seed := range [][2]string{{"acme/*", "acme/web"}, {"*a*b", "xaab"}, {"**/", "a/"}, {"", ""}, {"*/*", "/"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 12 || len(text) > 24 {
			return
		}
		if got, want := Glob(pattern, text), tried(pattern, text, "/"); got != want {
			t.Errorf("Glob(%q, %q) = %v", pattern, text, got)
		}
		if got, want := CompileNames([]string{pattern}).Any(text), tried(pattern, text, ""); got != want {
			t.Errorf("as a name, %q matches %q: %v", pattern, text, got)
		}
	})
}

// tried matches by trying everything.
func tried(pattern, text, stop string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] != '*' {
		return text != "" && text[0] == pattern[0] && tried(pattern[1:], text[1:], stop)
	}
	return tried(pattern[1:], text, stop) || text != "" && text[:1] != stop && tried(pattern, text[1:], stop)
}

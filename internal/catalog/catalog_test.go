// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/test/reword"
)

// sample returns a cause of a row with a placeholder for each parameter.
func sample(row *catalog.Row) catalog.Cause {
	var values []any
	for _, name := range row.Parameters() {
		values = append(values, "<"+name+">")
	}
	return row.With(values...).Detailed("<detail>")
}

func TestEachRowCanBeRendered(t *testing.T) {
	for _, row := range catalog.Rows() {
		c := sample(row)
		title, _ := catalog.Title(&c.Cause)
		text := c.String() + catalog.Remedy(&c.Cause) + title
		if text == "" || strings.ContainsAny(text, "{}") {
			t.Errorf("%s: %q", row.Code, text)
		}
		for _, name := range append(slices.Clone(row.Parameters()), "detail") {
			if !strings.Contains(text, "<"+name+">") {
				t.Errorf("%s: %q does not contain %s", row.Code, text, name)
			}
		}
		for _, name := range row.Volatile {
			if !slices.Contains(row.Parameters(), name) {
				t.Errorf("%s has no parameter %s", row.Code, name)
			}
		}
		if base := catalog.Of(row.Reason); row.Reason != "" && base.Title == "" && !catalog.IsFine(row.Code) {
			t.Errorf("%s: its reason %s is unknown", row.Code, row.Reason)
		}
		if row.SameAs != "" && (catalog.Of(row.SameAs).Reason != row.Reason || catalog.Of(row.SameAs).SameAs != "") {
			t.Errorf("%s can't be the same as %s", row.Code, row.SameAs)
		}
	}
}

// Each row is assigned to a variable with the name of its code.
func TestEachRowHasItsName(t *testing.T) {
	define := regexp.MustCompile(`(?m)^\t(\w+)\s+= define\(Row\{Code: (?:"|v1alpha1\.|string\(v1alpha1\.Cause)(\w+?)(?:"|Reason|\))`)
	n := 0
	for _, file := range []string{"reasons.go", "connections.go", "scalesets.go", "policies.go", "sources.go", "pools.go", "runners.go", "findings.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range define.FindAllStringSubmatch(string(text), -1) {
			if n++; m[1] != m[2] {
				t.Errorf("%s: the variable %s has the row %s", file, m[1], m[2])
			}
		}
	}
	if all := len(catalog.Rows()); n != all {
		t.Errorf("%d rows in the files, %d in the catalog: a row is defined twice", n, all)
	}
}

// A code from an unknown release is shown as it is.
func TestUnknownCodesAreNamed(t *testing.T) {
	c := catalog.Text("NewReason", "all is new").Cause
	if row := catalog.Of(c.Code); catalog.Message(&c) != "all is new" || row.Title != "NewReason" || row.Severity != catalog.Warning {
		t.Errorf("%q, %+v", catalog.Message(&c), row)
	}
}

func TestMessages(t *testing.T) {
	for want, causes := range map[string][]catalog.Cause{
		"mounted folder a: cannot read b: no":                                                   {catalog.FolderKeyUnreadable.With("a", "b").Wrap(errors.New("no"))},
		"GitHub responded with 500 to requests made for pools; its token expires on 2026-01-01": {catalog.CallsFailing.With(500), catalog.TokenEnds.With("2026-01-01")},
		"x.cue:1: no\nCorral applied nothing":                                                   {catalog.DefinitionsInvalid.With("x.cue:1: no"), catalog.NothingApplied.With()},
		"the last decision stays in force: p: TimedOut: late\nq: NotLoaded":                     {catalog.PolicyUnavailable.With("p", "TimedOut").Detailed("late"), catalog.PolicyUnavailable.With("q", "NotLoaded"), catalog.DecisionStays.With()},
		"3 runners in a row failed (Crash: exit code 1)":                                        {catalog.CircuitOpen.With(3, "Crash").Detailed("exit code 1")},
	} {
		if got := catalog.Messages(catalog.Plain(causes)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A value that looks like a parameter is not replaced.
func TestValuesAreNoTemplates(t *testing.T) {
	if got := catalog.FetchFailed.With("{detail}").Detailed("{location}").String(); got != "cannot fetch {detail}: {location}" {
		t.Errorf("got %q", got)
	}
}

// Same ignores the wording of causes, and details that may change while a cause lasts.
func TestSame(t *testing.T) {
	cause := catalog.CircuitOpen.With(3, "Crash")
	for name, tc := range map[string]struct {
		a, b []catalog.Cause
		want bool
	}{
		"a count":             {[]catalog.Cause{cause}, []catalog.Cause{catalog.CircuitOpen.With(4, "Crash").Detailed("x").Retry(time.Unix(1, 0))}, true},
		"a fact":              {[]catalog.Cause{cause}, []catalog.Cause{catalog.CircuitOpen.With(3, "ImagePull")}, false},
		"another object":      {[]catalog.Cause{cause}, []catalog.Cause{cause.About("Node", "", "n")}, false},
		"of the same outage":  {[]catalog.Cause{catalog.CallsFailing.With(500)}, []catalog.Cause{catalog.GitHubUnavailable.With()}, true},
		"another limit":       {[]catalog.Cause{catalog.CallsFailing.With(500)}, []catalog.Cause{catalog.CallsRateLimited.With()}, false},
		"what nobody is told": {[]catalog.Cause{cause}, []catalog.Cause{cause, catalog.OfRunner.With("r")}, true},
		"one more":            {[]catalog.Cause{cause}, []catalog.Cause{cause, cause}, false},
	} {
		if got := catalog.Same(catalog.Plain(tc.a), catalog.Plain(tc.b)); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	before := map[string]string{}
	for _, row := range catalog.Rows() {
		before[row.Code] = catalog.Identity([]v1alpha1.Cause{sample(row).Cause})
	}
	reword.All(t)
	for _, row := range catalog.Rows() {
		if catalog.Identity([]v1alpha1.Cause{sample(row).Cause}) != before[row.Code] {
			t.Errorf("%s: %q", row.Code, sample(row))
		}
	}
}

// The reason of another object's condition may exceed the maximum length of a code.
func TestALongReasonIsCut(t *testing.T) {
	causes := catalog.Settle(catalog.Plain([]catalog.Cause{catalog.Text(strings.Repeat("A", 1024), "")}), nil, time.Unix(0, 0))
	if n := len(causes[0].Code); n > v1alpha1.MaxCauseCode {
		t.Errorf("the code has %d bytes", n)
	}
}

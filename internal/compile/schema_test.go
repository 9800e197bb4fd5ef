// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// complete fills the schema's defaults into an object and decodes it.
func complete(t *testing.T, kind, source string, into any) {
	t.Helper()
	c := &compilation{cue: cuecontext.New()}
	definitions, err := c.loadSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := definitions.LookupPath(cue.MakePath(cue.Def(kind))).Unify(c.cue.CompileString(source))
	if err := v.Validate(cue.Concrete(true)); err != nil {
		t.Fatal(err)
	}
	data, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultsOfThePoolAgreeWithTheGetters(t *testing.T) {
	var pool v1alpha1.RunnerPool
	complete(t, "#RunnerPool", `metadata: name: "a", spec: {connectionRef: name: "b", template: spec: containers: [{name: "runner"}]}`, &pool)
	defaults := func(s v1alpha1.RunnerPoolSpec) []any {
		return []any{s.GetRunnerGroup(), s.Scale.GetMin(), s.Scale.GetMax(), s.Scale.GetIdle(), s.Deadlines.GetStartup()}
	}
	if diff := cmp.Diff(defaults(v1alpha1.RunnerPoolSpec{}), defaults(pool.Spec)); diff != "" {
		t.Error(diff)
	}
	if pool.Spec.RunnerGroup == "" || pool.Spec.Scale.Min == nil || pool.Spec.Scale.Idle == nil || pool.Spec.Deadlines.Startup == nil {
		t.Errorf("a default is missing from %+v", pool.Spec)
	}
}

func TestDefaultsOfTheSourceAgreeWithTheGetters(t *testing.T) {
	var source v1alpha1.PoolSource
	complete(t, "#PoolSource", `metadata: name: "a", spec: {git: url: "https://example.com/a", interval: "5m"}`, &source)
	defaults := func(s v1alpha1.PoolSourceSpec) []any {
		return []any{s.GetPath(), s.GetTimeout(), s.GetPrune(), s.GetDeletionPolicy(), s.Git.GetRef()}
	}
	if diff := cmp.Diff(defaults(v1alpha1.PoolSourceSpec{Git: &v1alpha1.GitSource{}}), defaults(source.Spec)); diff != "" {
		t.Error(diff)
	}
	if source.Spec.Path == "" || source.Spec.Timeout == nil || source.Spec.Prune == nil || source.Spec.DeletionPolicy == "" || source.Spec.Git.Ref == nil {
		t.Errorf("a default is missing from %+v", source.Spec)
	}
}

func TestTheReferenceOfASourceIsOneOfFour(t *testing.T) {
	for ref, want := range map[string]v1alpha1.GitReference{
		`branch: "next"`: {Branch: "next"},
		`tag: "v1"`:      {Tag: "v1"},
		`semver: "~1.4"`: {SemVer: "~1.4"},
		`commit: "0123456789012345678901234567890123456789"`: {Commit: "0123456789012345678901234567890123456789"},
	} {
		var source v1alpha1.PoolSource
		complete(t, "#PoolSource", `metadata: name: "a", spec: {git: {url: "https://example.com/a", ref: `+ref+`}, interval: "5m"}`, &source)
		if diff := cmp.Diff(&want, source.Spec.Git.Ref); diff != "" {
			t.Error(diff)
		}
	}
}

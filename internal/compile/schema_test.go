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

// complete unifies an object with the schema and decodes it.
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

// The API server adds defaults. A source that applied them would own fields that its author did not write.
func TestTheSchemaFillsInNoDefault(t *testing.T) {
	for kind, spec := range map[string]string{
		"RunnerPool":          `{"connectionRef":{"name":"b"},"template":{"spec":{"containers":[{"name":"runner"}]}}}`,
		"PoolSource":          `{"git":{"url":"https://example.com/a"},"interval":"5m"}`,
		"GitHubConnection":    `{"secretRef":{"name":"b"},"url":"https://github.com/acme"}`,
		"RunnerPolicy":        `{"library":{"ceilings":[{"by":"Namespace","max":1,"name":"a"}]}}`,
		"ClusterRunnerPolicy": `{"library":{"ceilings":[{"by":"Namespace","max":1,"name":"a"}]}}`,
	} {
		var object struct{ Spec json.RawMessage }
		complete(t, "#"+kind, `metadata: name: "a", spec: `+spec, &object)
		var declared, completed any
		must(t, json.Unmarshal([]byte(spec), &declared))
		must(t, json.Unmarshal(object.Spec, &completed))
		if diff := cmp.Diff(declared, completed); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
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

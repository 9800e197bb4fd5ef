// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "ab", false}, {"a", "A", false},
		{"*", "", true}, {"*", "a.b/c", true}, {"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "a-c-b", false}, {"**", "a", true},
		{"a*ab", "aab", true}, {"a*ab", "ab", false}, {"[a]", "a", false}, {"a?", "ab", false},
	} {
		if got := matches(c.pattern, c.text); got != c.want {
			t.Errorf("%q as %q: %t", c.text, c.pattern, got)
		}
	}
}

// Each case has fields, the allowed values, and the expected result.
func TestUnlisted(t *testing.T) {
	const object = `{"a": {"b.c/d": "x=y", "On": true, "off": false, "zero": 0, "none": [], "null": null, "text": "", "list": [1, "y", {"k": 1}, 0], "number": 7}, ` +
		`"containers": [{"n": "1"}], "initContainers": [{"n": "2"}], "ephemeralContainers": [{"n": "3"}, {"m": "4"}]}`
	for _, c := range []struct{ fields, allowed, want string }{
		{`["a.*"]`, `["*"]`, `set()`},
		{`["a.*"]`, `["On", "text", "list=x", "number=7"]`, `{["a[b.c/d]", "b.c/d=x=y"], ["a.list", "list"]}`},
		{`["a.*"]`, `{"On", "text", "list", "number", "b.c/d=y"}`, `{["a[b.c/d]", "b.c/d=x=y"]}`},
		{`["a.*"]`, `{"On=", "text=", "l*", "num*=*", "b*=x=*"}`, `set()`},
		{`["a.*o*"]`, `["7"]`, `{["a.On", "On"]}`},
		{`["a.*O*"]`, `["7"]`, `{["a.On", "On"]}`},
		{`["a.*T", "a.n*", "a.t*"]`, `[]`, `{["a.list", "list"], ["a.text", ""], ["a.number", "7"], ["a.On", "On"]}`},
		{`["a.list[*]"]`, `["y"]`, `{["a.list[0]", "1"], ["a.list[2]", "list"]}`},
		{`["a.*[*]"]`, `["list"]`, `{["a.list[0]", "1"], ["a.list[1]", "y"]}`},
		{`["containers[*].n"]`, `["2"]`, `{["containers[0].n", "1"], ["ephemeralContainers[0].n", "3"]}`},
		{`["*[*].m", "a.number", "a.nothing.more", "a.number.more", "a[*]", "containers.n"]`, `[]`, `{["ephemeralContainers[1].m", "4"], ["a.number", "7"]}`},
	} {
		rule := fmt.Sprintf("package corral.template\ndeny contains sprintf(\"%%v\", [got]) if {\n\tgot := corral.unlisted(%s, [[%s, %s]])\n\tgot != %s\n}", object, c.fields, c.allowed, c.want)
		got := NewSet(load(t, namespaced(rule))).For(pool()).Template(t.Context(), TemplateInput{Pool: pool(), Pod: []byte("{}")})
		if len(got.Denials) > 0 || len(got.Failures) > 0 {
			t.Errorf("%s but %s: %v %v, want %s", c.fields, c.allowed, got.Denials, got.Failures, c.want)
		}
	}
}

// A field that corral.unlisted cannot read would select nothing, so that the rule would allow every value.
func TestUnlistedRefusesUnreadableFields(t *testing.T) {
	for _, lists := range []string{
		`[["a"]]`, `["a"]`, `[["a", []]]`, `[[{"a": 1}, []]]`, `[[[1], []]]`, `[[[""], []]]`, `[[["a."], []]]`, `[[["a..b"], []]]`,
		`[[["a[_]"], []]]`, `[[["a[_].b"], []]]`, `[[["a[0]"], []]]`, `[[["a[*][*]"], []]]`, `[[["a[*]b"], []]]`, `[[["[*].a"], []]]`, `[[["a.n*er"], []]]`,
	} {
		bad := namespaced("package corral.template\ndeny contains \"\" if corral.unlisted(input.pod, " + lists + ") == set()")
		if got := NewSet(load(t, bad)).For(pool()).Template(t.Context(), TemplateInput{Pool: pool(), Pod: []byte("{}")}); len(got.Failures) != 1 {
			t.Errorf("%s: %+v", lists, got)
		}
	}
}

// The families of a preset are part of a policy's identity and of the data of its rules.
func TestAPresetIsItsFamilies(t *testing.T) {
	preset := Source{Kind: KindClusterRunnerPolicy, Name: "guard", Library: &v1alpha1.PolicyLibrary{
		Preset: v1alpha1.PresetTenant, PodSecurity: &v1alpha1.PodSecurityRules{Level: "baseline"},
	}}
	written := preset
	written.Library = withPreset(preset.Library)
	if written.Library.PodSecurity.Level != "baseline" || written.Library.Secrets == nil || preset.Library.Secrets != nil {
		t.Errorf("%+v", written.Library)
	}
	if p := load(t, preset); p.Digest() != load(t, written).Digest() || p.Digest() == load(t, wholeLibrary()).Digest() {
		t.Error("the digest of a preset isn't that of its families")
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/compile"
)

// A review reports definitions that a PoolSource would reject.
func TestWhatAPoolSourceRefusesIsBroken(t *testing.T) {
	named := func(namespace string) string {
		return change(t, linux, "linux: spec:", "linux: metadata: namespace: \""+namespace+"\"\n\tlinux: spec:")
	}
	twice := linux + "second: schema.#Pools & {linux: {metadata: namespace: \"ci\", spec: {connectionRef: name: \"acme\", scale: max: 4, template: #T}}}\n"
	consenting := func(names string) string {
		return change(t, connections, `acme: spec: {`, `acme: {metadata: namespace: "github", spec: {allowedNamespaces: [`+names+`], `, `name: "app"}`, `name: "app"}}`)
	}
	abroad := change(t, linux, `connectionRef: name: "acme"`, `connectionRef: {name: "acme", namespace: "github"}`)
	undeclared := change(t, linux, `"acme"`, `"acne"`)
	const foreign = `p.cue:6:2: pools.linux: it names namespace team-a, and a PoolSource applies only into its own, ci; leave metadata.namespace out`
	for name, tt := range map[string]struct {
		base, head files
		namespace  string
		want       []string
	}{
		"a foreign namespace":                           {files{"p.cue": linux}, files{"p.cue": named("team-a")}, "ci", []string{foreign}},
		"the own namespace":                             {files{"p.cue": linux}, files{"p.cue": named("ci")}, "ci", nil},
		"one namespace, and none is said to be the own": {files{"p.cue": linux}, files{"p.cue": named("team-a")}, "", nil},
		"two namespaces, and none is said to be the own": {
			files{"p.cue": named("ci")}, files{"p.cue": named("ci") + "more: schema.#Pools & {mac: {metadata: namespace: \"team-a\", spec: {connectionRef: {name: \"acme\", namespace: \"github\"}, template: #T}}}\n"}, "",
			[]string{`p.cue:13:24: more.mac: it names namespace team-a, and a PoolSource applies only into its own, ci; leave metadata.namespace out`},
		},
		"a name taken twice": {
			files{"p.cue": linux}, files{"p.cue": twice}, "ci",
			[]string{"p.cue:12:26: second.linux: RunnerPool linux is declared twice, here and at p.cue:6 (pools.linux)"},
		},
		"a kind that it doesn't apply": {
			files{"p.cue": linux}, files{"p.cue": linux, "s.cue": "package pools\n\nsecret: {apiVersion: \"v1\", kind: \"Secret\", metadata: name: \"a\"}\n"}, "",
			[]string{"s.cue:3:1: secret: v1 Secret is not applied from here: secrets don't belong in Git: create the Secret in the cluster and name it in spec.secretRef"},
		},
		"a connection that isn't declared": {
			files{"p.cue": linux}, files{"p.cue": undeclared}, "ci",
			[]string{"p.cue:7:3: pools.linux.spec.connectionRef: there is no GitHubConnection ci/acne: declare it, or name another"},
		},
		"a connection that wasn't declared before": {files{"p.cue": undeclared}, files{"p.cue": change(t, undeclared, "50", "60")}, "ci", nil},
		"a connection that is no longer declared": {
			files{"p.cue": linux}, files{"p.cue": linux, "connections.cue": change(t, connections, "\tacme: spec: {url: \"https://github.com/acme\", secretRef: name: \"app\"}\n", "")}, "ci",
			[]string{"p.cue:7:3: pools.linux.spec.connectionRef: there is no GitHubConnection ci/acme: declare it, or name another"},
		},
		"no connection is declared": {files{"connections.cue": "package pools\n"}, files{
			"connections.cue": change(t, connections, "connections: schema.#Connections & {\n\tacme: spec: {url: \"https://github.com/acme\", secretRef: name: \"app\"}\n\tother: spec: {url: \"https://github.com/other\", secretRef: name: \"app\"}\n}\n", "_s: schema.#Pools\n"),
			"p.cue":           linux,
		}, "ci", nil},
		"a connection that the namespace may not use": {
			files{"p.cue": abroad, "connections.cue": consenting(`"ci"`)}, files{"p.cue": abroad, "connections.cue": consenting(`"x"`)}, "",
			[]string{"p.cue:7:3: pools.linux.spec.connectionRef: there is no GitHubConnection github/acme that namespace ci may use: its owner has to add ci to its spec.allowedNamespaces"},
		},
		"a connection that the namespace may use": {files{"p.cue": abroad, "connections.cue": consenting(`"*"`)}, files{"p.cue": abroad, "connections.cue": consenting(`"ci"`)}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Base: sideOf(t, "base", tt.base), Head: sideOf(t, "head", tt.head), Namespace: tt.namespace}
			if name == "one namespace, and none is said to be the own" {
				unname(in.Base.Objects)
				unname(in.Head.Objects)
			}
			r := compareInput(t, in)
			var got []string
			for _, d := range r.Head.Diagnostics {
				got = append(got, compile.Format(d))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if (r.Verdict == Broken) != (len(tt.want) > 0) {
				t.Error(r.Verdict)
			}
		})
	}
}

// unname removes the namespace that tests add.
func unname(objects []compile.Object) {
	for i := range objects {
		if objects[i].Manifest.GetNamespace() == "ci" {
			objects[i].Manifest.SetNamespace("")
		}
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
)

// sunday is the time of all reviews.
var sunday = time.Date(2026, 7, 5, 18, 0, 0, 0, time.UTC)

const (
	connections = `package pools

import "corral.dev/schema@v0"

connections: schema.#Connections & {
	acme: spec: {url: "https://github.com/acme", secretRef: name: "app"}
	other: spec: {url: "https://github.com/other", secretRef: name: "app"}
}
#T: {
	metadata: labels: {}
	spec: {
		nodeSelector?: {[string]: string}
		containers: [{name: "runner", image: *"runner:1" | string, resources: requests: {cpu: "2", memory: "4Gi"}}]
	}
}
`
	linux = `package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {
	linux: spec: {
		connectionRef: name: "acme"
		scale: {max: 50, idle: 2}
		template: #T
	}
}
`
	unprivileged = `package corral.template

import rego.v1

deny contains {"msg": "no privileged containers", "path": sprintf("spec.initContainers[%d].securityContext.privileged", [i])} if {
	input.pod.spec.initContainers[i].securityContext.privileged
}
`
	ceiling = `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": 60, "reason": "the team's cap"}
`
	denySecrets = `package corral.template

import rego.v1

deny contains "a Secret" if input.pod.spec.volumes[_].secret
`
	denyOld = `package corral.template

import rego.v1

deny contains {"msg": "image is old", "path": "spec.containers[0].image", "code": "old"} if {
	input.pod.spec.containers[_].image == "runner:1"
}
`
)

const (
	// nightly limits the number of runners at night, and sets until to the next change.
	nightly = `package corral.scaling

import rego.v1

hour := time.clock(input.now)[0]

next(h) := (input.now - (input.now % 86400000000000)) + (h * 3600000000000)

limit contains {"field": "max", "atMost": 50, "reason": "day", "until": next(20)} if hour < 20

limit contains {"field": "max", "atMost": 9, "reason": "night", "until": next(24)} if hour >= 20
`
	holding = "package corral.update\n\nimport rego.v1\n\nrollout contains {\"hold\": true, \"reason\": \"freeze\"}\n"
)

// selecting is a policy whose selector matches no pool.
var selecting = "package pools\n\nimport \"corral.dev/schema@v0\"\n\n" +
	`policies: schema.#Policies & {caps: spec: {selector: matchLabels: team: "red", modules: "a.rego": ` + strconv.Quote(ceiling) + "}}\n"

// files contains the files of one side. A default connections.cue is added.
type files map[string]string

// change returns a text after replacing parts of it.
func change(t *testing.T, text string, oldNew ...string) string {
	t.Helper()
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("no %q in %s", oldNew[i], text)
		}
		text = strings.Replace(text, oldNew[i], oldNew[i+1], 1)
	}
	return text
}

// sideOf compiles the files of a side, as a command does.
func sideOf(t testing.TB, name string, given files) Side {
	t.Helper()
	tree := compile.Files{"connections.cue": []byte(connections)}
	s := Side{Name: name}
	for file, text := range given {
		tree[file] = []byte(text)
	}
	if text, ok := given["prices.yaml"]; ok {
		delete(tree, "prices.yaml")
		s.Prices, s.Diagnostics = ReadPrices("prices.yaml", []byte(text))
	}
	result := compileOnce(t, tree)
	s.Objects, s.Diagnostics = result.Objects, append(s.Diagnostics, result.Diagnostics...)
	for i := range s.Objects {
		if s.Objects[i].Manifest.GetNamespace() == "" {
			s.Objects[i].Manifest.SetNamespace("ci")
		}
	}
	for _, o := range s.Objects {
		if o.Manifest.GetKind() == policy.KindRunnerPolicy {
			s.Policies = append(s.Policies, policyOf(t, o))
		}
	}
	return s
}

// known caches the results of compilations, which take most of the time of these tests.
var known sync.Map

func compileOnce(t testing.TB, tree compile.Files) compile.Result {
	t.Helper()
	key, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	text, ok := known.Load(string(key))
	if !ok {
		if text, err = json.Marshal(compile.Compile(tree, compile.Options{Positions: true, AllowEmpty: true})); err != nil {
			t.Fatal(err)
		}
		known.Store(string(key), text)
	}
	var result compile.Result
	if err := json.Unmarshal(text.([]byte), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func policyOf(t testing.TB, o compile.Object) Policy {
	t.Helper()
	object := &v1alpha1.RunnerPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Manifest.Object, object); err != nil {
		t.Fatal(err)
	}
	source, err := policy.SourceOf(object)
	if err != nil {
		t.Fatal(err)
	}
	loaded, diagnostics := policy.Load(source)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	locate := func(module string, line int) Place {
		if _, own := source.Modules[module]; own {
			return Place{File: module, Line: line}
		}
		return Place{}
	}
	return Policy{Policy: loaded, At: Place{File: o.File, Line: o.Line}, Locate: locate}
}

func compareSides(t *testing.T, base, head files) *Result {
	t.Helper()
	return compareInput(t, Input{Base: sideOf(t, "base", base), Head: sideOf(t, "head", head)})
}

func compareInput(t *testing.T, in Input) *Result {
	t.Helper()
	in.At, in.Zone = sunday, "UTC"
	r, err := Compare(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// summary formats a result in a few lines.
func summary(r *Result) []string {
	lines := []string{string(r.Verdict)}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, d := range r.Head.Diagnostics {
		add("broken %s", compile.Format(d))
	}
	for _, p := range r.Pools {
		add("%s %s %v from %q", p.Change, p.Name, p.Classes, p.Former)
		for _, f := range p.Fields {
			add("  %s %s -> %s %s %s", f.Path, f.Before, f.After, placed(f.BaseAt), placed(f.HeadAt))
		}
		add("  %s -> %s", limited(p.Before), limited(p.After))
		for _, f := range p.Findings {
			add("  %s %s: %s, %s:%d by %s %s:%d", f.State, f.Level, f.Message, f.At.File, f.At.Line, f.Rule.Policy, f.Rule.File, f.Rule.Line)
		}
		for _, e := range p.Effects {
			add("  : %s", e)
		}
	}
	for _, c := range r.Connections {
		add("connection %s %s %s %v", c.Change, c.Name, c.Class, c.Pools)
		for _, e := range c.Effects {
			add("  : %s", e)
		}
	}
	for _, p := range r.Policies {
		add("policy %s %s %v moved %v", p.Change, p.Policy, p.What, p.Moved)
	}
	for _, o := range r.Overlaps {
		add("overlap %s %s %v %s:%d", o.Pool, o.Other, o.Labels, o.At.File, o.At.Line)
	}
	return lines
}

func placed(p *Place) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

func limited(l *Limits) string {
	if l == nil {
		return "-"
	}
	text := fmt.Sprintf("%d/%d/%d", l.Declared.Min, l.Declared.Idle, l.Declared.Max)
	if l.Effective == nil {
		return text + " failed"
	}
	text += fmt.Sprintf(" %d/%d/%d", l.Effective.Min, l.Effective.Idle, l.Effective.Max)
	for _, b := range l.Bounds {
		text += fmt.Sprintf(" %s<%d by %s:%d", b.Field, b.Value, b.Rule.File, b.Rule.Line)
	}
	return text
}

func TestAReviewTellsWhatAChangeDoes(t *testing.T) {
	two := change(t, linux, "\tlinux: spec: {", "\twindows: spec: {connectionRef: name: \"acme\", scale: max: 5, template: #T}\n\tlinux: spec: {")
	labelled := change(t, linux, "scale:", "runnerLabels: [\"linux\", \"x64\"]\n\t\tscale:")
	stays := change(t, linux, "scale:", "registration: \"REST\"\n\t\tscale:")
	docker := change(t, linux, "template: #T", "template: #T\n\t\tcontainerMode: {type: \"Docker\"}")
	unclaimed := change(t, linux, "template: #T", "template: #T\n\t\tcontainerMode: {type: \"Kubernetes\"}")
	pods := change(t, linux, "template: #T", "template: #T\n\t\tcontainerMode: {type: \"Kubernetes\", kubernetes: workVolumeClaim: {size: \"1Gi\"}}")
	const one, sidecar = `{name: "runner", image: *"runner:1" | string, resources: requests: {cpu: "2", memory: "4Gi"}}`, `{name: "helper", image: "h"}`
	helper, turned := change(t, connections, one, one+", "+sidecar), change(t, connections, one, sidecar+", "+one)
	const first = "package corral.template\n\nimport rego.v1\n\ndeny contains {\"msg\": \"the runner comes first\"} if input.pod.spec.containers[0].name != \"runner\"\n"
	tests := map[string]struct {
		base, head files
		want       []string
	}{
		"nothing":      {files{"p.cue": linux}, files{"p.cue": linux}, []string{"Allowed"}},
		"a line moves": {files{"p.cue": linux, "r.rego": ceiling}, files{"p.cue": change(t, linux, "pools:", "\n\npools:"), "r.rego": ceiling}, []string{"Allowed"}},
		"scale above a ceiling": {
			files{"p.cue": linux, "r.rego": ceiling}, files{"p.cue": change(t, linux, "max: 50", "max: 80"), "r.rego": ceiling},
			[]string{
				"Allowed", `Changed linux [Limits] from ""`, "  spec.scale.max 50 -> 80 p.cue:8 p.cue:8", "  0/2/50 0/2/50 -> 0/2/80 0/2/60 max<60 by r.rego:5",
			},
		},
		"template": {
			files{"p.cue": linux}, files{"p.cue": change(t, linux, "template: #T", `template: #T & {spec: containers: [{image: "runner:2"}]}`)},
			[]string{
				"Allowed", `Changed linux [ReplacesRunners] from ""`,
				`  spec.template.spec.containers[0].image "runner:1" -> "runner:2" connections.cue:13 p.cue:9`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : Runners without a job are replaced in steps; busy runners finish their job first.",
			},
		},
		"container mode": {
			files{"p.cue": linux, "d.rego": unprivileged}, files{"p.cue": change(t, linux, "template: #T", "template: #T\n\t\tcontainerMode: type: \"Docker\""), "d.rego": unprivileged},
			[]string{
				"Denied", `Changed linux [ReplacesRunners] from ""`,
				`  spec.containerMode.type  -> "Docker" - p.cue:10`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  New Deny: no privileged containers, p.cue:10 by RunnerPolicy/ci/repository d.rego:5",
				"  : Policies deny it or can't be evaluated: runners keep the previous template.",
			},
		},
		"a default of the container mode spelled out": {
			files{"p.cue": docker}, files{"p.cue": change(t, docker, `{type: "Docker"}`, `{type: "Docker", docker: {image: "docker:dind", groupID: 123}}`)},
			[]string{
				"Allowed", `Changed linux [Settings] from ""`,
				`  spec.containerMode.docker.groupID  -> 123 - p.cue:10`, `  spec.containerMode.docker.image  -> "docker:dind" - p.cue:10`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
			},
		},
		"another group of the Docker daemon": {
			files{"p.cue": docker}, files{"p.cue": change(t, docker, `{type: "Docker"}`, `{type: "Docker", docker: groupID: 124}`)},
			[]string{
				"Allowed", `Changed linux [ReplacesRunners] from ""`, `  spec.containerMode.docker.groupID  -> 124 - p.cue:10`, `  spec.containerMode.docker.image  -> "docker:dind" - p.cue:10`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : Runners without a job are replaced in steps; busy runners finish their job first.",
			},
		},
		"a container mode that is refused before and after": {
			files{"p.cue": unclaimed}, files{"p.cue": change(t, unclaimed, `{type: "Kubernetes"}`, `{type: "Kubernetes", kubernetes: hookTemplate: {name: "n", key: "k"}}`)},
			[]string{
				"Broken",
				"broken p.cue:6:2: pools.linux: spec.containerMode.kubernetes.workVolumeClaim: must be set, or a volume work in the template: the pods of jobs share it; or choose type KubernetesNoVolume",
				`Changed linux [ReplacesRunners] from ""`,
				`  spec.containerMode.kubernetes.hookTemplate.key  -> "k" - p.cue:10`, `  spec.containerMode.kubernetes.hookTemplate.name  -> "n" - p.cue:10`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : Runners without a job are replaced in steps; busy runners finish their job first.",
			},
		},
		"access modes of the work volume spelled out": {
			files{"p.cue": pods}, files{"p.cue": change(t, pods, `{size: "1Gi"}`, `{size: "1Gi", accessModes: ["ReadWriteOnce"]}`)},
			[]string{
				"Allowed", `Changed linux [Settings] from ""`,
				`  spec.containerMode.kubernetes.workVolumeClaim.accessModes  -> ["ReadWriteOnce"] - p.cue:10`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
			},
		},
		"an order that a policy denies": {
			files{"p.cue": linux, "connections.cue": helper, "d.rego": first}, files{"p.cue": linux, "connections.cue": turned, "d.rego": first},
			[]string{
				"Denied", `Changed linux [ReplacesRunners] from ""`,
				`  spec.template.spec.containers ["runner","helper"] -> ["helper","runner"] p.cue:9 p.cue:9`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  New Deny: the runner comes first, p.cue:6 by RunnerPolicy/ci/repository d.rego:5",
				"  : Policies deny it or can't be evaluated: runners keep the previous template.",
			},
		},
		"labels in another order and case": {
			files{"p.cue": labelled}, files{"p.cue": change(t, labelled, `["linux", "x64"]`, `["X64", "linux"]`)},
			[]string{
				"Allowed", `Changed linux [Settings] from ""`, `  spec.runnerLabels ["linux","x64"] -> ["X64","linux"] p.cue:8 p.cue:8`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
			},
		},
		"labels": {
			files{"p.cue": two}, files{"p.cue": change(t, two, "scale: {", "runnerLabels: [\"windows\", \"big\"]\n\t\tscale: {")},
			[]string{
				"Allowed", `Changed linux [ReroutesJobs] from ""`, `  spec.runnerLabels  -> ["windows","big"] - p.cue:9`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : Jobs that request linux no longer run here: they wait, because no other pool matches them.",
				"  : Jobs that request windows or big may run here from now on.",
				"overlap ci/linux ci/windows [windows] p.cue:9",
			},
		},
		"connection of a pool": {
			files{"p.cue": linux}, files{"p.cue": change(t, linux, `"acme"`, `"other"`)},
			[]string{
				"Allowed", `Changed linux [Replaced] from ""`, `  spec.connectionRef.name "acme" -> "other" p.cue:7 p.cue:7`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : It moves from ci/acme to ci/other. Runners without a job stop, and busy runners finish their job; jobs that wait for it are lost.",
			},
		},
		"registration": {
			files{"p.cue": labelled}, files{"p.cue": change(t, labelled, "scale:", "registration: \"REST\"\n\t\tscale:")},
			[]string{
				"Broken", "broken p.cue:9:17: pools.linux.spec.registration: registration is immutable: create another pool",
				`Changed linux [Replaced] from ""`, `  spec.registration "ScaleSet" -> "REST" p.cue:6 p.cue:9`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : The API server refuses this: registration is immutable. Create another pool.",
			},
		},
		"lifetime": {
			files{"p.cue": stays}, files{"p.cue": change(t, stays, "registration: \"REST\"", "registration: \"REST\"\n\t\tlifetime: \"Persistent\"")},
			[]string{
				"Broken", "broken p.cue:9:13: pools.linux.spec.lifetime: lifetime is immutable: create another pool",
				`Changed linux [Replaced] from ""`, `  spec.lifetime "Job" -> "Persistent" p.cue:6 p.cue:9`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : The API server refuses this: lifetime is immutable. Create another pool.",
			},
		},
		"back to watching": {
			files{"p.cue": linux}, files{"p.cue": change(t, linux, "scale:", "mode: \"Observe\"\n\t\tscale:")},
			[]string{
				"Broken", "broken p.cue:8:9: pools.linux.spec.mode: mode cannot change back to Observe: set stopPolicy, or create another pool",
				`Changed linux [ReroutesJobs] from ""`, `  spec.mode "Active" -> "Observe" p.cue:6 p.cue:8`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : The API server refuses this: mode cannot change back to Observe. Set stopPolicy, or create another pool.",
			},
		},
		"policy only": {
			files{"p.cue": two, "r.rego": ceiling}, files{"p.cue": two, "r.rego": change(t, ceiling, "60", "20")},
			[]string{
				"Allowed", `Moved linux [] from ""`, "  0/2/50 0/2/50 -> 0/2/50 0/2/20 max<20 by r.rego:5",
				"  : Jobs that were accepted are served, and others wait beyond the lower max.",
				"policy Changed RunnerPolicy/ci/repository [rules] moved [ci/linux]",
			},
		},
		"a policy for the night": {
			files{"p.cue": linux, "r.rego": nightly}, files{"p.cue": linux, "r.rego": change(t, nightly, `"atMost": 9`, `"atMost": 0`)},
			[]string{
				"Allowed", `Moved linux [] from ""`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : From 2026-07-05T20:00:00Z on, its limits are max 0, min 0, idle 0 instead of max 9, min 0, idle 2.",
				"policy Changed RunnerPolicy/ci/repository [rules] moved [ci/linux]",
			},
		},
		"a policy of updates": {
			files{"p.cue": linux, "u.rego": holding}, files{"p.cue": linux, "u.rego": change(t, holding, `{"hold": true`, `{"maxSurge": 2`)},
			[]string{
				"Allowed", `Moved linux [] from ""`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  : A new template would roll out differently: RollingUpdate, maxSurge 2, maxUnavailable 0, canary 0 instead of hold, RollingUpdate, maxSurge 13, maxUnavailable 0, canary 0.",
				"policy Changed RunnerPolicy/ci/repository [rules] moved [ci/linux]",
			},
		},
		"a selector of no pool": {
			files{"p.cue": linux, "s.cue": selecting}, files{"p.cue": linux, "s.cue": change(t, selecting, "red", "blue")},
			[]string{"Allowed", "policy Changed RunnerPolicy/ci/caps [selector] moved []"},
		},
		"rules in ConfigMaps": {
			files{"p.cue": linux, "s.cue": selecting}, files{"p.cue": linux, "s.cue": change(t, selecting, "spec: {", `spec: {modulesFrom: [{configMapRef: name: "more"}], `)},
			[]string{"Allowed", "policy Changed RunnerPolicy/ci/caps [rules in ConfigMaps] moved []"},
		},
		"new blocking policy": {
			files{"p.cue": linux}, files{"p.cue": linux, "d.rego": denyOld},
			[]string{
				"Denied", `Moved linux [] from ""`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  New Deny: image is old, connections.cue:13 by RunnerPolicy/ci/repository d.rego:5",
				"  : Policies deny its pod from now on: runners without a job stop, busy runners finish their job, and it accepts no jobs.",
				"policy Added RunnerPolicy/ci/repository [] moved [ci/linux]",
			},
		},
		"still denied, and untouched": {
			files{"p.cue": linux, "d.rego": denyOld}, files{"p.cue": linux, "d.rego": denyOld},
			[]string{
				"Denied", `Same linux [] from ""`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  Still Deny: image is old, connections.cue:13 by RunnerPolicy/ci/repository d.rego:5",
			},
		},
		"fixed": {
			files{"p.cue": linux, "d.rego": denyOld},
			files{"p.cue": change(t, linux, "template: #T", `template: #T & {spec: containers: [{image: "runner:2"}]}`), "d.rego": denyOld},
			[]string{
				"Allowed", `Changed linux [ReplacesRunners] from ""`,
				`  spec.template.spec.containers[0].image "runner:1" -> "runner:2" connections.cue:13 p.cue:9`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  Fixed Deny: image is old, connections.cue:13 by RunnerPolicy/ci/repository d.rego:5",
				"  : Runners without a job are replaced in steps; busy runners finish their job first.",
			},
		},
		"certificates, and a rule against Secrets": {
			files{"p.cue": linux, "d.rego": denySecrets},
			files{"p.cue": linux, "d.rego": denySecrets, "connections.cue": change(t, connections, "\"https://github.com/acme\",", "\"https://github.com/acme\", ca: configMapRef: name: \"ca\",")},
			[]string{
				"Denied", `Moved linux [] from ""`, "  0/2/50 0/2/50 -> 0/2/50 0/2/50",
				"  New Deny: a Secret, p.cue:6 by RunnerPolicy/ci/repository d.rego:5",
				"  : Policies deny its pod from now on: runners without a job stop, busy runners finish their job, and it accepts no jobs.",
				"connection Changed acme Settings [ci/linux]",
				"  : It reaches GitHub through another proxy, or trusts other certificates: anyone who controls both can read the credentials.",
			},
		},
		"credentials and url": {
			files{"p.cue": linux}, files{"p.cue": linux, "connections.cue": change(t, connections, "acme\", secretRef: name: \"app\"", "acme2\", secretRef: name: \"app2\"")},
			[]string{
				"Broken", "broken connections.cue:6:20: connections.acme.spec.url: url is immutable: create another GitHubConnection and point the pools at it",
				"connection Changed acme Replaced [ci/linux]",
				"  : The API server refuses this: url is immutable. Create another GitHubConnection and point the pools at it; jobs that wait for them on https://github.com/acme are lost then.",
				"  : It uses other credentials, Secret app2 instead of Secret app: its 1 pool continue once GitHub accepts them.",
			},
		},
		"deleted": {
			files{"p.cue": two}, files{"p.cue": linux},
			[]string{
				"Allowed", `Deleted windows [Replaced] from ""`, "  0/0/5 0/0/5 -> -",
				`  : Runners without a job stop, and busy runners finish their job; jobs that wait for it are lost.`,
			},
		},
		"renamed": {
			files{"p.cue": labelled}, files{"p.cue": change(t, labelled, "linux:", "tux:", "idle: 2", "idle: 3")},
			[]string{
				"Allowed", `Renamed tux [Replaced Limits] from "ci/linux"`, `  metadata.name "linux" -> "tux" p.cue:6 p.cue:6`, "  spec.scale.idle 2 -> 3 p.cue:9 p.cue:9",
				"  0/2/50 0/2/50 -> 0/3/50 0/3/50",
				"  : The cluster treats it as a different pool: it creates this one and deletes the previous one. Runners without a job stop, and busy runners finish their job; jobs that wait for it are lost.",
			},
		},
		"broken": {
			files{"p.cue": linux}, files{"p.cue": change(t, linux, "max: 50", "max: -1")},
			[]string{"Broken", "broken p.cue:8:16: pools.linux.spec.scale.max: invalid value -1 (out of bound >=0)"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := summary(compareSides(t, tt.base, tt.head))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAPodThatCantBeMadeIsADiagnostic(t *testing.T) {
	moved := change(t, linux, "pools:", "\n\npools:")
	for name, both := range map[string]bool{"newly": false, "as before": true} {
		in := Input{Base: sideOf(t, "base", files{"p.cue": linux}), Head: sideOf(t, "head", files{"p.cue": moved})}
		spoil(in.Head)
		if both {
			spoil(in.Base)
		}
		r := compareInput(t, in)
		want := []string{`p.cue:8:2: pools.linux: spec.template.spec.containers: a container named "runner" is required`}
		var got []string
		for _, d := range r.Head.Diagnostics {
			got = append(got, compile.Format(d))
		}
		if diff := cmp.Diff(want, got); diff != "" || r.Verdict != Broken {
			t.Error(name, r.Verdict, diff)
		}
	}
}

// spoil changes the pools of a side so that no pod can be created for them.
func spoil(s Side) {
	for _, o := range s.Objects {
		if template, ok, _ := unstructured.NestedMap(o.Manifest.Object, "spec", "template", "spec"); ok {
			template["containers"].([]any)[0].(map[string]any)["name"] = "other"
			_ = unstructured.SetNestedMap(o.Manifest.Object, template, "spec", "template", "spec")
		}
	}
}

// Jobs are lost only if the scale set that they wait for is deleted.
func TestWhatBecomesOfJobsOfPoolsWithoutAScaleSet(t *testing.T) {
	labelled := change(t, linux, "scale:", "runnerLabels: [\"linux\", \"x64\"]\n\t\tscale:")
	rest, watching := change(t, labelled, "scale:", "registration: \"REST\"\n\t\tscale:"), change(t, labelled, "scale:", "mode: \"Observe\"\n\t\tscale:")
	moved := func(text string) string { return change(t, text, `"acme"`, `"other"`) }
	renamed := func(text string) string { return change(t, text, "linux:", "tux:") }
	for name, tt := range map[string]struct {
		base, head string
		want       []string
	}{
		"REST, on another connection": {rest, moved(rest), []string{
			"It moves from ci/acme to ci/other. Runners without a job stop, and busy runners finish their job; jobs that wait for it stay queued until other runners take them.",
			"live: 12 jobs wait for it now without a runner: such jobs stay queued until other runners take them.",
			"live: 4 runners have no job and will be stopped. 8 runners are busy: each finishes its job.",
		}},
		"REST, under another name": {rest, renamed(rest), []string{
			"The cluster treats it as a different pool: it creates this one and deletes the previous one. Runners without a job stop, and busy runners finish their job; jobs that wait for it stay queued until other runners take them.",
			"live: 12 jobs wait for it now without a runner: such jobs stay queued until other runners take them.",
			"live: 4 runners have no job and will be stopped. 8 runners are busy: each finishes its job.",
		}},
		"observed, on another connection": {watching, moved(watching), []string{"It moves from ci/acme to ci/other. It only observes and has no runners."}},
		"observed, under another name": {watching, renamed(watching), []string{
			"The cluster treats it as a different pool: it creates this one and deletes the previous one. It only observes and has no runners.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Base: sideOf(t, "base", files{"p.cue": tt.base}), Head: sideOf(t, "head", files{"p.cue": tt.head})}
			in.Live = running(t, in.Base)
			p := compareInput(t, in).Pools[0]
			got := p.Effects
			for _, effect := range p.Live.Effects {
				got = append(got, "live: "+effect)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatBecomesOfClaimsOfACacheIsTold(t *testing.T) {
	const without, empty = "Claims of the cache that no runner holds are deleted: the next jobs start without a cache.", "Claims of the cache that no runner holds are deleted: the next jobs start with an empty cache."
	const cache = `size: "20Gi", mountPath: "/cache", maxClaims: 3`
	for name, tt := range map[string]struct{ before, after, want string }{
		"added":                  {"", cache, ""},
		"removed":                {cache, "", without},
		"of another size":        {cache, change(t, cache, "20Gi", "30Gi"), empty},
		"of the same size":       {change(t, cache, "20Gi", "1Ti"), change(t, cache, "20Gi", "1024Gi"), ""},
		"of another class":       {cache, cache + `, storageClassName: "fast"`, empty},
		"of any class":           {cache + `, storageClassName: "fast"`, cache, ""},
		"of another access mode": {cache, cache + `, accessMode: "ReadWriteMany"`, empty},
		"of more claims":         {cache, change(t, cache, "3", "5"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(cache string) files {
				if cache == "" {
					return files{"p.cue": linux}
				}
				return files{"p.cue": change(t, linux, "template: #T", "template: #T, cache: {"+cache+"}")}
			}
			pools := compareSides(t, with(tt.before), with(tt.after)).Pools
			if len(pools) == 0 {
				if tt.want != "" {
					t.Fatal("no pool changed")
				}
				return
			}
			if diff := cmp.Diff(tt.want, strings.Join(pools[0].Effects, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConsentOfAConnectionIsTold(t *testing.T) {
	const may, mayNot = "Pools in the namespaces %s may use it.", "Pools in the namespaces %s may no longer use it: they start no runners and accept no jobs, and busy runners finish their job."
	for name, tt := range map[string]struct{ before, after, want string }{
		"given":               {``, `"team-a"`, fmt.Sprintf(may, "team-a")},
		"given to all":        {`"team-a"`, `"*"`, fmt.Sprintf(may, "that it doesn't name")},
		"withdrawn":           {`"team-a", "team-b"`, `"team-b"`, fmt.Sprintf(mayNot, "team-a")},
		"withdrawn from most": {`"*"`, `"team-a"`, fmt.Sprintf(mayNot, "that it doesn't name")},
		"of one beside all":   {`"*"`, `"*", "team-a"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(names string) files {
				return files{"p.cue": linux, "connections.cue": change(t, connections, `acme: spec: {`, `acme: spec: {allowedNamespaces: [`+names+`], `)}
			}
			got := strings.Join(compareSides(t, with(tt.before), with(tt.after)).Connections[0].Effects, " ")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMorePoolsThanSyncRemovesAreAWarning(t *testing.T) {
	mac := change(t, linux, "linux:", "mac:")
	const refused = ". A PoolSource refuses this until the annotation corral.dev/allow-prune names the commit."
	for name, tt := range map[string]struct {
		base, head files
		want       []string
	}{
		"one of two":            {files{"p.cue": linux, "q.cue": mac}, files{"p.cue": linux}, nil},
		"the only one, renamed": {files{"p.cue": linux}, files{"p.cue": mac}, []string{"It would remove 1 of 1 pools, more than half: ci/linux" + refused}},
		"the only one": {files{"p.cue": linux}, files{},
			[]string{"It would remove the only pool, ci/linux" + refused + " Argo CD's plugin refuses a folder without pools."}},
		"none before": {files{}, files{"p.cue": linux}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, tt.base, tt.head)
			if diff := cmp.Diff(tt.want, r.Warnings); diff != "" || r.Verdict != Allowed {
				t.Errorf("%s: %s", r.Verdict, diff)
			}
		})
	}
}

func TestEachPairThatOverlapsIsCountedOnce(t *testing.T) {
	labelled := func(format string) string {
		text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n"
		for i := range 16 { // 120 pairs
			text += fmt.Sprintf("\tp%02d: spec: {connectionRef: name: \"acme\", runnerLabels: [%q], template: #T}\n", i, strings.ReplaceAll(format, "N", strconv.Itoa(i)))
		}
		return text + "}\n"
	}
	for name, base := range map[string]files{"added": {}, "changed": {"p.cue": labelled("N")}} {
		r := compareSides(t, base, files{"p.cue": labelled("same")})
		if diff := cmp.Diff([]string{"20 more pairs of pools overlap."}, r.Notes); diff != "" || len(r.Overlaps) != maxOverlaps {
			t.Errorf("%s: %d overlaps, %s", name, len(r.Overlaps), diff)
		}
	}
}

func TestEqualInputsGiveEqualReviews(t *testing.T) {
	base, head := files{"p.cue": linux, "r.rego": ceiling}, files{"p.cue": change(t, linux, "max: 50", "max: 80"), "r.rego": change(t, ceiling, "60", "20")}
	encode := func() string {
		text, err := json.Marshal(compareSides(t, base, head))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if diff := cmp.Diff(encode(), encode()); diff != "" {
		t.Error(diff)
	}
}

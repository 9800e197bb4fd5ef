// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

const rivals = `package pools

_rival: {
	connectionRef: name: "acme"
	registration: "REST"
	runnerLabels: ["gpu"]
	demand: webhook: {}
	template: spec: containers: [{name: "runner", image: "r"}]
}
pools: "gpu-a": spec: _rival
pools: "gpu-b": spec: _rival
pools: "gpu-c": spec: _rival & {runnerGroup: "builders"}
pools: "gpu-d": spec: _rival & {runnerLabels: ["gpu"], mode: "Observe"}
`

func TestVetWarnsOfPoolsThatCompete(t *testing.T) {
	folder := repositoryOf(t, map[string]string{"pools/rivals.cue": rivals})
	got := corral(t, folder, "vet")
	if got.code != exitOK {
		t.Fatalf("exit code %d:\n%s", got.code, got.stderr)
	}
	want := `spec.runnerLabels: warning: pool gpu-a matches the same jobs: webhooks assign all of them to the older pool`
	if n := strings.Count(got.stderr, "warning: "); n != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("%d warnings, want one of gpu-b:\n%s", n, got.stderr)
	}
	var r vetReport
	if err := json.Unmarshal([]byte(corral(t, folder, "vet", "-o", "json").stdout), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].Subject != "pool gpu-b" || r.Findings[0].Rule != ruleCompeting {
		t.Errorf("%+v", r.Findings)
	}
}

// A job whose only label is the scale set's name goes to any pool with that label.
func TestVetWarnsOfPoolsThatShareAName(t *testing.T) {
	const pools = `package pools

_shared: {
	connectionRef: name: "acme"
	template: spec: containers: [{name: "runner", image: "r"}]
}
pools: gpu: spec: _shared
pools: other: spec: _shared & {runnerLabels: ["other", "GPU"]}
pools: apart: spec: _shared & {runnerLabels: ["apart", "gpu"], runnerGroup: "builders"}
`
	got := corral(t, repositoryOf(t, map[string]string{"pools/shared.cue": pools}), "vet")
	const want = "pools.other.spec.runnerLabels: warning: jobs that ask for gpu alone may also go to pool gpu, which has this label, too"
	if got.code != exitOK || strings.Count(got.stderr, "warning: ") != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("got %+v", got)
	}
}

func TestVetWarnsOfRunnersThatStayForAnybody(t *testing.T) {
	const stays = `package pools

_stays: {
	connectionRef: name: "acme"
	registration: "REST"
	lifetime:     "Persistent"
	template: spec: containers: [{name: "runner", image: "r"}]
}
pools: nobody: spec: _stays
pools: public: spec: _stays & {trust: "public"}
pools: ours: spec: _stays & {trust: "internal"}
pools: brief: spec: {
	connectionRef: name: "acme"
	template: spec: containers: [{name: "runner", image: "r"}]
}
`
	got := corral(t, repositoryOf(t, map[string]string{"pools/stays.cue": stays}), "vet")
	const place, pools = "pools/stays.cue:6:16: ", "(2 pools: nobody, public)" // one line, because both pools get the field from there
	if strings.Count(got.stderr, "warning: its pods get a token that registers any runner") != 1 || !strings.Contains(got.stderr, place) || !strings.Contains(got.stderr, pools) {
		t.Error(got.stderr)
	}
	if got.code != exitOK {
		t.Errorf("exit code %d", got.code)
	}
}

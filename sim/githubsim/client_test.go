// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/actions/scaleset"
	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/githubsim"
)

// wantError fails unless err contains all parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got error %v, want one with %q", err, part)
		}
	}
}

func TestClientManagesScaleSets(t *testing.T) {
	sim := start(t, githubsim.Options{})
	ctx := testContext(t)
	groupID := sim.AddRunnerGroup("acme", githubsim.Group{Name: "big"})
	client := newClient(t, sim, "acme")

	if set, err := client.GetRunnerScaleSet(ctx, 1, "pool"); set != nil || err != nil {
		t.Fatalf("before creation: %v, %v", set, err)
	}
	created, err := client.CreateRunnerScaleSet(ctx, &scaleset.RunnerScaleSet{Name: "pool", RunnerGroupID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]scaleset.Label{{Type: "System", Name: "pool"}}, created.Labels); diff != "" {
		t.Errorf("labels of a scale set without any (-want +got):\n%s", diff)
	}
	_, err = client.CreateRunnerScaleSet(ctx, &scaleset.RunnerScaleSet{Name: "POOL", RunnerGroupID: 1})
	wantError(t, err, "409", "RunnerScaleSetExistsException")
	_, err = client.CreateRunnerScaleSet(ctx, &scaleset.RunnerScaleSet{Name: "x", RunnerGroupID: 99})
	wantError(t, err, "404", "RunnerGroupNotFoundException")

	updated, err := client.UpdateRunnerScaleSet(ctx, created.ID, &scaleset.RunnerScaleSet{
		Name: "pool2", RunnerGroupID: groupID, Labels: []scaleset.Label{{Name: "a"}, {Name: "b"}},
		RunnerSetting: scaleset.RunnerSetting{DisableUpdate: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := client.GetRunnerScaleSet(ctx, groupID, "pool2")
	if err != nil {
		t.Fatal(err)
	}
	byID, err := client.GetRunnerScaleSetByID(ctx, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(updated, found) + cmp.Diff(updated, byID); diff != "" {
		t.Errorf("updated, found and read differ:\n%s", diff)
	}
	if updated.RunnerGroupName != "big" || len(updated.Labels) != 2 || !updated.RunnerSetting.DisableUpdate {
		t.Errorf("updated: %+v", updated)
	}
	if err := client.DeleteRunnerScaleSet(ctx, created.ID); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetRunnerScaleSetByID(ctx, created.ID)
	wantError(t, err, "404", "RunnerScaleSetNotFoundException")
	wantError(t, client.DeleteRunnerScaleSet(ctx, created.ID), "404", "RunnerScaleSetNotFoundException")
}

func TestScaleSetsOfOneScopeAreHiddenFromAnother(t *testing.T) {
	sim := start(t, githubsim.Options{})
	if err := sim.AddRepository(githubsim.Repository{FullName: "acme/app"}); err != nil {
		t.Fatal(err)
	}
	set := newSet(t, newClient(t, sim, "acme"))
	_, err := newClient(t, sim, "acme/app").GetRunnerScaleSetByID(testContext(t), set.ID)
	wantError(t, err, "404", "RunnerScaleSetNotFoundException")
}

func TestClientFindsGroups(t *testing.T) {
	sim := start(t, githubsim.Options{})
	ctx := testContext(t)
	id := sim.AddRunnerGroup("acme", githubsim.Group{Name: "big"})
	client := newClient(t, sim, "acme")
	for name, want := range map[string]scaleset.RunnerGroup{
		"default": {ID: 1, Name: "Default", IsDefault: true}, "Big": {ID: id, Name: "big"},
	} {
		got, err := client.GetRunnerGroupByName(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, err := client.GetRunnerGroupByName(ctx, "none")
	wantError(t, err, "no runner group found")
}

func TestClientManagesRunners(t *testing.T) {
	sim := start(t, githubsim.Options{})
	ctx := testContext(t)
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	setting := &scaleset.RunnerScaleSetJitRunnerSetting{Name: "r1"}
	jit, err := client.GenerateJitRunnerConfig(ctx, setting, set.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(jit.EncodedJITConfig) < 2000 {
		t.Errorf("a JIT configuration of %d bytes", len(jit.EncodedJITConfig))
	}
	if _, err := client.GenerateJitRunnerConfig(ctx, setting, set.ID); !errors.Is(err, scaleset.RunnerExistsError) {
		t.Errorf("the name again: %v", err)
	}
	byID, err := client.GetRunner(ctx, jit.Runner.ID)
	if err != nil {
		t.Fatal(err)
	}
	byName, err := client.GetRunnerByName(ctx, "r1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(jit.Runner, byID) + cmp.Diff(jit.Runner, byName); diff != "" {
		t.Errorf("made, read and found differ:\n%s", diff)
	}
	for range 2 { // deleting it again is no error
		if err := client.RemoveRunner(ctx, int64(jit.Runner.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.GetRunner(ctx, jit.Runner.ID); !errors.Is(err, scaleset.RunnerNotFoundError) {
		t.Errorf("after removal: %v", err)
	}
	if gone, err := client.GetRunnerByName(ctx, "r1"); gone != nil || err != nil {
		t.Errorf("after removal: %v, %v", gone, err)
	}
}

func TestSessionIsExclusiveUntilItEnds(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now})
	ctx := testContext(t)
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	first := openSession(t, client, set.ID)
	if stats := first.Session().Statistics; stats == nil || *stats != (scaleset.RunnerScaleSetStatistic{}) {
		t.Errorf("statistics of the new session: %+v", stats)
	}
	refused := func() {
		t.Helper()
		_, err := client.MessageSessionClient(ctx, set.ID, "other")
		wantError(t, err, "409", "RunnerScaleSetSessionConflictException",
			"The actions runner scaleset", "already has an active session.")
	}
	refused()
	clock.advance(60 * time.Second)
	refused()
	clock.advance(32 * time.Second)
	second := openSession(t, client, set.ID)
	wantError(t, first.Close(ctx), "400", "RunnerScaleSetSessionExpiredException")
	if err := second.Close(ctx); err != nil {
		t.Fatal(err)
	}
	third := openSession(t, client, set.ID)
	if err := third.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAdminTokenIsCheckedAndExpires(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, AdminTokenTTL: time.Hour})
	ctx := testContext(t)
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	for name, spoil := range map[string]func(){
		"expired": func() { clock.advance(2 * time.Hour) },
		"revoked": sim.ExpireAdminTokens,
	} {
		spoil()
		_, err := client.GetRunnerScaleSetByID(ctx, set.ID)
		wantError(t, err, "401", "InvalidTokenException")
		client = newClient(t, sim, "acme")
		if _, err := client.GetRunnerScaleSetByID(ctx, set.ID); err != nil {
			t.Errorf("a new client after %s: %v", name, err)
		}
	}
}

func TestScaleSetForgottenBehindTheClient(t *testing.T) {
	sim := start(t, githubsim.Options{})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	if !sim.ForgetScaleSet(set.ID) || sim.ForgetScaleSet(set.ID) {
		t.Error("forgetting says nothing of what it did")
	}
	_, err := client.MessageSessionClient(testContext(t), set.ID, "cluster/pool")
	wantError(t, err, "RunnerScaleSetNotFoundException")
}

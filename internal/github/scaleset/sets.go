// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strings"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

// Set is a runner scale set on GitHub.
type Set struct {
	ID        int64
	Name      string
	GroupID   int64
	GroupName string
	Labels    []string
	// Statistics as GitHub had them; nil when it sent none. Ignored by Create and Update.
	Statistics *Statistics
}

// Statistics are GitHub's counts for a scale set.
type Statistics struct {
	AvailableJobs int // offered and not acquired; can be stale
	AssignedJobs  int // assigned and not completed, those running included
	RunningJobs   int

	RegisteredRunners int // also those offline
	BusyRunners       int
	IdleRunners       int // online, without a job
}

// RunnerGroupID looks a runner group up by name; "default", in any case, and "" are
// the default group and cost no request. Not there: KindRunnerGroupNotFound.
func (c *Client) RunnerGroupID(ctx context.Context, name string) (int64, error) {
	if name == "" || strings.EqualFold(name, official.DefaultRunnerGroup) {
		return github.DefaultRunnerGroupID, nil
	}
	var id int64
	doing := fmt.Sprintf("looking up runner group %q", name)
	err := c.do(ctx, endpointRunnerGroup, doing, func(ctx context.Context, oc *official.Client) error {
		group, err := oc.GetRunnerGroupByName(ctx, url.QueryEscape(name))
		if err == nil {
			id = int64(group.ID)
		}
		return err
	})
	// An unknown name is an empty list, which the official client tells only as text.
	if err != nil && strings.Contains(err.Error(), "no runner group found") {
		return 0, &github.Error{Kind: github.KindRunnerGroupNotFound, Doing: doing, Message: "there is no such group, or this connection can't see it"}
	}
	return id, err
}

// Find looks a scale set up by its runner group and name; nil when there is none.
func (c *Client) Find(ctx context.Context, groupID int64, name string) (*Set, error) {
	return c.set(ctx, endpointScaleSetFind, fmt.Sprintf("looking for scale set %q", name), func(ctx context.Context, oc *official.Client) (*official.RunnerScaleSet, error) {
		return oc.GetRunnerScaleSet(ctx, int(groupID), url.QueryEscape(name))
	})
}

// Get reads a scale set with its statistics. Not there: KindNotFound.
func (c *Client) Get(ctx context.Context, id int64) (*Set, error) {
	return c.set(ctx, endpointScaleSetGet, fmt.Sprintf("reading scale set %d", id), func(ctx context.Context, oc *official.Client) (*official.RunnerScaleSet, error) {
		return oc.GetRunnerScaleSetByID(ctx, int(id))
	})
}

// Create makes a scale set. A name that is taken: KindExists, also when GitHub's answer
// to an earlier Create was lost; Find tells.
func (c *Client) Create(ctx context.Context, set Set) (*Set, error) {
	return c.set(ctx, endpointScaleSetCreate, fmt.Sprintf("creating scale set %q", set.Name), func(ctx context.Context, oc *official.Client) (*official.RunnerScaleSet, error) {
		return oc.CreateRunnerScaleSet(ctx, wireSet(set))
	})
}

// Update renames a scale set, moves it to another runner group and sets its labels.
func (c *Client) Update(ctx context.Context, id int64, set Set) (*Set, error) {
	return c.set(ctx, endpointScaleSetUpdate, fmt.Sprintf("updating scale set %d", id), func(ctx context.Context, oc *official.Client) (*official.RunnerScaleSet, error) {
		return oc.UpdateRunnerScaleSet(ctx, int(id), wireSet(set))
	})
}

// Delete removes a scale set; one that is gone is fine.
func (c *Client) Delete(ctx context.Context, id int64) error {
	err := c.do(ctx, endpointScaleSetDelete, fmt.Sprintf("deleting scale set %d", id), func(ctx context.Context, oc *official.Client) error {
		return oc.DeleteRunnerScaleSet(ctx, int(id))
	})
	if github.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Client) set(ctx context.Context, class endpoint, doing string, call func(context.Context, *official.Client) (*official.RunnerScaleSet, error)) (*Set, error) {
	var set *Set
	err := c.do(ctx, class, doing, func(ctx context.Context, oc *official.Client) error {
		got, err := call(ctx, oc)
		if err == nil && got != nil {
			set = setOf(got)
			_, err = github.Fit(set)
		}
		return err
	})
	return set, err
}

// wireSet turns updates of the runner by itself off: its version is its image's.
func wireSet(set Set) *official.RunnerScaleSet {
	wire := &official.RunnerScaleSet{
		Name: set.Name, RunnerGroupID: int(set.GroupID), RunnerSetting: official.RunnerSetting{DisableUpdate: true},
	}
	for _, label := range set.Labels {
		wire.Labels = append(wire.Labels, official.Label{Type: "System", Name: label})
	}
	return wire
}

func setOf(wire *official.RunnerScaleSet) *Set {
	set := &Set{
		ID: int64(wire.ID), Name: wire.Name, GroupID: int64(wire.RunnerGroupID), GroupName: wire.RunnerGroupName,
		Statistics: statisticsOf(wire.Statistics),
	}
	for _, label := range wire.Labels {
		set.Labels = append(set.Labels, label.Name)
	}
	return set
}

func statisticsOf(wire *official.RunnerScaleSetStatistic) *Statistics {
	if wire == nil {
		return nil
	}
	count := func(n int) int { return min(max(n, 0), math.MaxInt32) } // nothing says that GitHub's numbers are any
	return &Statistics{
		AvailableJobs: count(wire.TotalAvailableJobs), AssignedJobs: count(wire.TotalAssignedJobs), RunningJobs: count(wire.TotalRunningJobs),
		RegisteredRunners: count(wire.TotalRegisteredRunners), BusyRunners: count(wire.TotalBusyRunners), IdleRunners: count(wire.TotalIdleRunners),
	}
}

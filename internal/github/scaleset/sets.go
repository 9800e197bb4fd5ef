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
	// Statistics are GitHub's counts; nil if it sent none. Create and Update ignore them.
	Statistics *Statistics
}

// Statistics are GitHub's counts for a scale set.
type Statistics struct {
	AvailableJobs int // offered and not acquired; can be stale
	AssignedJobs  int // assigned and not completed, including running jobs
	RunningJobs   int

	RegisteredRunners int // including offline runners
	BusyRunners       int
	IdleRunners       int // online, without a job
}

// RunnerGroupID returns the id of a runner group by its name. The names "" and "default", in any case, are the default
// group and need no request. If there is no such group, it returns KindRunnerGroupNotFound.
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
	// For an unknown name GitHub returns an empty list, which the official client reports only in its error text.
	if err != nil && strings.Contains(err.Error(), "no runner group found") {
		return 0, &github.Error{Kind: github.KindRunnerGroupNotFound, Doing: doing, Message: "there is no such group, or this connection can't see it"}
	}
	return id, err
}

// Find returns a scale set by its runner group and name, or nil if there is none.
func (c *Client) Find(ctx context.Context, groupID int64, name string) (*Set, error) {
	return c.set(ctx, endpointScaleSetFind, fmt.Sprintf("looking for scale set %q", name), func(ctx context.Context, oc *official.Client) (*official.RunnerScaleSet, error) {
		return oc.GetRunnerScaleSet(ctx, int(groupID), url.QueryEscape(name))
	})
}

// Get returns a scale set with its statistics. If it does not exist, it returns KindNotFound.
func (c *Client) Get(ctx context.Context, id int64) (*Set, error) {
	return c.set(ctx, endpointScaleSetGet, fmt.Sprintf("reading scale set %d", id), func(ctx context.Context, oc *official.Client) (*official.RunnerScaleSet, error) {
		return oc.GetRunnerScaleSetByID(ctx, int(id))
	})
}

// Create creates a scale set. If the name is taken, possibly by an earlier Create whose answer was lost, it returns
// KindExists. The caller can then use Find.
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

// Delete deletes a scale set. A missing scale set is not an error.
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

// wireSet converts a Set to GitHub's format. It disables automatic updates of the runner program, because the image
// determines its version.
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
	count := func(n int) int { return min(max(n, 0), math.MaxInt32) } // GitHub's numbers may be out of range
	return &Statistics{
		AvailableJobs: count(wire.TotalAvailableJobs), AssignedJobs: count(wire.TotalAssignedJobs), RunningJobs: count(wire.TotalRunningJobs),
		RegisteredRunners: count(wire.TotalRegisteredRunners), BusyRunners: count(wire.TotalBusyRunners), IdleRunners: count(wire.TotalIdleRunners),
	}
}

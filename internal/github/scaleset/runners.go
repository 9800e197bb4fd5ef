// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

// Runner is the registration of a runner.
type Runner struct {
	ID    int64
	Name  string
	SetID int64
	// Status is StatusOnline, StatusOffline, or another of GitHub's values; empty if GitHub returned none or was not
	// asked for it.
	Status string
	// Busy is true while the runner has a job, if GitHub returned this.
	Busy bool
}

// Statuses of a runner's connection.
const (
	StatusOnline  = "online"
	StatusOffline = "offline"
)

// agent holds the fields of a runner that the official client does not read (GARM's params.RunnerReference).
type agent struct {
	Status string `json:"status"`
	Busy   bool   `json:"busy"`
}

// GenerateJIT registers a runner. If the name is taken, possibly by an earlier call whose answer was lost, it returns
// KindRunnerExists. The caller then has to call RunnerByName and RemoveRunner before it tries again.
func (c *Client) GenerateJIT(ctx context.Context, setID int64, runnerName string) (github.JIT, error) {
	return c.GenerateJITIn(ctx, setID, runnerName, "")
}

// GenerateJITIn does what GenerateJIT does, for a runner with a work folder; empty for the default.
func (c *Client) GenerateJITIn(ctx context.Context, setID int64, runnerName, folder string) (github.JIT, error) {
	var jit github.JIT
	err := c.do(ctx, endpointGenerateJIT, fmt.Sprintf("registering runner %q", runnerName), func(ctx context.Context, oc *official.Client) error {
		config, err := oc.GenerateJitRunnerConfig(ctx, &official.RunnerScaleSetJitRunnerSetting{Name: runnerName, WorkFolder: github.WorkFolder(folder)}, int(setID))
		if err != nil {
			return err
		}
		if config == nil || config.Runner == nil || config.Runner.ID == 0 || config.EncodedJITConfig == "" {
			return errors.New("the answer has no runner or no configuration")
		}
		jit = github.JIT{RunnerID: int64(config.Runner.ID), Encoded: config.EncodedJITConfig}
		return nil
	})
	return jit, err
}

// RunnerByName returns a registration by its name, or nil if GitHub returns an empty list. Any other answer without a
// runner is an error.
func (c *Client) RunnerByName(ctx context.Context, name string) (*Runner, error) {
	var runner *Runner
	err := c.do(ctx, endpointRunnerFind, fmt.Sprintf("looking for runner %q", name), func(ctx context.Context, oc *official.Client) error {
		found, err := oc.GetRunnerByName(ctx, url.QueryEscape(name))
		if err == nil && found != nil {
			runner = &Runner{ID: int64(found.ID), Name: found.Name, SetID: int64(found.RunnerScaleSetID)}
			_, err = github.Fit(runner)
		}
		return err
	})
	return runner, err
}

// Runner returns a registration by its id, including its connection status and whether it is busy; nil if there is
// none.
func (c *Client) Runner(ctx context.Context, id int64) (*Runner, error) {
	var runner *Runner
	doing := fmt.Sprintf("looking for runner %d", id)
	err := c.do(ctx, endpointRunnerGet, doing, func(ctx context.Context, oc *official.Client) error {
		connection := &agent{}
		if x := exchangeOf(ctx); x != nil {
			x.agent = connection
		}
		found, err := oc.GetRunner(ctx, int(id))
		if err == nil && found != nil {
			runner = &Runner{ID: int64(found.ID), Name: found.Name, SetID: int64(found.RunnerScaleSetID), Status: strings.ToLower(connection.Status), Busy: connection.Busy}
			_, err = github.Fit(runner)
		}
		return err
	})
	if github.IsNotFound(err) {
		return nil, nil
	}
	return runner, err
}

// RemoveRunner deletes a registration. It returns KindJobStillRunning if the runner has a job. If GitHub does not know
// the runner, it returns KindNotFound, or nil: GitHub answers 204 for a runner that has removed itself.
func (c *Client) RemoveRunner(ctx context.Context, id int64) error {
	return c.do(ctx, endpointRunnerDelete, fmt.Sprintf("removing runner %d", id), func(ctx context.Context, oc *official.Client) error {
		return oc.RemoveRunner(ctx, id)
	})
}

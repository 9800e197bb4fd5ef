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

// Runner is a runner's registration.
type Runner struct {
	ID    int64
	Name  string
	SetID int64
	// Status is StatusOnline, StatusOffline, or what else GitHub says; empty if it says nothing, and where it wasn't asked.
	Status string
	// Busy is true while it has a job, if GitHub says so.
	Busy bool
}

// What GitHub says of a runner's connection.
const (
	StatusOnline  = "online"
	StatusOffline = "offline"
)

// agent is what the Actions service says of a runner and the official client doesn't read (GARM's params.RunnerReference).
type agent struct {
	Status string `json:"status"`
	Busy   bool   `json:"busy"`
}

// GenerateJIT registers a runner. A name that is taken: KindRunnerExists, also when
// GitHub's answer to an earlier call was lost; then RunnerByName, RemoveRunner, again.
func (c *Client) GenerateJIT(ctx context.Context, setID int64, runnerName string) (github.JIT, error) {
	return c.GenerateJITIn(ctx, setID, runnerName, "")
}

// GenerateJITIn is GenerateJIT of a runner whose jobs work in a folder; empty for the default.
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

// RunnerByName looks a registration up; nil when there is none, which only an empty list says.
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

// Runner looks a registration up by its id, with whether it is connected and busy; nil when there is none.
func (c *Client) Runner(ctx context.Context, id int64) (*Runner, error) {
	var runner *Runner
	doing := fmt.Sprintf("looking for runner %d", id)
	err := c.do(ctx, endpointRunnerGet, doing, func(ctx context.Context, oc *official.Client) error {
		said := &agent{}
		if x := exchangeOf(ctx); x != nil {
			x.agent = said
		}
		found, err := oc.GetRunner(ctx, int(id))
		if err == nil && found != nil {
			runner = &Runner{ID: int64(found.ID), Name: found.Name, SetID: int64(found.RunnerScaleSetID), Status: strings.ToLower(said.Status), Busy: said.Busy}
			_, err = github.Fit(runner)
		}
		return err
	})
	if github.IsNotFound(err) {
		return nil, nil
	}
	return runner, err
}

// RemoveRunner ends a registration. The runner has a job: KindJobStillRunning. GitHub does not know it: KindNotFound, or no error, as
// it is to answer 204 for a runner that has removed itself.
func (c *Client) RemoveRunner(ctx context.Context, id int64) error {
	return c.do(ctx, endpointRunnerDelete, fmt.Sprintf("removing runner %d", id), func(ctx context.Context, oc *official.Client) error {
		return oc.RemoveRunner(ctx, id)
	})
}

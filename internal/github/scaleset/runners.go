// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	official "github.com/actions/scaleset"
)

// workFolder is where a runner checks out, below its own folder; GitHub's default.
const workFolder = "_work"

// JIT is the registration of a runner that is yet to start.
type JIT struct {
	// RunnerID on GitHub. The runner is registered, and offline, from now on.
	RunnerID int64
	// Encoded is the runner's --jitconfig: a secret of some 4 KiB.
	Encoded string
}

// Runner is a runner's registration.
type Runner struct {
	ID    int64
	Name  string
	SetID int64
}

// GenerateJIT registers a runner. A name that is taken: KindRunnerExists, also when
// GitHub's answer to an earlier call was lost; then RunnerByName, RemoveRunner, again.
func (c *Client) GenerateJIT(ctx context.Context, setID int64, runnerName string) (JIT, error) {
	var jit JIT
	err := c.do(InFlow(ctx, setID), endpointGenerateJIT, fmt.Sprintf("registering runner %q", runnerName), func(ctx context.Context, oc *official.Client) error {
		config, err := oc.GenerateJitRunnerConfig(ctx, &official.RunnerScaleSetJitRunnerSetting{Name: runnerName, WorkFolder: workFolder}, int(setID))
		if err != nil {
			return err
		}
		if config == nil || config.Runner == nil || config.EncodedJITConfig == "" {
			return errors.New("the answer has no runner or no configuration")
		}
		jit = JIT{RunnerID: int64(config.Runner.ID), Encoded: config.EncodedJITConfig}
		return nil
	})
	return jit, err
}

// RunnerByName looks a registration up; nil when there is none.
func (c *Client) RunnerByName(ctx context.Context, name string) (*Runner, error) {
	var runner *Runner
	err := c.do(ctx, endpointRunnerGet, fmt.Sprintf("looking for runner %q", name), func(ctx context.Context, oc *official.Client) error {
		found, err := oc.GetRunnerByName(ctx, url.QueryEscape(name))
		if err == nil && found != nil {
			runner = &Runner{ID: int64(found.ID), Name: found.Name, SetID: int64(found.RunnerScaleSetID)}
		}
		return err
	})
	if IsNotFound(err) {
		return nil, nil
	}
	return runner, err
}

// RemoveRunner ends a registration; one that is gone is fine. The runner has a job:
// KindJobStillRunning. InFlow says whose turn it takes.
func (c *Client) RemoveRunner(ctx context.Context, id int64) error {
	err := c.do(ctx, endpointRunnerDelete, fmt.Sprintf("removing runner %d", id), func(ctx context.Context, oc *official.Client) error {
		return oc.RemoveRunner(ctx, id)
	})
	if IsNotFound(err) {
		return nil
	}
	return err
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
)

const (
	// pageSize is GitHub's maximum page size.
	pageSize = 100
	// mostPages limits a listing. GitHub allows 10,000 runners in an organization.
	mostPages = 150
	// mostListed is the maximum size of a listing in memory, in bytes. 10,000 runners with five labels each take about
	// 3 MB.
	mostListed = 8 << 20
	// leastAge is the minimum age of a listing before it is read again.
	leastAge = 15 * time.Second
)

// Runner is the registration of a runner.
type Runner struct {
	ID      int64
	Name    string
	Labels  []string
	GroupID int64
	// Online is true if the runner is connected to GitHub. Busy is true if it has a job.
	Online, Busy bool
	// Version is the version of the runner program; empty if the server does not return it.
	Version string
}

// RunnerList holds all runners of a scope.
type RunnerList struct {
	Runners []Runner
	// At is the time when the listing began. Later registrations may be missing.
	At time.Time
}

// Registration describes a runner to register.
type Registration struct {
	// Name is the runner's name, unique in its scope.
	Name string
	// Group is the name of the runner group. The names "" and "default", in any case, are the default group.
	Group string
	// Labels are all labels of the runner. GitHub adds none.
	Labels []string
	// WorkFolder is the folder for its jobs; empty for the default.
	WorkFolder string
}

func runnerOf(r *gogithub.Runner) Runner {
	if r == nil {
		return Runner{}
	}
	labels := make([]string, 0, len(r.Labels))
	for _, l := range r.Labels {
		labels = append(labels, l.GetName())
	}
	return Runner{
		ID: r.GetID(), Name: r.GetName(), Labels: labels, GroupID: r.GetRunnerGroupID(),
		Online: r.GetStatus() == "online", Busy: r.GetBusy(), Version: r.GetVersion(),
	}
}

// GenerateJIT registers an ephemeral runner and returns its start configuration. If the name is taken, possibly by an
// earlier call whose answer was lost, it returns KindRunnerExists. If the runner group does not exist, it returns
// KindRunnerGroupNotFound.
func (c *Client) GenerateJIT(ctx context.Context, r Registration) (github.JIT, error) {
	return c.generateJIT(ctx, kindJIT, r)
}

// RegisterPlaceholder registers a runner that never starts. It does what GenerateJIT does, but leaves enough of GitHub's
// limits for runners that have to start.
func (c *Client) RegisterPlaceholder(ctx context.Context, r Registration) error {
	_, err := c.generateJIT(ctx, kindPlaceholder, r)
	return err
}

func (c *Client) generateJIT(ctx context.Context, k kind, r Registration) (github.JIT, error) {
	group, err := c.GroupID(ctx, r.Group)
	if err != nil {
		return github.JIT{}, err
	}
	body := gogithub.CreateJITConfigRequest{Name: r.Name, RunnerGroupID: group, Labels: r.Labels, WorkFolder: gogithub.Ptr(github.WorkFolder(r.WorkFolder))}
	doing := fmt.Sprintf("registering runner %q", r.Name)
	made, err := ask(ctx, c, k, doing, func(ctx context.Context, gh *gogithub.Client) (*gogithub.JITRunnerConfig, *gogithub.Response, error) {
		switch c.target.Scope {
		case github.Organization:
			return something(gh.Actions.CreateOrgJITConfig(ctx, c.target.Owner, body))
		case github.Repository:
			return something(gh.Actions.CreateRepoJITConfig(ctx, c.target.Owner, c.target.Name, body))
		}
		return something(gh.Enterprise.CreateJITConfig(ctx, c.target.Name, body))
	})
	if err != nil {
		return github.JIT{}, err
	}
	if made.GetRunner().GetID() == 0 || made.GetEncodedJITConfig() == "" {
		err := errors.New("the answer has no runner or no configuration")
		return github.JIT{}, github.NewError(github.KindUnexpected, doing, 0, 0, err.Error(), err)
	}
	return github.JIT{RunnerID: made.GetRunner().GetID(), Encoded: made.GetEncodedJITConfig()}, nil
}

// RegistrationToken returns a token that any runner can use for an hour to register itself with the scope.
func (c *Client) RegistrationToken(ctx context.Context) (string, error) {
	const doing = "getting a registration token"
	made, err := ask(ctx, c, kindRegister, doing, func(ctx context.Context, gh *gogithub.Client) (*gogithub.RegistrationToken, *gogithub.Response, error) {
		switch c.target.Scope {
		case github.Organization:
			return something(gh.Actions.CreateOrganizationRegistrationToken(ctx, c.target.Owner))
		case github.Repository:
			return something(gh.Actions.CreateRegistrationToken(ctx, c.target.Owner, c.target.Name))
		}
		return something(gh.Enterprise.CreateRegistrationToken(ctx, c.target.Name))
	})
	if err == nil && made.GetToken() == "" {
		err := errors.New("the answer has no token")
		return "", github.NewError(github.KindUnexpected, doing, 0, 0, err.Error(), err)
	}
	return made.GetToken(), err
}

// RemoveRunner deletes a registration. It returns KindJobStillRunning if the runner has a job, and KindNotFound if
// GitHub does not know the runner.
func (c *Client) RemoveRunner(ctx context.Context, id int64) error {
	return c.removeRunner(ctx, kindRemove, id)
}

// RemovePlaceholder deletes the registration of a placeholder. It does what RemoveRunner does, but leaves enough of
// GitHub's limits for runners that have to start.
func (c *Client) RemovePlaceholder(ctx context.Context, id int64) error {
	return c.removeRunner(ctx, kindUnplace, id)
}

func (c *Client) removeRunner(ctx context.Context, k kind, id int64) error {
	return c.do(ctx, k, fmt.Sprintf("removing runner %d", id), func(ctx context.Context, gh *gogithub.Client) (*gogithub.Response, error) {
		switch c.target.Scope {
		case github.Organization:
			return gh.Actions.RemoveOrganizationRunner(ctx, c.target.Owner, id)
		case github.Repository:
			return gh.Actions.RemoveRunner(ctx, c.target.Owner, c.target.Name, id)
		}
		return gh.Enterprise.RemoveRunner(ctx, c.target.Name, id)
	})
}

// Runner returns a registration by its id, or nil if there is none.
func (c *Client) Runner(ctx context.Context, id int64) (*Runner, error) {
	doing := fmt.Sprintf("looking for runner %d", id)
	found, err := ask(ctx, c, kindRunner, doing, func(ctx context.Context, gh *gogithub.Client) (*gogithub.Runner, *gogithub.Response, error) {
		switch c.target.Scope {
		case github.Organization:
			return something(gh.Actions.GetOrganizationRunner(ctx, c.target.Owner, id))
		case github.Repository:
			return something(gh.Actions.GetRunner(ctx, c.target.Owner, c.target.Name, id))
		}
		return something(gh.Enterprise.GetRunner(ctx, c.target.Name, id))
	})
	if github.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := fitting(doing, runnerOf(found), &room{})
	return &r, err
}

// RunnerByName returns a registration by its name, or nil if there is none. A server that cannot filter by name returns
// all runners, in pages.
func (c *Client) RunnerByName(ctx context.Context, name string) (*Runner, error) {
	for r, err := range c.listRunners(ctx, kindRunner, fmt.Sprintf("looking for runner %q", name), &name) {
		if err != nil {
			return nil, err
		}
		if r.Name == name {
			return &r, nil
		}
	}
	return nil, nil
}

// Runners lists all runners of the scope, including those that Corral did not register. Callers share a listing that is
// no older than maxAge, or 15 s if maxAge is shorter.
func (c *Client) Runners(ctx context.Context, maxAge time.Duration) (RunnerList, error) {
	return c.runners.get(ctx, c.options.Now, "", max(maxAge, leastAge), func(ctx context.Context) (RunnerList, error) {
		list := RunnerList{At: c.options.Now()}
		for r, err := range c.listRunners(ctx, kindRunners, "listing runners", nil) {
			if err != nil {
				return RunnerList{}, err
			}
			list.Runners = append(list.Runners, r)
		}
		return list, nil
	})
}

func (c *Client) listRunners(ctx context.Context, k kind, doing string, name *string) iter.Seq2[Runner, error] {
	return elements(ctx, c, k, doing, &room{}, (*gogithub.Runners).GetRunners, runnerOf, func(ctx context.Context, gh *gogithub.Client, page gogithub.ListOptions) (*gogithub.Runners, *gogithub.Response, error) {
		o := &gogithub.ListRunnersOptions{ListOptions: page, Name: name}
		switch c.target.Scope {
		case github.Organization:
			return something(gh.Actions.ListOrganizationRunners(ctx, c.target.Owner, o))
		case github.Repository:
			return something(gh.Actions.ListRunners(ctx, c.target.Owner, c.target.Name, o))
		}
		return something(gh.Enterprise.ListRunners(ctx, c.target.Name, o))
	})
}

// isDefaultGroup reports whether a name stands for the default group.
func isDefaultGroup(name string) bool { return name == "" || strings.EqualFold(name, "default") }

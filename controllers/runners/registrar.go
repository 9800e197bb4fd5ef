// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
)

// RESTClients finds the REST client of a connection by NAMESPACE/NAME.
type RESTClients interface {
	Get(key string) (*rest.Client, bool)
}

// registrar registers a runner with a scale set or through the REST API, and finds and removes its registration. Its errors
// are *github.Error.
type registrar interface {
	// generate registers the runner. For a persistent runner, which registers itself, it requests a registration token
	// instead.
	generate(ctx context.Context) (github.JIT, error)
	// find looks for the runner by the ID of its registration or, if that is 0, by its name. It returns nil if GitHub does
	// not know a registration. One such answer does not prove that there is none: see absence.
	find(ctx context.Context, id int64) (*registered, error)
	// remove removes a registration. KindNotFound means that GitHub does not know it.
	remove(ctx context.Context, id int64) error
	// network returns the settings for reaching GitHub.
	network() github.Network
	// check returns an error unless this is the GitHub instance that the runner registered with. KindNotFound means that the
	// scale set does not exist.
	check(ctx context.Context) error
}

// registered is a registration on GitHub with a runner's name or ID.
type registered struct {
	id int64
	// busy is true if GitHub reports that the runner has a job.
	busy bool
	// online and offline are GitHub's report of the runner's connection; neither is set if GitHub reports nothing.
	online, offline bool
	// foreign describes the registration if it does not belong to the runner.
	foreign string
}

// access is whether Corral can reach a runner's registration through its connection.
type access int

const (
	allowed  access = iota
	notReady        // the connection has no client yet
	moved           // the connection leads to another place on GitHub than the runner's registration
	denied          // the connection belongs to another namespace that does not allow this one
)

// client returns the registrar of the runner, or nil unless access is allowed. For a while after a connection withdraws its
// consent, client still returns a registrar for the clean-up. Callers that register a runner must therefore check the
// consent first.
func (p pass) client(ctx context.Context) (registrar, access) {
	if !p.Access.CleansUp(ctx, p.connectionKey(), p.runner.Namespace) {
		return nil, denied
	}
	key, as := connections.Key(p.connectionKey()), p.runner.Spec.REST
	if as == nil {
		if gh, ok := p.Clients.Get(key); ok {
			return byScaleSet{gh: gh, name: p.runner.Name, setID: p.runner.Spec.ScaleSetID, folder: p.runner.Spec.WorkFolder}, allowed
		}
	} else if p.REST != nil {
		gh, ok := p.REST.Get(key)
		switch {
		case ok && !leadsTo(gh, as):
			return nil, moved
		case ok:
			return byREST{gh: gh, name: p.runner.Name, as: *as, folder: p.runner.Spec.WorkFolder}, allowed
		}
	}
	return nil, notReady
}

// leadsTo reports whether a client reaches the place on GitHub where a runner is, or should be, registered. The URL of a
// connection never changes, but a new connection may have the name of a deleted one. IDs are valid in one place only: in
// another place, the same ID may belong to another team's runner.
func leadsTo(gh *rest.Client, as *v1alpha1.RESTRegistration) bool {
	was, err := github.ParseURL(as.URL)
	return err == nil && gh.Target().Is(was)
}

// inFlow returns a context whose calls to GitHub take turns with the calls for other pools.
func inFlow(ctx context.Context, r *v1alpha1.Runner) context.Context {
	return github.InFlow(ctx, r.Namespace+"/"+r.Spec.PoolRef.Name)
}

// byScaleSet registers a runner with a scale set.
type byScaleSet struct {
	gh     *scaleset.Client
	name   string
	setID  int64
	folder string // work folder of jobs; empty for the default
}

func (s byScaleSet) generate(ctx context.Context) (github.JIT, error) {
	return s.gh.GenerateJITIn(ctx, s.setID, s.name, s.folder)
}

// find looks for the ID first. If it finds no registration of this runner, it looks for the name, because the ID in a
// status may belong to another runner.
func (s byScaleSet) find(ctx context.Context, id int64) (known *registered, err error) {
	var found *scaleset.Runner
	if id != 0 {
		found, err = s.gh.Runner(ctx, id)
		if known = s.registered(found); err != nil || known != nil && known.foreign == "" {
			return known, err
		}
	}
	if found, err = s.gh.RunnerByName(ctx, s.name); found != nil {
		known = s.registered(found)
	}
	return known, err
}

func (s byScaleSet) registered(known *scaleset.Runner) *registered {
	if known == nil {
		return nil
	}
	r := &registered{id: known.ID, busy: known.Busy, online: known.Status == scaleset.StatusOnline, offline: known.Status == scaleset.StatusOffline}
	switch {
	case known.SetID != s.setID:
		r.foreign = fmt.Sprintf("with another scale set (id %d)", known.SetID)
	case known.Name != s.name:
		r.foreign = "under another name"
	}
	return r
}

func (s byScaleSet) remove(ctx context.Context, id int64) error { return s.gh.RemoveRunner(ctx, id) }

func (s byScaleSet) network() github.Network { return s.gh.Network() }

func (s byScaleSet) check(ctx context.Context) error {
	_, err := s.gh.Get(ctx, s.setID)
	return err
}

// byREST registers a runner through the REST API.
type byREST struct {
	gh     *rest.Client
	name   string
	as     v1alpha1.RESTRegistration
	folder string // work folder of jobs; empty for the default
}

// generate registers the runner. GitHub answers 404 if the credentials have no right to register runners, or if an
// Enterprise Server is too old.
func (s byREST) generate(ctx context.Context) (github.JIT, error) {
	jit, err := s.register(ctx)
	if github.IsNotFound(err) {
		return jit, s.forbidden(fmt.Sprintf("registering runner %q", s.name), "register runners for %s, or the server has no just-in-time runners", err)
	}
	return jit, err
}

// forbidden returns the error for a 404 answer that means that the credentials have insufficient rights.
func (s byREST) forbidden(doing, format string, err error) error {
	return github.NewError(github.KindForbidden, doing, http.StatusNotFound, 0, "the credentials may not "+fmt.Sprintf(format, s.gh.Target()), err)
}

func (s byREST) register(ctx context.Context) (jit github.JIT, err error) {
	if s.as.Persistent {
		jit.Encoded, err = s.gh.RegistrationToken(ctx)
		return jit, err
	}
	return s.gh.GenerateJIT(ctx, rest.Registration{Name: s.name, Group: s.as.RunnerGroup, Labels: s.as.Labels, WorkFolder: s.folder})
}

func (s byREST) find(ctx context.Context, id int64) (*registered, error) {
	var known *rest.Runner
	var err error
	if id != 0 {
		known, err = s.gh.Runner(ctx, id)
	}
	if err == nil && known == nil { // GitHub may list a runner although a request by its id returns 404
		known, err = s.byName(ctx)
	}
	if err != nil || known == nil || id != 0 && known.ID != id {
		return nil, err
	}
	r := &registered{id: known.ID, busy: known.Busy}
	if known.Name != s.name || !s.isOurs(known.Labels, id != 0) {
		r.foreign = "by another process"
	}
	return r, nil
}

// isOurs reports whether a registration with the runner's name and these labels may belong to the runner. Normally it has
// the owner label of the runner's pool. An administrator may have removed that label. A registration without any owner
// label therefore belongs to the runner if it was found by the runner's ID. A registration with the owner label of another
// pool does not, because the ID may be forged.
func (s byREST) isOurs(labels []string, idKnown bool) bool {
	marks := slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return !v1alpha1.IsOwnerLabel(l) })
	return slices.Contains(marks, s.as.Mark()) || idKnown && len(marks) == 0
}

func (s byREST) remove(ctx context.Context, id int64) error { return s.gh.RemoveRunner(ctx, id) }

func (s byREST) network() github.Network { return s.gh.Network() }

// check looks for the runner in GitHub's list, which fails if the credentials cannot list runners. GitHub answers 404 in
// this case, which byName converts to KindForbidden.
func (s byREST) check(ctx context.Context) error {
	_, err := s.byName(ctx)
	return err
}

// byName finds the runner in GitHub's list. It returns nil if the runner is not in the list.
func (s byREST) byName(ctx context.Context) (*rest.Runner, error) {
	known, err := s.gh.RunnerByName(ctx, s.name)
	if github.IsNotFound(err) {
		return nil, s.forbidden(fmt.Sprintf("looking for runner %q", s.name), "list the runners of %s", err)
	}
	return known, err
}

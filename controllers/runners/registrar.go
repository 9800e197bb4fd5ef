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

// registrar is where a runner is registered: with a scale set, or by the REST API. Its errors are
// *github.Error.
type registrar interface {
	// generate registers the runner; of one that registers itself, it gets the token for that.
	generate(ctx context.Context) (github.JIT, error)
	// find looks for the runner by the id that it registered under or, while that is 0, for what has its
	// name; nil if nothing is there, which proves little: see absence.
	find(ctx context.Context, id int64) (*registered, error)
	// remove ends a registration. GitHub does not know it: KindNotFound.
	remove(ctx context.Context, id int64) error
	// network is the way to GitHub.
	network() github.Network
	// check returns an error unless this is the GitHub that the runner registered with. KindNotFound: it has no such scale set.
	check(ctx context.Context) error
}

// registered is what has a runner's name on GitHub.
type registered struct {
	id int64
	// busy is true of one with a job, if GitHub says so.
	busy bool
	// online and offline say whether it is connected; neither is set if GitHub doesn't tell.
	online, offline bool
	// foreign says how it is registered if it isn't the runner.
	foreign string
}

// access tells whether a runner's registration can be reached by its connection.
type access int

const (
	allowed  access = iota
	notReady        // the connection has no client yet
	moved           // the connection leads to another place than the runner registered with
	denied          // the connection is of another namespace that doesn't allow it
)

// client finds where the runner is registered; nil unless that is allowed. Who registers has to ask for consent, too.
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

// leadsTo reports whether a client is for where a runner is, or is to be, registered. The url of a
// connection never changes, but another connection may have its name. Ids are of one place: in another
// the same one is somebody else's runner.
func leadsTo(gh *rest.Client, as *v1alpha1.RESTRegistration) bool {
	was, err := github.ParseURL(as.URL)
	return err == nil && gh.Target().Is(was)
}

// inFlow lets calls for the runner take turns with those for other pools.
func inFlow(ctx context.Context, r *v1alpha1.Runner) context.Context {
	return github.InFlow(ctx, r.Namespace+"/"+r.Spec.PoolRef.Name)
}

// byScaleSet registers a runner with a scale set.
type byScaleSet struct {
	gh     *scaleset.Client
	name   string
	setID  int64
	folder string // that jobs work in; empty for the default
}

func (s byScaleSet) generate(ctx context.Context) (github.JIT, error) {
	return s.gh.GenerateJITIn(ctx, s.setID, s.name, s.folder)
}

// find looks by id, and then by name: an id in a status can be another runner's.
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

// byREST registers a runner by the REST API.
type byREST struct {
	gh     *rest.Client
	name   string
	as     v1alpha1.RESTRegistration
	folder string // that jobs work in; empty for the default
}

// generate registers the runner. GitHub answers 404 to who lacks the right to; an Enterprise
// Server that is too old does so, too.
func (s byREST) generate(ctx context.Context) (github.JIT, error) {
	jit, err := s.register(ctx)
	if github.IsNotFound(err) {
		return jit, s.forbidden(fmt.Sprintf("registering runner %q", s.name), "register runners for %s, or the server has no just-in-time runners", err)
	}
	return jit, err
}

// forbidden is the error of an answer of 404 that means that the credentials lack a right.
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

// isOurs reports whether labels leave a registration with the runner's name to the runner. Anybody who administers runners may take the mark of its
// pool away: then its id tells, if that is known. With another pool's mark it doesn't, as an id may be forged.
func (s byREST) isOurs(labels []string, idKnown bool) bool {
	marks := slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return !v1alpha1.IsOwnerLabel(l) })
	return slices.Contains(marks, s.as.Mark()) || idKnown && len(marks) == 0
}

func (s byREST) remove(ctx context.Context, id int64) error { return s.gh.RemoveRunner(ctx, id) }

func (s byREST) network() github.Network { return s.gh.Network() }

// check lists the runners of the name: the client is for the runner's scope, but GitHub answers 404 also to credentials that lost their rights.
func (s byREST) check(ctx context.Context) error {
	_, err := s.byName(ctx)
	return err
}

// byName finds the runner in GitHub's list. It returns nil if the list does not have it.
func (s byREST) byName(ctx context.Context) (*rest.Runner, error) {
	known, err := s.gh.RunnerByName(ctx, s.name)
	if github.IsNotFound(err) {
		return nil, s.forbidden(fmt.Sprintf("looking for runner %q", s.name), "list the runners of %s", err)
	}
	return known, err
}

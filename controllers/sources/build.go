// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/internal/worker"
)

// maxStatusDiagnostics is the maximum number of diagnostics in the status, and maxMessageDiagnostics in the condition's
// message.
const (
	maxStatusDiagnostics  = 20
	maxMessageDiagnostics = 5
)

// cacheKey identifies the input of a compiled revision. The source and the URL are part of it because a malicious server may
// claim to have any commit: no source may get the result of another source's repository. The schema is not part of it,
// because it only changes with the program.
type cacheKey struct {
	source              types.UID
	url, revision, path string
	tags                string
	trust               string // digest of the trusted signers
	digest              string // digest of the artifact, for a Flux source
}

// revision is the revision that a source's reference resolved to.
type revision struct {
	name     string            // as in the status; empty while unknown
	request  gitsource.Request // for a repository
	artifact *meta.Artifact    // for a Flux source
}

// built is the result of compiling a revision.
type built struct {
	revision  revision // the revision that was fetched, because a branch may move after it was resolved
	attempted bool     // the status will name the revision as attempted
	result    compile.Result
}

// resolve returns the revision to apply.
func (p *pass) resolve(ctx context.Context) (revision, error) {
	if p.source.Spec.SourceRef != nil {
		return p.resolveArtifact(ctx)
	}
	return p.resolveGit(ctx)
}

func (p *pass) resolveGit(ctx context.Context) (revision, error) {
	auth, err := p.credentials(ctx)
	if err != nil {
		return revision{}, err
	}
	verify, err := p.verification(ctx)
	if err != nil {
		return revision{}, err
	}
	git := p.source.Spec.Git
	rev := revision{request: gitsource.Request{URL: git.URL, Ref: gitsource.Ref(git.GetRef()), Auth: auth, Verify: verify}}
	err = p.ask(ctx, rev.dials(), func(limited context.Context) (err error) {
		rev.name, err = p.Fetcher.Resolve(limited, rev.request)
		return err
	})
	if err != nil {
		return rev, p.fetchFailed(ctx, rev, err)
	}
	return rev, nil
}

// dials returns the address to which the controller connects. If the source has a proxy, this is the proxy's address,
// because the proxy may be slow although the server is not.
func (r revision) dials() string {
	location, err := url.Parse(r.request.URL)
	switch {
	case r.artifact != nil:
		location, err = url.Parse(r.artifact.URL)
	case r.request.Auth.Proxy != nil:
		location = r.request.Auth.Proxy
	}
	if err != nil {
		return "" // no server is called
	}
	return dialled(location)
}

// ask calls a server within spec.timeout if the source has or gets a turn at it; otherwise it returns errBusy or errLate.
// The turn lasts until leave, so that a source that found a new revision can fetch it in the same turn.
func (p *pass) ask(ctx context.Context, server string, call func(context.Context) error) (err error) {
	if p.turn == nil {
		if p.turn, err = p.hosts.enter(client.ObjectKeyFromObject(p.source), server); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, p.source.Spec.GetTimeout())
	defer cancel()
	if err = call(limited); err != nil {
		p.leave(err)
	}
	return err
}

// leave ends the turn at a server, if the source has one.
func (p *pass) leave(err error) {
	if p.turn != nil {
		p.turn.leave(err)
		p.turn = nil
	}
}

// build returns the objects of a revision, from the cache if possible, or stalls with its diagnostics. On request, a failed
// revision is compiled again, because it may have failed on a time limit.
func (p *pass) build(ctx context.Context, rev revision) (built, error) {
	result, known := p.compiled.get(p.source.Namespace, cacheKeyOf(p.source, rev))
	b := built{revision: rev, attempted: true, result: result}
	if !known || p.requested && len(result.Diagnostics) > 0 {
		var err error
		if b, err = p.fetchAndCompile(ctx, rev); err != nil {
			return b, err
		}
	}
	if diagnostics := b.result.Diagnostics; len(diagnostics) > 0 {
		return b, kube.Stall(invalid(diagnostics), inForce(p.source, b.revision.name))
	}
	return b, nil
}

func (p *pass) fetchAndCompile(ctx context.Context, resolved revision) (built, error) {
	last := p.source.Status.LastAttemptedRevision
	if resolved.name != last || p.source.Generation != p.source.Status.ObservedGeneration {
		if err := p.attempt.Progress(ctx, catalog.Building.With(resolved.name)); err != nil {
			return built{revision: resolved}, err
		}
	}
	rev, files, err := p.fetch(ctx, resolved)
	p.leave(err)
	if err != nil {
		return built{revision: resolved, attempted: resolved.name != last}, p.fetchFailed(ctx, resolved, err)
	}
	if rev.name != resolved.name { // the dependencies were compared with resolved
		if err := p.depend(ctx, rev.name); err != nil {
			return built{revision: rev}, err
		}
	}
	result, err := p.compile(ctx, rev, files)
	return built{revision: rev, attempted: err == nil, result: result}, err
}

// compile compiles the files of a revision, and caches the result.
func (p *pass) compile(ctx context.Context, rev revision, files fs.FS) (compile.Result, error) {
	timer := prometheus.NewTimer(compileSeconds)
	result, err := p.Compiler.Compile(worker.InFlow(ctx, p.source.Namespace), files, compile.Options{
		Path: p.source.Spec.GetPath(), Tags: p.source.Spec.Tags, PolicyName: p.source.Name,
		// If the source has applied a revision before, the prune rule decides whether a revision without pools is allowed.
		AllowEmpty: p.source.Status.LastAppliedRevision != "",
	})
	if ctx.Err() != nil {
		return compile.Result{}, ctx.Err()
	}
	if err != nil {
		return compile.Result{}, kube.Wait(p.retryAfter(), catalog.CompilerFailed.With(rev.name).Wrap(err))
	}
	timer.ObserveDuration()
	p.compiled.add(p.source.Namespace, cacheKeyOf(p.source, rev), result)
	return result, nil
}

// fetch reads the resolved revision, or a later one if the branch has moved. It returns the revision that it read.
func (p *pass) fetch(ctx context.Context, rev revision) (revision, fs.FS, error) {
	timer := prometheus.NewTimer(fetchSeconds)
	read := p.fetchGit
	if rev.artifact != nil {
		read = p.fetchArtifact
	}
	checkout, err := read(ctx, rev)
	if err == nil {
		timer.ObserveDuration()
		rev.name = checkout.Revision
	}
	return rev, checkout.FS, err
}

func (p *pass) fetchGit(ctx context.Context, rev revision) (checkout gitsource.Checkout, err error) {
	err = p.ask(ctx, rev.dials(), func(limited context.Context) (err error) {
		checkout, err = p.Fetcher.Fetch(limited, rev.request)
		return err
	})
	return checkout, err
}

// fetchFailed returns the outcome of a failed fetch: a Stall for errors that only a change of the spec or the repository
// fixes, and a Wait for temporary errors.
func (p *pass) fetchFailed(ctx context.Context, rev revision, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errBusy), errors.Is(err, errLate) && conditions.GetReason(p.source, v1alpha1.ReadyCondition) == v1alpha1.ArtifactFailedReason:
		return errBusy // the last outcome stays in force
	case errors.Is(err, errLate):
		return kube.Wait(p.jitter(busyRetry), catalog.FetchLate.With(location(p.source)).Wrap(err))
	case rev.artifact != nil:
		return p.artifactRefused(rev, err)
	}
	return p.repositoryRefused(rev, err)
}

func (p *pass) repositoryRefused(rev revision, err error) error {
	switch {
	case errors.Is(err, gitsource.ErrUnknownSigner):
		return kube.Stall(catalog.SignerUnknown.With().Wrap(err), inForce(p.source, rev.name))
	case errors.Is(err, gitsource.ErrUnsigned):
		return kube.Stall(catalog.RevisionUnsigned.With().Wrap(err), inForce(p.source, rev.name))
	case errors.Is(err, gitsource.ErrNotAllowed):
		return kube.Stall(catalog.GitNotAllowed.With().Wrap(err))
	case errors.Is(err, gitsource.ErrTooLarge), errors.Is(err, gitsource.ErrUnusable):
		return kube.Stall(catalog.RepositoryRefused.With(location(p.source)).Wrap(err), inForce(p.source, rev.name))
	case errors.Is(err, gitsource.ErrTimeout):
		err = fmt.Errorf("%w (spec.timeout is %s)", err, p.source.Spec.GetTimeout())
	}
	return kube.Wait(p.retryAfter(), unfetched(p.source, err).With(location(p.source)).Wrap(err))
}

// unfetched returns the catalog row of the temporary problem that prevents fetching a repository.
func unfetched(source *v1alpha1.PoolSource, err error) *catalog.Row {
	switch {
	case errors.Is(err, gitsource.ErrTimeout):
		return catalog.ServerUnanswered
	case errors.Is(err, gitsource.ErrNotFound), errors.Is(err, gitsource.ErrRefNotFound):
		return catalog.RepositoryUnavailable
	case errors.Is(err, gitsource.ErrUntrusted) && isSSH(source):
		return catalog.HostKeyUnknown
	}
	return catalog.FetchFailed
}

// invalid returns the cause of definitions that do not compile.
func invalid(diagnostics []v1alpha1.Diagnostic) catalog.Cause {
	row := catalog.Of(cmp.Or(diagnostics[0].Code, catalog.DefinitionsInvalid.Code))
	return row.With(wording.Lines(diagnostics, maxMessageDiagnostics, compile.Format))
}

// location describes the origin of the files: the repository's URL, or the Flux object.
func location(source *v1alpha1.PoolSource) string {
	if source.Spec.SourceRef != nil {
		return "the artifact of " + originOf(source).String()
	}
	return source.Spec.Git.URL
}

func cacheKeyOf(source *v1alpha1.PoolSource, rev revision) cacheKey {
	// Marshalling a map of strings sorts its keys and cannot fail.
	tags, _ := json.Marshal(source.Spec.Tags)
	key := cacheKey{
		source: source.UID, url: location(source), revision: rev.name, path: source.Spec.GetPath(), tags: string(tags),
		trust: rev.request.Verify.Digest(),
	}
	if rev.artifact != nil {
		key.digest = rev.artifact.Digest // one revision may have several artifacts, because spec.ignore may change
	}
	return key
}

// inForce returns a cause that says which revision stays in force after the given revision was refused.
func inForce(source *v1alpha1.PoolSource, revision string) catalog.Cause {
	last := source.Status.LastAppliedRevision
	switch {
	case revision == "" && last == "":
		return catalog.NothingApplied.With()
	case revision == "":
		return catalog.AppliedStays.With()
	case last == revision:
		return catalog.RevisionStays.With(last)
	case last != "":
		return catalog.OtherRevisionStays.With(revision, last)
	}
	return catalog.NothingOfRevisionApplied.With(revision)
}

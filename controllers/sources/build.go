// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/worker"
)

// maxStatusDiagnostics is how many diagnostics the status takes, maxMessageDiagnostics
// how many of them are in the message of the condition.
const (
	maxStatusDiagnostics  = 20
	maxMessageDiagnostics = 5
)

// cacheKey says what a compiled revision was made of. The source and the URL are part of
// it because a server may claim any commit: no source is given what another's
// repository compiled to. The schema is not: it changes only with the program.
type cacheKey struct {
	source              types.UID
	url, revision, path string
	tags                string
	trust               string // in whose signatures
	digest              string // of an artifact
}

// resolve asks which revision is to be applied.
func (x *run) resolve(ctx context.Context) error {
	if x.source.Spec.SourceRef != nil {
		return x.resolveArtifact(ctx)
	}
	return x.resolveGit(ctx)
}

func (x *run) resolveGit(ctx context.Context) error {
	auth, err := x.credentials(ctx)
	if err != nil {
		return err
	}
	verify, err := x.verification(ctx)
	if err != nil {
		return err
	}
	git := x.source.Spec.Git
	x.request = gitsource.Request{URL: git.URL, Ref: gitsource.Ref(git.GetRef()), Auth: auth, Verify: verify}
	err = x.ask(ctx, git.URL, func(limited context.Context) (err error) {
		x.revision, err = x.Fetcher.Resolve(limited, x.request)
		return err
	})
	if err != nil {
		return x.fetchFailed(ctx, err)
	}
	return nil
}

// ask makes a call to a server when it is the source's turn, within spec.timeout.
func (x *run) ask(ctx context.Context, server string, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, x.source.Spec.GetTimeout())
	defer cancel()
	return x.hosts.ask(x.source.Namespace, server, func() error { return call(limited) })
}

// build sets what the revision declares, or stalls with what is wrong with it.
func (x *run) build(ctx context.Context) error {
	result, err := x.compile(ctx)
	if err != nil {
		return err
	}
	status := &x.source.Status
	status.LastAttemptedRevision = x.revision
	status.Diagnostics = slices.Clone(result.Diagnostics[:min(len(result.Diagnostics), maxStatusDiagnostics)])
	if len(result.Diagnostics) > 0 {
		return kube.Stall(v1alpha1.BuildFailedReason, "%s\n%s", summarize(result.Diagnostics), x.notApplied())
	}
	x.objects = result.Objects
	return nil
}

// compile returns what the revision compiles to, from memory if it can. Who asks for another
// look at a revision that failed gets one: it may have failed for want of time.
func (x *run) compile(ctx context.Context) (compile.Result, error) {
	if result, ok := x.compiled.get(x.source.Namespace, x.cacheKey()); ok {
		if len(result.Diagnostics) == 0 || !x.requested {
			return result, nil
		}
	}
	if x.revision != x.source.Status.LastAttemptedRevision || x.source.Generation != x.source.Status.ObservedGeneration {
		if err := x.attempt.Progress(ctx, "Fetching and compiling revision "+x.revision); err != nil {
			return compile.Result{}, err
		}
	}
	resolved := x.revision
	files, err := x.fetch(ctx)
	if err != nil {
		return compile.Result{}, err
	}
	if x.revision != resolved { // what it depends on was compared with the one before
		if err := x.depend(ctx); err != nil {
			return compile.Result{}, err
		}
	}
	timer := prometheus.NewTimer(compileSeconds)
	result, err := x.Compiler.Compile(worker.InFlow(ctx, x.source.Namespace), files, compile.Options{
		Path: x.source.Spec.GetPath(), Tags: x.source.Spec.Tags, AllowEmpty: x.allowEmpty(), PolicyName: x.source.Name,
	})
	if ctx.Err() != nil {
		return compile.Result{}, ctx.Err()
	}
	if err != nil {
		return compile.Result{}, kube.Wait(v1alpha1.BuildFailedReason, x.retryAfter(), "compiling revision %s: %w", x.revision, err)
	}
	timer.ObserveDuration()
	x.compiled.add(x.source.Namespace, x.cacheKey(), result)
	return result, nil
}

// fetch reads the revision that was resolved, or a later one: the branch may have moved on since.
func (x *run) fetch(ctx context.Context) (fs.FS, error) {
	read := x.fetchGit
	if x.artifact != nil {
		read = x.fetchArtifact
	}
	timer := prometheus.NewTimer(fetchSeconds)
	files, err := read(ctx)
	if err != nil {
		if status := &x.source.Status; status.LastAttemptedRevision != x.revision {
			status.LastAttemptedRevision, status.Diagnostics = x.revision, nil
		}
		return nil, x.fetchFailed(ctx, err)
	}
	timer.ObserveDuration()
	return files, nil
}

func (x *run) fetchGit(ctx context.Context) (fs.FS, error) {
	var checkout gitsource.Checkout
	err := x.ask(ctx, x.request.URL, func(limited context.Context) (err error) {
		checkout, err = x.Fetcher.Fetch(limited, x.request)
		return err
	})
	if err != nil {
		return nil, err
	}
	x.revision = checkout.Revision
	return checkout.FS, nil
}

// fetchFailed tells what only a change to the spec or the repository mends from what
// may pass.
func (x *run) fetchFailed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errBusy), errors.Is(err, errLate) && conditions.GetReason(x.source, v1alpha1.ReadyCondition) == v1alpha1.ArtifactFailedReason:
		return errBusy // what was said last still holds
	case errors.Is(err, errLate):
		return kube.Wait(v1alpha1.ArtifactFailedReason, x.jitter(busyRetry), "fetching %s: %w; it is asked again in turn", x.place(), err)
	case x.artifact != nil:
		return x.artifactRefused(err)
	}
	return x.repositoryRefused(err)
}

func (x *run) repositoryRefused(err error) error {
	switch {
	case errors.Is(err, gitsource.ErrUnsigned):
		return kube.Stall(v1alpha1.VerificationFailedReason, "%w\n%s", err, x.notApplied())
	case errors.Is(err, gitsource.ErrNotAllowed):
		return kube.Stall(v1alpha1.InvalidSpecReason, "spec.git: %w", err)
	case errors.Is(err, gitsource.ErrTooLarge), errors.Is(err, gitsource.ErrUnusable):
		return kube.Stall(v1alpha1.ArtifactFailedReason, "fetching %s: %w\n%s", x.place(), err, x.notApplied())
	case errors.Is(err, gitsource.ErrTimeout):
		err = fmt.Errorf("%w (spec.timeout is %s)", err, x.source.Spec.GetTimeout())
	}
	return kube.Wait(v1alpha1.ArtifactFailedReason, x.retryAfter(), "fetching %s: %w", x.place(), err)
}

// place names where the files come from.
func (x *run) place() string {
	if x.source.Spec.SourceRef != nil {
		return "the artifact of " + originOf(x.source).String()
	}
	return x.source.Spec.Git.URL
}

func (x *run) cacheKey() cacheKey {
	// Marshalling a map of strings sorts its keys and can't fail.
	tags, _ := json.Marshal(x.source.Spec.Tags)
	key := cacheKey{
		source: x.source.UID, url: x.place(), revision: x.revision, path: x.source.Spec.GetPath(), tags: string(tags),
		trust: x.request.Verify.Digest(),
	}
	if x.artifact != nil {
		key.digest = x.artifact.Digest // one revision may make several, as spec.ignore changes
	}
	return key
}

// allowEmpty lets a revision without pools compile where there is something to
// remove: whether it may be removed is the prune rule's to say, not the compiler's.
func (x *run) allowEmpty() bool { return x.source.Status.LastAppliedRevision != "" }

// notApplied ends the message of a refusal: what holds now.
func (x *run) notApplied() string {
	last := x.source.Status.LastAppliedRevision
	switch {
	case x.revision == "" && last == "":
		return "Nothing was applied"
	case x.revision == "":
		return "What was applied before stays in force"
	case last == x.revision:
		return fmt.Sprintf("What was applied of revision %s stays in force", last)
	case last != "":
		return fmt.Sprintf("Nothing of revision %s was applied; %s stays in force", x.revision, last)
	}
	return fmt.Sprintf("Nothing of revision %s was applied", x.revision)
}

// summarize writes the first diagnostics a line each, so that the first line of the message
// is the first of them.
func summarize(diagnostics []v1alpha1.Diagnostic) string {
	var lines []string
	for _, d := range diagnostics[:min(len(diagnostics), maxMessageDiagnostics)] {
		lines = append(lines, compile.Format(d))
	}
	if rest := len(diagnostics) - len(lines); rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(lines, "\n")
}

// sourceKey is where a source is.
func (x *run) sourceKey() types.NamespacedName { return client.ObjectKeyFromObject(x.source) }

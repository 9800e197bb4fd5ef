// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/fluxsource"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories;buckets;externalartifacts,verbs=get;list;watch

// Artifacts reads the artifacts of source-controller.
type Artifacts interface {
	// Fetch reads an artifact after verifying its digest.
	Fetch(context.Context, fluxsource.Artifact) (fs.FS, error)
}

const (
	// artifactRetry is the delay before an artifact that could not be fetched is requested again. The delay is short,
	// because source-controller is in the same cluster and usually unavailable only while its pod restarts.
	artifactRetry = 15 * time.Second
	// maxRevision limits an artifact's revision, in bytes, because it is written into status and messages.
	maxRevision = 512
	// maxCause limits Flux's message about a source in Corral's messages, in bytes.
	maxCause = 500
	// originRevisionKey is the metadata key with the revision from which an OCI artifact was built.
	originRevisionKey = "org.opencontainers.image.revision"
)

// fluxSource is one of the kinds of source.toolkit.fluxcd.io that produce artifacts.
type fluxSource interface {
	client.Object
	conditions.Getter
	GetArtifact() *meta.Artifact
}

// fluxKinds creates an object of each kind that a source may refer to.
var fluxKinds = map[string]func() fluxSource{
	v1alpha1.GitRepositoryKind:    func() fluxSource { return &sourcev1.GitRepository{} },
	v1alpha1.OCIRepositoryKind:    func() fluxSource { return &sourcev1.OCIRepository{} },
	v1alpha1.BucketKind:           func() fluxSource { return &sourcev1.Bucket{} },
	v1alpha1.ExternalArtifactKind: func() fluxSource { return &sourcev1.ExternalArtifact{} },
}

// origin identifies an object of Flux.
type origin struct {
	kind string
	key  types.NamespacedName
}

// String returns the object's kind, namespace and name.
func (o origin) String() string { return o.kind + " " + o.key.String() }

// originOf returns the object in a source's spec.sourceRef, which must be set.
func originOf(source *v1alpha1.PoolSource) origin {
	ref := source.Spec.SourceRef
	return origin{ref.Kind, types.NamespacedName{Namespace: namespaceOr(ref.Namespace, source), Name: ref.Name}}
}

// namespaceOr returns the namespace of a reference, or the source's own by default.
func namespaceOr(namespace string, source *v1alpha1.PoolSource) string {
	return cmp.Or(namespace, source.Namespace)
}

// resolveArtifact reads the current artifact. It does not use the cache: a stale cache would make Corral request an artifact
// again that is gone from the server, and would hide that a kind is not installed.
func (p *pass) resolveArtifact(ctx context.Context) (revision, error) {
	from := originOf(p.source)
	object, err := p.fluxObject(ctx, from)
	if err != nil {
		return revision{}, err
	}
	artifact := object.GetArtifact()
	if artifact == nil {
		return revision{}, p.artifactMissing(causeOf(from, object))
	}
	if artifact.Revision == "" || len(artifact.Revision) > maxRevision {
		return revision{}, kube.Stall(catalog.ArtifactRevisionLength.With(from, len(artifact.Revision), maxRevision))
	}
	if strings.ContainsFunc(artifact.Revision, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return revision{}, kube.Stall(catalog.ArtifactRevisionInvalid.With(from, strconv.Quote(artifact.Revision)))
	}
	return revision{name: artifact.Revision, artifact: artifact}, nil
}

// fluxObject reads the object in spec.sourceRef, and starts to watch its kind.
func (p *pass) fluxObject(ctx context.Context, from origin) (fluxSource, error) {
	object := fluxKinds[from.kind]()
	err := p.Live.Get(ctx, from.key, object)
	switch {
	case apimeta.IsNoMatchError(err):
		p.flux.want(from.kind)
		return nil, p.artifactMissing(catalog.FluxKindMissing.With(from.kind, sourcev1.GroupVersion.Group))
	case apierrors.IsForbidden(err):
		return nil, p.artifactMissing(catalog.FluxForbidden.With(from).Wrap(err))
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading %s: %w", from, err)
	}
	if watched := p.flux.watch(from.kind); watched != nil {
		return nil, fmt.Errorf("watching %s: %w", from.kind, watched)
	}
	if err != nil {
		return nil, p.artifactMissing(catalog.FluxSourceMissing.With(from))
	}
	return object, nil
}

// artifactMissing returns a Wait for an artifact. Usually a watch reports the artifact earlier; the retry is for controllers
// without the right to watch.
func (p *pass) artifactMissing(why catalog.Cause) error {
	return kube.Wait(p.retryAfter(), why)
}

// causeOf returns the cause of a Flux source without an artifact, with Flux's message about it.
func causeOf(from origin, object fluxSource) catalog.Cause {
	why := catalog.ArtifactMissing.With(from)
	if ready := conditions.Get(object, meta.ReadyCondition); ready != nil && ready.Message != "" {
		why = why.Detailed(fmt.Sprintf("%s: %s", ready.Reason, wording.Truncate(ready.Message, maxCause)))
	}
	return why
}

// fetchArtifact reads the resolved artifact.
func (p *pass) fetchArtifact(ctx context.Context, rev revision) (gitsource.Checkout, error) {
	checkout := gitsource.Checkout{Revision: rev.name}
	artifact := fluxsource.Artifact{URL: rev.artifact.URL, Digest: rev.artifact.Digest}
	err := p.ask(ctx, rev.dials(), func(limited context.Context) (err error) {
		checkout.FS, err = p.Artifacts.Fetch(limited, artifact)
		return err
	})
	if errors.Is(err, fluxsource.ErrNotFound) && p.isReplaced(ctx, artifact.URL) {
		err = errReplaced
	}
	return checkout, err
}

// errReplaced means that another artifact replaced the requested one. It wraps errBusy, so that Corral retries soon.
var errReplaced = fmt.Errorf("%w: it was replaced meanwhile", errBusy)

// isReplaced reports whether the source now has another artifact, or none.
func (p *pass) isReplaced(ctx context.Context, url string) bool {
	from := originOf(p.source)
	object := fluxKinds[from.kind]()
	err := p.Live.Get(ctx, from.key, object)
	return err == nil && (object.GetArtifact() == nil || object.GetArtifact().URL != url)
}

// artifactRefused returns a Stall for errors that only another artifact fixes, and a Wait for temporary errors.
func (p *pass) artifactRefused(rev revision, err error) error {
	switch {
	case errors.Is(err, fluxsource.ErrTooLarge), errors.Is(err, fluxsource.ErrUnusable):
		return kube.Stall(catalog.RepositoryRefused.With(location(p.source)).Wrap(err), inForce(p.source, rev.name))
	case errors.Is(err, fluxsource.ErrNotFound):
		return kube.Wait(p.soon(), catalog.ArtifactReplaced.With(location(p.source)).Wrap(err))
	case errors.Is(err, fluxsource.ErrTimeout):
		err = fmt.Errorf("%w (spec.timeout is %s)", err, p.source.Spec.GetTimeout())
	}
	return kube.Wait(p.soon(), catalog.FetchFailed.With(location(p.source)).Wrap(err))
}

// soon returns the delay before the next attempt to fetch an artifact that should exist.
func (p *pass) soon() time.Duration { return min(p.retryAfter(), p.jitter(artifactRetry)) }

// origin returns the revision from which an artifact was built, if its metadata contains it.
func (r revision) origin() string {
	if r.artifact == nil {
		return ""
	}
	if made := r.artifact.Metadata[originRevisionKey]; len(made) <= maxRevision {
		return made
	}
	return ""
}

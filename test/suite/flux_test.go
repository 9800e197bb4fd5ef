// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/fluxsource"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/recorder"
)

// fluxed is a PoolSource that reads a Flux GitRepository. The test simulates source-controller.
type fluxed struct {
	*gitops
	artifacts *harness.Artifacts
	receiver  *harness.Receiver
	object    *sourcev1.GitRepository
	holds     *meta.Artifact
}

func (w *story) newFluxed(t *testing.T, namespace string) *fluxed {
	t.Helper()
	f := &fluxed{
		gitops:    &gitops{w: w, Repository: harness.NewRepository(t), namespace: namespace, key: client.ObjectKey{Namespace: namespace, Name: "pools"}},
		artifacts: harness.NewArtifacts(t),
		receiver:  harness.NewReceiver(t),
		object:    &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pools"}},
	}
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	f.source("pools", v1alpha1.GitRepositoryKind)
	return f
}

// source creates a PoolSource that reconciles on its own only once an hour.
func (f *fluxed) source(name, kind string, dependsOn ...string) {
	f.T.Helper()
	source := &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: v1alpha1.PoolSourceSpec{
			SourceRef: &v1alpha1.SourceReference{Kind: kind, Name: name}, Interval: metav1.Duration{Duration: time.Hour},
		},
	}
	for _, other := range dependsOn {
		source.Spec.DependsOn = append(source.Spec.DependsOn, meta.NamespacedObjectReference{Name: other})
	}
	must(f.T, f.w.Client.Create(f.T.Context(), source))
}

// push commits to the repository, and publishes the result as an artifact, as source-controller would.
func (f *fluxed) push(message string) string {
	f.T.Helper()
	commit := f.Push(message)
	f.holds = f.artifacts.Put(f.T, f.Path("."), "main@sha1:"+commit)
	f.w.SetArtifact(f.T, f.object, func() { f.object.Status.Artifact = f.holds })
	return commit
}

// says waits until the condition Ready of a source has a reason, and values in its causes.
func (f *fluxed) says(name, reason string, values ...string) {
	f.T.Helper()
	eventually(f.T, func(ctx context.Context) error {
		s := &v1alpha1.PoolSource{}
		must(f.T, f.w.Client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, s))
		ready := conditions.Get(s, v1alpha1.ReadyCondition)
		facts := recorder.Facts(s, v1alpha1.ReadyCondition)
		if ready == nil || ready.Reason != reason || slices.ContainsFunc(values, func(value string) bool { return !strings.Contains(facts, value) }) {
			return fmt.Errorf("%s is not %s with %q: %+v, %s", name, reason, values, ready, facts)
		}
		return nil
	})
}

// awaitEvent waits for an event about the source pools.
func (f *fluxed) awaitEvent(severity, reason, commit, message string) {
	f.T.Helper()
	eventually(f.T, func(context.Context) error {
		events := f.receiver.Events("PoolSource", f.key)
		if !slices.ContainsFunc(events, func(e eventv1.Event) bool {
			return e.Severity == severity && e.Reason == reason && strings.Contains(e.Message, message) &&
				strings.HasSuffix(e.Metadata["corral.dev/revision"], commit)
		}) {
			return fmt.Errorf("no %s %s with %q among %+v", severity, reason, message, events)
		}
		return nil
	})
}

func TestPoolsFromFlux(t *testing.T) {
	w := newStory(t, "flux")
	f := w.newFluxed(t, "flux")
	w.Env = []string{"SOURCE_CONTROLLER_LOCALHOST=" + f.artifacts.Host}
	w.controller(t, "--events-addr="+f.receiver.URL)

	t.Run("the controller runs without Flux, says so, and needs no restart once it is there", func(t *testing.T) {
		f.T = t
		f.says("pools", v1alpha1.ArtifactFailedReason, "FluxKindMissing\nGitRepository\nsource.toolkit.fluxcd.io")
	})
	w.InstallFlux(t)
	t.Run("what is not there yet is waited for", func(t *testing.T) {
		f.T = t
		f.says("pools", v1alpha1.ArtifactFailedReason, "FluxSourceMissing\nGitRepository flux/pools")
		w.SetArtifact(t, f.object, func() {
			conditions.MarkFalse(f.object, meta.ReadyCondition, "GitOperationFailed", "authentication required")
		})
		f.says("pools", v1alpha1.ArtifactFailedReason, "ArtifactMissing\nGitRepository flux/pools", "GitOperationFailed: authentication required")
	})
	t.Run("an artifact is applied when it is announced", func(t *testing.T) {
		f.T = t
		f.Write("pools.cue", definitions(3, "linux", "runner:1", true))
		commit := f.push("Two pools")
		f.applied(commit)
		f.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.Capacity == 3 })
		f.waitRemote("extra", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.SessionOwner != "" })
		f.finished(f.job("linux", time.Millisecond))
		f.awaitEvent("info", v1alpha1.SucceededReason, commit, "2 pools")
	})
	t.Run("a broken one is refused with file and line, and told; the last good one runs on", func(t *testing.T) {
		f.T = t
		f.Write("pools.cue", strings.Replace(definitions(3, "linux", "runner:1", true), "scale: max: 3", "scale: {min: 9, max: 3}\n\trunnerLables: [1]", 1))
		commit := f.push("Break it")
		f.says("pools", v1alpha1.BuildFailedReason, "pools.cue:9:10: ")
		f.awaitEvent("error", v1alpha1.BuildFailedReason, commit, "pools.cue:9:10: ")
		f.finished(f.job("linux", time.Millisecond))
	})
	t.Run("one that is gone is waited for, and one of other content than announced is not taken", func(t *testing.T) {
		f.T = t
		f.Write("pools.cue", definitions(5, "linux", "runner:1", true))
		commit := f.Push("Raise max")
		honest := f.artifacts.Put(t, f.Path("."), "main@sha1:"+commit)
		forged := honest.DeepCopy()
		forged.Digest = "sha256:" + strings.Repeat("0", 64)
		w.SetArtifact(t, f.object, func() { f.object.Status.Artifact = forged })
		f.says("pools", v1alpha1.ArtifactFailedReason, fluxsource.ErrDigest.Error())
		f.artifacts.Forget()
		w.SetArtifact(t, f.object, func() { f.object.Status.Artifact = honest })
		f.says("pools", v1alpha1.ArtifactFailedReason, fluxsource.ErrNotFound.Error())
		f.push("Make it again")
		f.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s.Capacity == 5 })
	})
	t.Run("a pool that left it finishes its job and goes", func(t *testing.T) {
		f.T = t
		busy := f.job("extra", 2*time.Second)
		f.runnerOf(busy)
		f.Write("pools.cue", definitions(5, "linux", "runner:1", false))
		f.applied(f.push("Remove a pool"))
		f.waitRemote("extra", func(s *githubsim.ScaleSetReport) bool { return s == nil })
		f.finished(busy)
		f.awaitEvent("info", "Pruned", "", ": RunnerPool extra")
	})
	t.Run("sources of other kinds wait for what they depend on", func(t *testing.T) {
		f.T = t
		f.dependents()
	})
	t.Run("another namespace is not read", func(t *testing.T) {
		f.T = t
		must(t, w.Client.Create(t.Context(), &v1alpha1.PoolSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "foreign"},
			Spec: v1alpha1.PoolSourceSpec{
				SourceRef: &v1alpha1.SourceReference{Kind: v1alpha1.GitRepositoryKind, Name: "pools", Namespace: "default"},
				Interval:  metav1.Duration{Duration: time.Hour},
			},
		}))
		f.says("foreign", v1alpha1.AccessDeniedReason, "CrossNamespace\nspec.sourceRef\ndefault")
	})
	f.T = t
	f.idleAgain()
}

// dependents creates a source of each other kind. Each depends on the next one. The artifact of the first one
// appears last.
func (f *fluxed) dependents() {
	f.T.Helper()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: f.namespace, Name: name} }
	image, bucket, external := &sourcev1.OCIRepository{ObjectMeta: at("image")}, &sourcev1.Bucket{ObjectMeta: at("bucket")}, &sourcev1.ExternalArtifact{ObjectMeta: at("external")}
	holds := func(name string) *meta.Artifact {
		tree := harness.NewRepository(f.T)
		tree.Write("pools.cue", strings.NewReplacer("pools: linux:", "pools: "+name+":").Replace(definitions(1, name, "runner:1", false)))
		return f.artifacts.Put(f.T, tree.Path("."), "v1@sha256:"+name)
	}
	f.source("external", v1alpha1.ExternalArtifactKind, "bucket")
	f.source("bucket", v1alpha1.BucketKind, "image")
	f.source("image", v1alpha1.OCIRepositoryKind, "pools")
	f.w.SetArtifact(f.T, external, func() { external.Status.Artifact = holds("external") })
	f.w.SetArtifact(f.T, bucket, func() { bucket.Status.Artifact = holds("bucket") })
	f.says("external", v1alpha1.DependencyNotReadyReason, "DependencyUnready", "flux/bucket")
	f.says("bucket", v1alpha1.DependencyNotReadyReason, "DependencyUnready", "flux/image")
	f.w.SetArtifact(f.T, image, func() { image.Status.Artifact = holds("image") })
	for _, name := range []string{"image", "bucket", "external"} {
		f.says(name, v1alpha1.SucceededReason)
		s := &v1alpha1.PoolSource{}
		must(f.T, f.w.Client.Get(f.T.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, s))
		if want := "v1@sha256:" + name; s.Status.LastAppliedRevision != want {
			f.T.Errorf("revision %s is applied, want %s", s.Status.LastAppliedRevision, want)
		}
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
)

// refusalRetry is the delay before the next attempt to create a pod or a Secret that the API server or a policy refused.
const refusalRetry = 10 * time.Second

// createPod creates the runner's pod unless the runner has or had one.
func (p pass) createPod(ctx context.Context) error {
	if p.pod != nil || p.runner.Status.StartedAt != nil || p.Memory.lastPod(p.memory) != nil {
		return nil
	}
	if p.memory.hadPod() {
		return p.findCreated(ctx)
	}
	template, digest, err := p.template(ctx)
	if err != nil {
		return err
	}
	conn := &v1alpha1.GitHubConnection{}
	if err := p.Client.Get(ctx, p.connectionKey(), conn); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the connection: %w", err)
	}
	network := podspec.NetworkOf(&conn.Spec) // read once, so that policies judge the values that the pod gets
	if err := p.permit(ctx, template, digest, network); err != nil {
		return err
	}
	claim, missing, err := p.acquireClaim(ctx, template)
	if err != nil {
		return err
	}
	pod, err := p.buildPod(ctx, template, network, claim)
	if err != nil {
		return err
	}
	p.memory.claim.asked, p.memory.claim.seen = true, false
	switch err := p.Client.Create(ctx, pod); {
	case apierrors.IsAlreadyExists(err):
		return p.adoptPod(ctx)
	case err == nil:
		p.podCreated()
		p.startedWithout(missing)
		return nil
	default:
		return p.refused(err, pod)
	}
}

// refused returns the outcome for a pod that the API server did not create.
func (p pass) refused(err error, pod *corev1.Pod) error {
	switch {
	case IsQuota(err):
		return kube.Wait(refusalRetry, catalog.PodQuota.With().Wrap(err))
	case kube.IsRefused(err):
		if missing := AccountMissing(err, pod, p.madeAccount()); missing != nil {
			return missing
		}
		return kube.Wait(refusalRetry, catalog.PodCreationRefused.With().Detailed(kube.Refusal(err, "spec.template")))
	}
	return fmt.Errorf("creating the pod: %w", err)
}

// madeAccount returns the name of the ServiceAccount that is created for the runner's pool.
func (p pass) madeAccount() string {
	if p.pool == nil {
		return ""
	}
	return p.pool.GetHooksAccount()
}

// buildPod builds the pod. It returns an error if the pod reads a Secret with Corral's credentials or the Secret of another
// runner.
func (p pass) buildPod(ctx context.Context, template []byte, n podspec.Network, claim string) (_ *corev1.Pod, err error) {
	identity := p.identity()
	identity.Network, identity.Claim = n, claim
	if identity.NamespaceUID, err = p.namespaceUID(ctx, p.runner.Namespace); err != nil {
		return nil, err
	}
	pod, err := podspec.Build(identity, template)
	if err != nil {
		return nil, kube.Stall(catalog.PodInvalid.With().Wrap(err))
	}
	secrets, err := Credentials(ctx, p.Client, p.runner.Namespace)
	if err != nil {
		return nil, err
	}
	if err := podspec.CheckSecrets(pod, secrets); err != nil {
		return nil, kube.Stall(catalog.PodInvalid.With().Wrap(err))
	}
	return pod, nil
}

// namespaceFor is how long a namespace's UID is cached, because a namespace may be deleted and created again.
const namespaceFor = time.Hour

// namespaceUID returns the UID of a namespace.
func (r *Reconciler) namespaceUID(ctx context.Context, name string) (types.UID, error) {
	type known struct {
		uid types.UID
		at  time.Time
	}
	if k, ok := r.namespaces.Load(name); ok && r.Now().Sub(k.(known).at) < namespaceFor {
		return k.(known).uid, nil
	}
	uid, err, _ := r.reads.Do(name, func() (any, error) {
		ns := &corev1.Namespace{}
		if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
			return types.UID(""), fmt.Errorf("reading the namespace: %w", err)
		}
		r.namespaces.Store(name, known{ns.UID, r.Now()})
		return ns.UID, nil
	})
	return uid.(types.UID), err
}

// template reads the template revision that the runner was created for. It verifies the digest, because another revision
// may have taken its name.
func (p pass) template(ctx context.Context) (template []byte, digest string, err error) {
	revision := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: p.runner.Namespace, Name: p.runner.Spec.Revision}
	err = p.Client.Get(ctx, key, revision)
	if apierrors.IsNotFound(err) { // the revision is deleted with its pool, and the cache may show that before the pool's deletion
		return nil, "", kube.Progress(connectionRetry, catalog.RevisionMissing.With(key.Name))
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the template: %w", err)
	}
	digest, err = podspec.Digest(revision.Data.Raw)
	if err != nil || cmp.Or(p.runner.Spec.TemplateDigest, digest) != digest {
		return nil, "", kube.Stall(catalog.RevisionReplaced.With(revision.Name))
	}
	return revision.Data.Raw, digest, nil
}

// permit evaluates the template policies again, because they may have changed since the pool created the runner. While
// policies cannot be evaluated, earlier decisions stay in force.
func (p pass) permit(ctx context.Context, template []byte, digest string, n podspec.Network) error {
	if p.pool == nil {
		return p.noPool()
	}
	answer, err := p.Policies.Permit(ctx, p.pool, p.runner.Spec.Revision, template, n)
	if err != nil {
		return kube.Stall(catalog.PodInvalid.With().Wrap(err))
	}
	denials := answer.Denials
	if t := p.pool.Status.Policy; len(answer.Failures) > 0 && t.Denies(p.runner.Spec.Revision, digest) {
		denials = append(denials, t.Denials...)
	}
	if len(denials) > 0 {
		d := denials[0]
		return kube.Wait(refusalRetry, catalog.PodDeniedBy.With(d.Rule.Policy).Detailed(d.Message))
	}
	return nil
}

// adoptPod handles a pod that exists although the cache does not show it. It is the runner's pod from an earlier attempt,
// or the pod of an earlier runner with this name on a lost node.
func (p pass) adoptPod(ctx context.Context) error {
	pod := &corev1.Pod{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.runner), pod); err != nil {
		return fmt.Errorf("reading the pod: %w", err)
	}
	if !podspec.BelongsTo(pod, p.runner) {
		return &conflictError{v1alpha1.CauseRemoved, fmt.Sprintf("pod %q of a previous runner still exists: its node may be lost", pod.Name)}
	}
	p.podCreated()
	return nil
}

// podShown is how long the cache may take to show a pod before the API server is asked.
const podShown = 10 * time.Second

// findCreated looks for a pod that was created but that the cache has not shown for a while, or no longer shows. If the pod
// exists, the watch seems to be silent, and findCreated restarts it. If the pod is gone, it was deleted before it ran.
// Another pod for the same runner would probably be deleted too, endlessly, so the runner fails.
func (p pass) findCreated(ctx context.Context) error {
	if p.Now().Sub(p.memory.pod.created) < podShown {
		return nil
	}
	err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.runner), &corev1.Pod{})
	if apierrors.IsNotFound(err) {
		return &conflictError{v1alpha1.CauseRemoved, "its pod was deleted before it was seen to run"}
	}
	if err != nil {
		return fmt.Errorf("reading the pod: %w", err)
	}
	p.memory.pod.created = p.Now()
	if p.Watches.Restart("pods") {
		p.Event(p.runner, corev1.EventTypeWarning, WatchSilent, fmt.Sprintf("the pod watch did not show its pod for %s although API requests succeed: restarting the watch", podShown))
		kube.Warn(ctx, "A watch is silent", "resource", "pods")
	}
	return nil
}

// WatchSilent is the event reason for a watch that is restarted.
const WatchSilent = "WatchSilent"

// podCreated records that the runner has a pod that the cache does not show yet.
func (p pass) podCreated() {
	p.memory.pod.created = p.Now()
	p.Memory.endStart(p.memory)
}

// IsQuota reports whether the API server refused an object because of a ResourceQuota:
// https://kubernetes.io/docs/concepts/policy/resource-quotas/
func IsQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// Credentials returns the names of the Secrets in a namespace that connections and PoolSources use.
func Credentials(ctx context.Context, c client.Reader, namespace string) ([]string, error) {
	connections, sources := &v1alpha1.GitHubConnectionList{}, &v1alpha1.PoolSourceList{}
	for _, list := range []client.ObjectList{connections, sources} {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing the connections that use credentials: %w", err)
		}
	}
	var names []string
	for i := range connections.Items {
		names = append(names, connections.Items[i].Secrets()...)
	}
	for i := range sources.Items {
		names = append(names, sources.Items[i].Secrets()...)
	}
	return names, nil
}

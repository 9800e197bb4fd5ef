// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
)

// probeName is the runner's name in the dry run of a template.
const probeName = "template-check"

// revision makes the spec's template the pool's current revision, once the API
// server accepted the pod it leads to. A template that can't be used leaves the
// last good revision in force.
func (x *run) revision(ctx context.Context) error {
	var err error
	if x.digest, err = podspec.Digest(x.pool.Spec.Template.Raw); err != nil {
		return kube.Stall(v1alpha1.TemplateInvalidReason, "spec.template: %w", err)
	}
	name, isStored, err := x.nameOf(ctx, x.digest)
	if err != nil {
		return err
	}
	if err := x.permit(ctx, name, isStored); err != nil {
		return x.refuse(name, err)
	}
	this := name + " " + x.digest
	switch {
	case !isStored:
		err = x.store(ctx, name, x.recall.good == this)
	case x.recall.good != this:
		_, err = x.build() // a former version may have taken what this one refuses
	}
	if err != nil {
		return x.refuse(name, err)
	}
	x.recall.good = this
	x.adopt(name)
	return nil
}

// nameOf finds the name under which a template is stored or, if it isn't, the first that is free: names
// have but ten digits of the digest.
func (x *run) nameOf(ctx context.Context, digest string) (name string, isStored bool, err error) {
	for _, candidate := range podspec.RevisionNames(x.pool.Name, digest) {
		known := &appsv1.ControllerRevision{}
		switch err := x.Client.Get(ctx, client.ObjectKey{Namespace: x.key.Namespace, Name: candidate}, known); {
		case apierrors.IsNotFound(err):
			name = cmp.Or(name, candidate)
			continue
		case err != nil:
			return "", false, fmt.Errorf("reading the revision: %w", err)
		}
		if other, err := podspec.Digest(known.Data.Raw); err != nil || other != digest {
			continue
		}
		if owner := metav1.GetControllerOf(known); owner != nil && owner.UID != x.pool.UID {
			return "", false, kube.Wait(v1alpha1.ProgressingReason, recordRetry, "a ControllerRevision %q of a former pool is still there", candidate)
		}
		return candidate, true, nil
	}
	if name == "" {
		return "", false, kube.Stall(v1alpha1.TemplateInvalidReason, "spec.template: other templates have all names that revision %s could have; change it, as by an annotation",
			podspec.RevisionNames(x.pool.Name, digest)[0])
	}
	return name, false, nil
}

// store tries the template, and stores it under a name that is free as far as the cache shows: it may
// not show yet what was stored before.
func (x *run) store(ctx context.Context, name string, before bool) error {
	if err := x.probe(ctx); err != nil {
		return err
	}
	switch err := x.Client.Create(ctx, x.newRevision(name)); {
	case apierrors.IsAlreadyExists(err) && !before:
		return kube.Wait(v1alpha1.ProgressingReason, recordRetry, "a ControllerRevision %q is there that may be of another template", name)
	case client.IgnoreAlreadyExists(err) != nil:
		return fmt.Errorf("storing the revision: %w", err)
	}
	return nil
}

func (x *run) adopt(name string) {
	x.pool.Status.Revision, x.adopted = name, name
	conditions.MarkTrue(x.pool, v1alpha1.TemplateValidCondition, v1alpha1.SucceededReason, "revision %s", name)
}

// refuse keeps the last good revision in force and remembers why; without one
// there is nothing to go on with.
func (x *run) refuse(name string, err error) error {
	denied := kube.ReasonOf(err, "") == v1alpha1.PolicyDeniedReason
	switch {
	case denied:
		conditions.MarkFalse(x.pool, v1alpha1.PolicyCondition, v1alpha1.PolicyDeniedReason, "%s", err)
	case kube.IsStalled(err):
		conditions.MarkFalse(x.pool, v1alpha1.TemplateValidCondition, v1alpha1.TemplateInvalidReason, "%s", err)
	}
	if x.pool.Status.Revision == "" {
		return err
	}
	reason := kube.ReasonOf(err, v1alpha1.ProgressingReason)
	if x.pool.Status.Revision == name {
		x.invalid = err // it was allowed once; see bar
		return nil
	}
	if kube.IsStalled(err) {
		x.invalid = kube.Stall(reason, "revision %s goes on: %w", x.pool.Status.Revision, err)
	} else {
		x.invalid = kube.Wait(reason, recordRetry, "revision %s goes on: %w", x.pool.Status.Revision, err)
	}
	return nil
}

// build makes the pod of the template.
func (x *run) build() (*corev1.Pod, error) {
	identity := podspec.Runner{Namespace: x.key.Namespace, Name: x.pool.Name + "-" + probeName, Pool: x.pool.Name, Revision: probeName, UID: x.pool.UID}
	pod, err := podspec.Build(identity, x.pool.Spec.Template.Raw)
	if err != nil {
		return nil, kube.Stall(v1alpha1.TemplateInvalidReason, "%w", err)
	}
	return pod, nil
}

// probe builds the pod of the template and lets the API server judge it by a dry
// run. A refusal for want of quota is no fault of the template's.
func (x *run) probe(ctx context.Context) error {
	pod, err := x.build()
	if err != nil {
		return err
	}
	secrets, err := runners.Credentials(ctx, x.Client, x.key.Namespace)
	if err != nil {
		return err
	}
	if err := podspec.CheckSecrets(pod, secrets); err != nil {
		return kube.Stall(v1alpha1.TemplateInvalidReason, "%w", err)
	}
	err = x.Client.Create(ctx, pod, client.DryRunAll)
	switch {
	case err == nil, runners.IsQuota(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return kube.Stall(v1alpha1.TemplateInvalidReason, "%s", kube.Refusal(err, "spec.template"))
	}
	return fmt.Errorf("trying the template: %w", err)
}

func (x *run) newRevision(name string) *appsv1.ControllerRevision {
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.key.Namespace, Name: name,
			Labels:      map[string]string{v1alpha1.PoolLabel: x.pool.Name},
			Annotations: map[string]string{v1alpha1.TemplateDigestAnnotation: x.digest},
		},
		Data:     runtime.RawExtension{Raw: x.pool.Spec.Template.Raw},
		Revision: x.pool.Generation,
	}
	// The pool is of a known kind in the scheme: this can't fail.
	_ = controllerutil.SetControllerReference(x.pool, revision, x.Client.Scheme())
	return revision
}

// outdated says whether a runner was made from another template than the current, or
// belongs to a scale set that GitHub has no more.
func (x *run) outdated(r *v1alpha1.Runner) bool {
	return r.Spec.Revision != x.pool.Status.Revision || x.isStray(r)
}

// sweepRevisions deletes revisions that no runner was made from, or will be.
func (x *run) sweepRevisions(ctx context.Context) error {
	used := map[string]bool{}
	for _, name := range x.sources() { // what is stored may be gone back to
		used[name] = true
	}
	if x.was != nil {
		used[x.was.From] = true
	}
	for _, o := range x.runners {
		used[o.runner.Spec.Revision] = true
	}
	for name := range x.known {
		if used[name] {
			continue
		}
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: x.key.Namespace, Name: name}}
		if err := x.Client.Delete(ctx, revision); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting revision %s: %w", name, err)
		}
	}
	return nil
}

// recordRetry is the time to the next look at what another controller brings about;
// its watch usually comes first.
const recordRetry = 5 * time.Second

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/wording"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;watch;create;patch;delete

// Claims reads and writes the PersistentVolumeClaims of pools' caches. An annotation on the claim contains the name and the
// UID of its holder, a runner. The runner holds the claim until its Runner and its pod are gone. The next holder replaces
// the annotation with an optimistic lock, so a claim never has two holders, even if a process restarts and loses its
// memory.
type Claims struct {
	Client client.Client
	// Live reads without a cache.
	Live   client.Reader
	Memory *Memory
}

// PoolClaim is a claim as the informer cache shows it.
type PoolClaim struct {
	claims.Claim
	object *corev1.PersistentVolumeClaim
	// runner is the name of the holder's Runner and of its pod.
	runner string
}

// errTaken means that another runner took the claim in the meantime, or that the claim is gone.
var errTaken = errors.New("taken by another runner")

// Of lists the claims of a pool.
func (c Claims) Of(ctx context.Context, pool *v1alpha1.RunnerPool) ([]PoolClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := c.Client.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.CacheLabel: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the claims of the cache: %w", err)
	}
	all := make([]PoolClaim, 0, len(list.Items))
	for i := range list.Items {
		x := read(pool, &list.Items[i])
		h, err := holderOf(ctx, c.Client, x)
		if err != nil {
			return nil, err
		}
		x.InUse, x.Leaving, x.LeavesBy = h.isThere(), h.leaves(), c.leavesBy(h)
		all = append(all, x)
	}
	c.Memory.claims.retain(client.ObjectKeyFromObject(pool), all)
	return all, nil
}

// Forget drops the data about a deleted pool: the holders of its claims, and whether it has Secrets.
func (c Claims) Forget(pool types.NamespacedName) {
	c.Memory.claims.retain(pool, nil)
	c.Memory.forgetSecrets(pool)
}

// read returns what the claim's object alone shows. A claim of an earlier pool with the same name counts as ending, because
// Kubernetes deletes it with that pool.
func read(pool *v1alpha1.RunnerPool, object *corev1.PersistentVolumeClaim) PoolClaim {
	x := PoolClaim{object: object}
	name, uid, _ := strings.Cut(object.Annotations[v1alpha1.CacheHolderAnnotation], "/")
	x.Name, x.Number, x.runner, x.Holder = object.Name, numberOf(pool.Name, object.Name), name, types.UID(uid)
	x.Taken = timeOf(object, v1alpha1.CacheTakenAnnotation)
	if x.Taken.IsZero() {
		x.Taken = object.CreationTimestamp.Time
	}
	x.FailedAt = timeOf(object, v1alpha1.CacheFailedAtAnnotation)
	x.Proved = object.Annotations[v1alpha1.CacheFailedForAnnotation] == string(v1alpha1.CauseCache)
	owner := metav1.GetControllerOf(object)
	x.Orphan, x.Ending = owner == nil, !object.DeletionTimestamp.IsZero() || owner != nil && owner.UID != pool.UID
	x.Unbound, x.Lost = object.Status.Phase == corev1.ClaimPending, object.Status.Phase == corev1.ClaimLost
	x.Unlike = differs(pool.Spec.Cache, &object.Spec)
	return x
}

// numberOf returns the number in the name of a pool's claim, or -1 if the name is not one of the pool's claim names.
func numberOf(pool, name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil || podspec.ClaimName(pool, n) != name {
		return -1
	}
	return n
}

// claimOf returns the name of the cache's claim that a pod uses. Users can change the annotation, so a name that is not one of
// the pool's claim names does not count.
func claimOf(pod *corev1.Pod, pool string) string {
	name := pod.Annotations[v1alpha1.CacheClaimAnnotation]
	if numberOf(pool, name) < 0 {
		return ""
	}
	return name
}

func timeOf(object *corev1.PersistentVolumeClaim, annotation string) time.Time {
	at, err := time.Parse(time.RFC3339, object.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// differs reports whether a claim differs from the pool's declared cache.
func differs(spec *v1alpha1.CacheSpec, claim *corev1.PersistentVolumeClaimSpec) bool {
	if spec == nil {
		return false
	}
	bytes, err := spec.Bytes()
	return err != nil || claim.Resources.Requests.Storage().Value() != bytes || len(claim.AccessModes) != 1 || claim.AccessModes[0] != spec.GetAccessMode() ||
		spec.StorageClassName != "" && ptr.Deref(claim.StorageClassName, "") != spec.StorageClassName
}

// isFree reports whether the holder of a claim and its pod are gone. It asks the API server, because the informer cache may
// not show a new object yet. No request is needed if this process saw that both were deleted, because a deleted object
// never returns.
func (c Claims) isFree(ctx context.Context, x PoolClaim) (bool, error) {
	if c.Memory.claims.sawGone(client.ObjectKeyFromObject(x.object), x.Holder) {
		return true, nil
	}
	h, err := holderOf(ctx, c.Live, x)
	return !h.isThere(), err
}

// claimHolder contains the objects that exist of the runner that a claim names.
type claimHolder struct {
	unknown bool // the claim names no runner
	runner  *v1alpha1.Runner
	pod     *corev1.Pod
}

func (h claimHolder) isThere() bool { return h.unknown || h.runner != nil || h.pod != nil }

// leaves reports whether the runner is being deleted, or is gone while its pod still exists.
func (h claimHolder) leaves() bool {
	return !h.unknown && (h.runner == nil || !h.runner.DeletionTimestamp.IsZero())
}

// leavesBy returns the latest time at which an ended holder and its pod should be gone; zero if the holder has not ended. A pod on
// a lost node stays longer.
func (c Claims) leavesBy(h claimHolder) time.Time {
	switch r := h.runner; {
	case r != nil && r.DeletionTimestamp != nil && !r.Persists():
		if _, over := c.Memory.Completion(client.ObjectKeyFromObject(r), r.UID); over || r.Status.EndedAt != nil {
			return r.DeletionTimestamp.Add(leavingWithin)
		}
	case r == nil && h.pod != nil && h.pod.DeletionTimestamp != nil:
		return h.pod.DeletionTimestamp.Add(leavingWait) // the deletion timestamp includes the grace period
	}
	return time.Time{}
}

// holderOf looks for the runner that a claim names, and its pod. If the claim names none, its holder is unknown.
func holderOf(ctx context.Context, from client.Reader, x PoolClaim) (claimHolder, error) {
	if x.runner == "" || x.Holder == "" {
		return claimHolder{unknown: true}, nil
	}
	key := client.ObjectKey{Namespace: x.object.Namespace, Name: x.runner}
	runner, pod := &v1alpha1.Runner{}, &corev1.Pod{}
	for _, o := range []client.Object{runner, pod} {
		if err := from.Get(ctx, key, o); client.IgnoreNotFound(err) != nil {
			return claimHolder{unknown: true}, fmt.Errorf("looking for the holder of claim %s: %w", x.Name, err)
		}
	}
	var h claimHolder
	if runner.UID == x.Holder && !runner.IsReleased() {
		h.runner = runner
	}
	if pod.Annotations[v1alpha1.RunnerUIDAnnotation] == string(x.Holder) {
		h.pod = pod
	}
	return h, nil
}

// acquire gives a free claim to a runner, unless another runner took it in the meantime.
func (c Claims) acquire(ctx context.Context, x PoolClaim, runner *v1alpha1.Runner, now time.Time) error {
	if free, err := c.isFree(ctx, x); err != nil || !free {
		if err == nil {
			err = errTaken
		}
		return err
	}
	taken := x.object.DeepCopy()
	holdBy(taken, runner, now)
	return c.replace(ctx, x, taken)
}

// replace writes a claim, unless it has changed since it was read.
func (c Claims) replace(ctx context.Context, x PoolClaim, by *corev1.PersistentVolumeClaim) error {
	err := c.Client.Patch(ctx, by, client.MergeFromWithOptions(x.object, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errTaken
	}
	return err
}

func holdBy(claim *corev1.PersistentVolumeClaim, runner *v1alpha1.Runner, now time.Time) {
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1alpha1.CacheHolderAnnotation, runner.Name+"/"+string(runner.UID))
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1alpha1.CacheTakenAnnotation, now.UTC().Format(time.RFC3339))
}

// create creates a new claim that the runner holds from the beginning.
func (c Claims) create(ctx context.Context, pool *v1alpha1.RunnerPool, number int, runner *v1alpha1.Runner, now time.Time) error {
	spec := pool.Spec.Cache
	bytes, err := spec.Bytes()
	if err != nil {
		return err
	}
	labels := map[string]string{}
	maps.Copy(labels, pool.Spec.LabelsOfObjects())
	labels[v1alpha1.CacheLabel], labels[v1alpha1.PoolLabel] = pool.Name, pool.Name
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: podspec.ClaimName(pool.Name, number), Labels: labels, Annotations: pool.Spec.AnnotationsOfObjects(),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{spec.GetAccessMode()},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)}},
		},
	}
	if spec.StorageClassName != "" {
		claim.Spec.StorageClassName = &spec.StorageClassName
	}
	holdBy(claim, runner, now)
	if err := controllerutil.SetControllerReference(pool, claim, c.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of a claim: %w", err)
	}
	if err := c.Client.Create(ctx, claim); apierrors.IsAlreadyExists(err) {
		return errTaken
	} else if err != nil {
		return fmt.Errorf("creating claim %s: %w", claim.Name, err)
	}
	return nil
}

// blame records on a claim that a runner which used it did not start, and the cause.
func (c Claims) blame(ctx context.Context, x PoolClaim, cause v1alpha1.RunnerCause, now time.Time) error {
	blamed := x.object.DeepCopy()
	metav1.SetMetaDataAnnotation(&blamed.ObjectMeta, v1alpha1.CacheFailedAtAnnotation, now.UTC().Format(time.RFC3339))
	metav1.SetMetaDataAnnotation(&blamed.ObjectMeta, v1alpha1.CacheFailedForAnnotation, string(cause))
	return c.replace(ctx, x, blamed)
}

// renew restarts the claim's time to live when its holder ends.
func (c Claims) renew(ctx context.Context, x PoolClaim, runner *v1alpha1.Runner, now time.Time) error {
	renewed := x.object.DeepCopy()
	holdBy(renewed, runner, now)
	return c.replace(ctx, x, renewed)
}

// disown removes the holder's name from a claim. A claim without a holder never counts as free, so no runner takes it.
func (c Claims) disown(ctx context.Context, x PoolClaim) error {
	nobodys := x.object.DeepCopy()
	delete(nobodys.Annotations, v1alpha1.CacheHolderAnnotation)
	return c.replace(ctx, x, nobodys)
}

// cacheDeleted is the event reason for a deleted claim.
const cacheDeleted = "CacheDeleted"

// delete deletes a claim if it has not changed since it was read, and emits an event with the reason. Kubernetes keeps the
// claim until no pod mounts it.
func (c Claims) delete(ctx context.Context, x PoolClaim, report kube.Reporter, about client.Object, why string) error {
	err := c.Client.Delete(ctx, x.object.DeepCopy(), client.Preconditions{UID: &x.object.UID, ResourceVersion: &x.object.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting claim %s: %w", x.Name, err)
	}
	if err == nil {
		kube.LogDeleted(ctx, c.Client, x.object, "", why)
		report.Event(about, corev1.EventTypeNormal, cacheDeleted, fmt.Sprintf("deleted cache claim %s: %s", x.Name, why))
	}
	return nil
}

// Remove deletes claims of a pool, except those that a runner took in the meantime.
func (c Claims) Remove(ctx context.Context, pool *v1alpha1.RunnerPool, report kube.Reporter, all []PoolClaim, removals []claims.Removal) error {
	for _, r := range removals {
		x := all[slices.IndexFunc(all, func(x PoolClaim) bool { return x.Name == r.Name })]
		free, err := c.isFree(ctx, x)
		if err != nil {
			return err
		}
		if !free || c.Memory.claims.isReserved(client.ObjectKeyFromObject(x.object)) {
			continue
		}
		switch err := c.delete(ctx, x, report, pool, r.Reason); {
		case kube.IsRefused(err):
			report.Event(pool, corev1.EventTypeWarning, cacheKept, fmt.Sprintf("Corral is not allowed to delete cache claim %s, although %s: %s", x.Name, r.Reason, wording.TruncateRunes(err.Error(), 300)))
		case err != nil && !apierrors.IsConflict(err):
			return err
		}
	}
	return nil
}

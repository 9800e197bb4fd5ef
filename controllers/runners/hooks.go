// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=impersonate

// Event reasons for objects that container hooks left behind.
const (
	leftoversDeletedEvent = "HookObjectsDeleted"
	leftoversKeptEvent    = "HookObjectsLeft"
)

const (
	// hooksLabel is the label of every object that a runner's container hooks create. Its value is the name of the runner's
	// pod.
	hooksLabel = "runner-pod"
	// maxLeftovers limits how many objects of one kind a pass deletes.
	maxLeftovers = 100
	// maxNamed limits how many of them an event names.
	maxNamed = 10
	// accountRetry is the delay before the next check for a missing ServiceAccount. ServiceAccounts are not watched.
	accountRetry = 10 * time.Second
)

// errStaying means that objects still exist although they were deleted.
var errStaying = errors.New("they are being deleted but still exist")

// Impersonate returns a client that acts as a service account.
type Impersonate func(account types.NamespacedName) (client.Client, error)

// hookKinds are the kinds that container hooks create. Hooks that copy the work folder create no Jobs, so their service
// account may have no rights for Jobs.
var hookKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Secret"), batchv1.SchemeGroupVersion.WithKind("Job"),
}

// deleteLeftovers deletes the objects that the container hooks of a killed runner could not clean up. It acts as the
// service account that created them. If this account has no rights, or if objects remain after orphanAfter, Corral releases
// the runner anyway, and an event lists what may remain.
func (p pass) deleteLeftovers(ctx context.Context) error {
	s := &p.runner.Status
	if p.runner.Spec.HooksAccount == "" || s.StartedAt == nil && s.EndedAt == nil {
		return nil
	}
	deleted, more, err := p.deleteAsAccount(ctx)
	if len(deleted) > 0 {
		p.Event(p.runner, corev1.EventTypeNormal, leftoversDeletedEvent, "deleted objects that its container hooks left behind: "+wording.List(deleted, maxNamed))
	}
	inTime := p.Now().Sub(p.runner.DeletionTimestamp.Time) < orphanAfter
	switch {
	case err == nil && more && inTime:
		return kube.Progress(time.Second, catalog.HookObjectsLeft.With())
	case err == nil && more:
		err = errStaying
	case err == nil:
		return nil
	case !apierrors.IsForbidden(err) && inTime:
		return fmt.Errorf("deleting the objects that its container hooks created: %w", err)
	}
	return p.reportLeftovers(ctx, err)
}

// deleteAsAccount returns the names of the deleted objects and reports whether there may be more. It reads only metadata,
// because the controller must not see the contents of the Secrets.
func (p pass) deleteAsAccount(ctx context.Context) (deleted []string, more bool, err error) {
	as, err := p.Impersonate(types.NamespacedName{Namespace: p.runner.Namespace, Name: p.runner.Spec.HooksAccount})
	if err != nil {
		return nil, false, err
	}
	for _, kind := range hookKinds {
		list, err := p.leftovers(ctx, as, kind)
		if apierrors.IsForbidden(err) && kind.Group == batchv1.GroupName {
			continue // without rights, the account has created no Jobs
		}
		if err != nil {
			return deleted, false, err
		}
		more = more || list.Continue != ""
		for i := range list.Items {
			o := &list.Items[i]
			if !o.DeletionTimestamp.IsZero() {
				continue
			}
			o.SetGroupVersionKind(kind)
			err := as.Delete(ctx, o, client.Preconditions{UID: &o.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
			if client.IgnoreNotFound(err) != nil {
				return deleted, false, err
			}
			kube.LogDeleted(ctx, p.Client, o, p.runner.Spec.Revision, "container hooks of Runner "+p.runner.Name+" left it behind")
			deleted = append(deleted, kind.Kind+" "+o.Name)
		}
	}
	return deleted, more, nil
}

// leftovers lists the objects of a kind that the runner's hooks created.
func (p pass) leftovers(ctx context.Context, reader client.Reader, kind schema.GroupVersionKind) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list, reader.List(ctx, list, client.InNamespace(p.runner.Namespace), client.MatchingLabels{hooksLabel: p.runner.Name}, client.Limit(maxLeftovers))
}

// reportLeftovers emits an event about objects that may remain. A runner that ended cleanly and has no hook pods left nothing
// behind, because its hooks clean up everything together.
func (p pass) reportLeftovers(ctx context.Context, refused error) error {
	pods, err := p.leftovers(ctx, p.Live, hookKinds[0])
	if err != nil {
		return fmt.Errorf("looking for pods of its container hooks: %w", err)
	}
	if len(pods.Items) == 0 && p.runner.Status.EndedClean {
		return nil
	}
	remains := "Secrets and Jobs"
	if len(pods.Items) > 0 {
		var names []string
		for i := range pods.Items {
			names = append(names, "Pod "+pods.Items[i].Name)
		}
		remains = wording.List(names, maxNamed) + ", and " + remains
	}
	p.Event(p.runner, corev1.EventTypeWarning, leftoversKeptEvent, fmt.Sprintf(
		"its container hooks may have left behind %s: %s. %s. To delete them: kubectl delete pods,secrets,jobs -n %s -l %s=%s",
		remains, wording.TruncateRunes(refused.Error(), 300), adviseAccount(refused, p.runner), p.runner.Namespace, hooksLabel, p.runner.Name))
	return nil
}

// adviseAccount returns advice on how Corral can delete such objects in the future.
func adviseAccount(refused error, r *v1alpha1.Runner) string {
	if errors.Is(refused, errStaying) {
		return "Look at their finalizers"
	}
	if strings.Contains(refused.Error(), "cannot impersonate") {
		return "The controller is not allowed to impersonate service accounts: set impersonation.enabled in the chart"
	}
	return fmt.Sprintf("Let ServiceAccount %s list and delete them", r.Spec.HooksAccount)
}

// AccountMissing returns the outcome if the API server refused a pod because its ServiceAccount does not exist, and nil if
// it refused the pod for another reason. made is the name of the account that should be created for the pool, if there is
// one.
func AccountMissing(refused error, pod *corev1.Pod, made string) error {
	if !apierrors.IsForbidden(refused) || !strings.Contains(refused.Error(), "error looking up service account") {
		return nil
	}
	remedy := "create it, or use another one in spec.template.spec.serviceAccountName"
	if made == pod.Spec.ServiceAccountName {
		remedy = "apply it with its Role and RoleBinding, as `corral build` prints them (a PoolSource does so with spec.serviceAccountName), or use another one in spec.template.spec.serviceAccountName"
	}
	return kube.Wait(accountRetry, catalog.AccountMissing.With(pod.Spec.ServiceAccountName, pod.Namespace, remedy))
}

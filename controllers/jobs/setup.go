// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// placers is the number of workers of each controller in this package: for pools, for connections, and for the metrics of
// pools. A controller processes one object of a namespace at a time, because further workers would only wait for the locks
// of the namespace's spaces.
const placers = 16

// SetupWithManager adds the JobTracker to the manager, which runs it on the leader, and watches pools and connections.
func (k *JobTracker) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(k); err != nil {
		return fmt.Errorf("adding the job tracker: %w", err)
	}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	if err := ctrl.NewControllerManagedBy(mgr).Named("demand-pools").For(&v1alpha1.RunnerPool{}, changed).WithOptions(kube.Places(placers, 1, 1, tenant)).Complete(reconcile.Func(k.reconcilePool)); err != nil {
		return fmt.Errorf("watching pools: %w", err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("demand-connections").For(&v1alpha1.GitHubConnection{}, changed).WithOptions(kube.Places(placers, 1, 1, tenant)).Complete(reconcile.Func(k.reconcileConnection)); err != nil {
		return fmt.Errorf("watching connections: %w", err)
	}
	return nil
}

func (k *JobTracker) reconcilePool(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.RunnerPool{}
	err := k.Client.Get(ctx, req.NamespacedName, pool)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !pool.DeletionTimestamp.IsZero():
		k.removePool(req.NamespacedName)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the pool: %w", err)
	}
	k.setPool(pool)
	return ctrl.Result{}, nil
}

func (k *JobTracker) reconcileConnection(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	conn := &v1alpha1.GitHubConnection{}
	if err := k.Client.Get(ctx, req.NamespacedName, conn); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("reading the connection: %w", err)
		}
		k.removeConnection(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	k.setConnection(conn)
	return ctrl.Result{}, nil
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
)

const (
	// defaultLeaseNamespace is the namespace in which the docs install the controller.
	defaultLeaseNamespace = "corral-system"
	// pageSize is the maximum number of objects in the response to one list request.
	pageSize = 500
	// maxRead is the maximum number of objects of one kind that are read.
	maxRead = 10_000
	// maxElsewhere is the maximum number of connections that are read from other namespaces.
	maxElsewhere = 50
)

// reader reads objects with the user's permissions, and records the objects that it could not read.
type reader struct {
	client client.Reader
	// namespace is the namespace to read, or "" for all. own is the context's namespace, which reader reads if the user may not
	// list objects of all namespaces.
	namespace, own string
	// reasonOf returns the text that is recorded for the error of a read.
	reasonOf func(error) string
	unseen   []explain.Unseen
}

// statusReader reads the objects from which status builds a page.
type statusReader struct {
	reader
	// lease is the namespace of the controller's lease.
	lease string
	// now returns the time by the API server's clock after the first response, and the local time before.
	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

// read returns a snapshot of the objects.
func (g *statusReader) read(ctx context.Context) *explain.Snapshot {
	s := &explain.Snapshot{Namespace: g.namespace}
	g.readPools(ctx, s)
	listNamespaced(ctx, &g.reader, "PoolSources", &v1alpha1.PoolSourceList{}, &s.Sources)
	listNamespaced(ctx, &g.reader, "RunnerPolicies", &v1alpha1.RunnerPolicyList{}, &s.Policies)
	listNamespaced(ctx, &g.reader, "ResourceQuotas", &corev1.ResourceQuotaList{}, &s.Quotas)
	g.recordUnseen("ClusterRunnerPolicies", listPages(ctx, g.client, &v1alpha1.ClusterRunnerPolicyList{}, &s.ClusterPolicies))
	g.readOtherConnections(ctx, s)
	s.Leases = g.leases(ctx)
	s.Unseen, s.Now = g.unseen, g.now()
	return s
}

// readPools reads pools, connections, scale sets and runners.
func (g *reader) readPools(ctx context.Context, s *explain.Snapshot) {
	listNamespaced(ctx, g, "RunnerPools", &v1alpha1.RunnerPoolList{}, &s.Pools)
	listNamespaced(ctx, g, "GitHubConnections", &v1alpha1.GitHubConnectionList{}, &s.Connections)
	listNamespaced(ctx, g, "RunnerScaleSets", &v1alpha1.RunnerScaleSetList{}, &s.ScaleSets)
	listNamespaced(ctx, g, "Runners", &v1alpha1.RunnerList{}, &s.Runners)
}

// recordUnseen records that something could not be read, unless err is nil. The command continues with the other objects.
func (g *reader) recordUnseen(what string, err error) {
	if err != nil {
		g.unseen = append(g.unseen, explain.Unseen{What: what, Why: g.reasonOf(err)})
	}
}

// get reads an object. It records an error, unless the error is that the object does not exist.
func (g *reader) get(ctx context.Context, what string, key client.ObjectKey, to client.Object) error {
	err := g.client.Get(ctx, key, to)
	g.recordUnseen(what, client.IgnoreNotFound(err))
	return err
}

// briefReason returns the text of an error without the kind of the object, so that the texts for several kinds are equal if
// the cause is the same.
func briefReason(err error) string {
	request := new(url.Error)
	switch {
	case apierrors.IsForbidden(err):
		return "no permission to read"
	case meta.IsNoMatchError(err):
		return "the cluster has no such kind: Corral's CRDs aren't installed"
	case errors.As(err, &request):
		return request.Err.Error()
	}
	return err.Error()
}

// errMore is the error for a list with more than maxRead objects.
var errMore = fmt.Errorf("there are more than %d, the limit", maxRead)

// listPages lists objects in pages, and appends them to a slice. kind is an empty list of their kind.
func listPages[T any](ctx context.Context, from client.Reader, kind client.ObjectList, to *[]T, options ...client.ListOption) error {
	pages := pager.ListPager{PageSize: pageSize, PageFn: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := kind.DeepCopyObject().(client.ObjectList) // decoding into the previous page would change its objects
		return page, from.List(ctx, page, append(options, client.Limit(o.Limit), client.Continue(o.Continue))...)
	}}
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if len(*to) >= maxRead {
			return errMore
		}
		*to = append(*to, *any(o).(*T))
		return nil
	})
}

// listNamespaced lists objects of the reader's namespace. If the user may not list all namespaces, it lists the context's namespace instead.
func listNamespaced[T any](ctx context.Context, g *reader, what string, kind client.ObjectList, to *[]T, options ...client.ListOption) {
	err := listPages(ctx, g.client, kind, to, append(options, client.InNamespace(g.namespace))...)
	if g.namespace == "" && apierrors.IsForbidden(err) {
		g.recordUnseen(what+" in namespaces other than "+g.own, err)
		err = listPages(ctx, g.client, kind, to, append(options, client.InNamespace(g.own))...)
		what += " of namespace " + g.own
	}
	g.recordUnseen(what, err)
}

// readOtherConnections reads the connections of pools that are not in the namespace of the pool.
func (g *statusReader) readOtherConnections(ctx context.Context, s *explain.Snapshot) {
	if g.namespace == "" {
		return
	}
	seen := map[client.ObjectKey]bool{}
	for i := range s.Pools {
		key := s.Pools[i].Spec.ConnectionRef.From(s.Pools[i].Namespace)
		if key.Namespace == g.namespace || seen[key] {
			continue
		}
		seen[key] = true
		if len(seen) > maxElsewhere {
			g.recordUnseen("GitHubConnections in other namespaces", fmt.Errorf("pools use more than %d, the limit", maxElsewhere))
			return
		}
		c := v1alpha1.GitHubConnection{}
		if g.get(ctx, "GitHubConnection "+key.String(), key, &c) == nil {
			s.Connections = append(s.Connections, c)
		}
	}
}

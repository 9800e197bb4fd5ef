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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
)

const (
	// defaultLeaseNamespace is where the docs install the controller.
	defaultLeaseNamespace = "corral-system"
	// pageSize is how many objects are read at a time.
	pageSize = 500
	// maxRead is how many objects of a kind are read.
	maxRead = 10_000
	// maxElsewhere is how many connections of other namespaces are read.
	maxElsewhere = 50
)

// reader reads objects with the user's rights, and notes what it could not read.
type reader struct {
	client client.Reader
	// namespace to look in, "" for all; own is that of the context, which is looked in if the others may not be read.
	namespace, own string
	// why words the error of a read.
	why    func(error) string
	unseen []explain.Unseen
}

// statusReader reads what a page is made of.
type statusReader struct {
	reader
	// lease is the namespace of the controller's lease.
	lease string
	// now is the API server's clock, as far as it is known by then; wait waits.
	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

// read takes a snapshot.
func (g *statusReader) read(ctx context.Context) *explain.Snapshot {
	s := &explain.Snapshot{Namespace: g.namespace}
	g.readPools(ctx, s)
	listed(ctx, &g.reader, "PoolSources", func(l *v1alpha1.PoolSourceList) { s.Sources = append(s.Sources, l.Items...) })
	listed(ctx, &g.reader, "RunnerPolicies", func(l *v1alpha1.RunnerPolicyList) { s.Policies = append(s.Policies, l.Items...) })
	listed(ctx, &g.reader, "ResourceQuotas", func(l *corev1.ResourceQuotaList) { s.Quotas = append(s.Quotas, l.Items...) })
	g.cannot("ClusterRunnerPolicies", pages(ctx, g.client, func(l *v1alpha1.ClusterRunnerPolicyList) {
		s.ClusterPolicies = append(s.ClusterPolicies, l.Items...)
	}))
	g.elsewhere(ctx, s)
	s.Leases = g.leases(ctx)
	s.Unseen, s.Now = g.unseen, g.now()
	return s
}

// readPools reads pools, and what exists for them.
func (g *reader) readPools(ctx context.Context, s *explain.Snapshot) {
	listed(ctx, g, "RunnerPools", func(l *v1alpha1.RunnerPoolList) { s.Pools = append(s.Pools, l.Items...) })
	listed(ctx, g, "GitHubConnections", func(l *v1alpha1.GitHubConnectionList) { s.Connections = append(s.Connections, l.Items...) })
	listed(ctx, g, "RunnerScaleSets", func(l *v1alpha1.RunnerScaleSetList) { s.ScaleSets = append(s.ScaleSets, l.Items...) })
	listed(ctx, g, "Runners", func(l *v1alpha1.RunnerList) { s.Runners = append(s.Runners, l.Items...) })
}

// cannot notes what could not be read: a missing right isn't fatal.
func (g *reader) cannot(what string, err error) {
	if err != nil {
		g.unseen = append(g.unseen, explain.Unseen{What: what, Why: g.why(err)})
	}
}

// brief words an error such that it is the same for each kind that can't be read.
func brief(err error) string {
	switch request := new(url.Error); {
	case apierrors.IsForbidden(err):
		return "you may not read them"
	case meta.IsNoMatchError(err):
		return "the cluster has no such kind: Corral's CRDs aren't installed"
	case errors.As(err, &request):
		return request.Err.Error()
	}
	return err.Error()
}

// errMore is the error of a list that is longer than what is read.
var errMore = fmt.Errorf("there are more than %d, the limit", maxRead)

// listOf is a list of objects of one kind.
type listOf[T any] interface {
	*T
	client.ObjectList
}

// pages lists objects, some at a time, and calls each with every part.
func pages[T any, L listOf[T]](ctx context.Context, from client.Reader, each func(L), options ...client.ListOption) error {
	more, n := "", 0
	for {
		list := L(new(T)) // a part that is decoded over another would change it
		if err := from.List(ctx, list, append(options, client.Limit(pageSize), client.Continue(more))...); err != nil {
			return err
		}
		each(list)
		n += meta.LenList(list)
		switch more = list.GetContinue(); {
		case more == "":
			return nil
		case n >= maxRead:
			return errMore
		}
	}
}

// listed lists objects of all namespaces or of one, and of the context's alone if the others may not be read.
func listed[T any, L listOf[T]](ctx context.Context, g *reader, what string, each func(L), options ...client.ListOption) {
	err := pages(ctx, g.client, each, append(options, client.InNamespace(g.namespace))...)
	if g.namespace == "" && apierrors.IsForbidden(err) {
		g.cannot(what+" of other namespaces than "+g.own, err)
		err = pages(ctx, g.client, each, append(options, client.InNamespace(g.own))...)
		what += " of namespace " + g.own
	}
	g.cannot(what, err)
}

// elsewhere reads the connections of other namespaces that pools use.
func (g *statusReader) elsewhere(ctx context.Context, s *explain.Snapshot) {
	if g.namespace == "" {
		return
	}
	seen := map[client.ObjectKey]bool{}
	for i := range s.Pools {
		key := s.Pools[i].Spec.ConnectionRef.From(s.Pools[i].Namespace)
		if key.Namespace == g.namespace || seen[key] {
			continue
		}
		if seen[key] = true; len(seen) > maxElsewhere {
			g.cannot("GitHubConnections of other namespaces", fmt.Errorf("pools use more than %d, the limit", maxElsewhere))
			return
		}
		c := v1alpha1.GitHubConnection{}
		if err := g.client.Get(ctx, key, &c); err == nil {
			s.Connections = append(s.Connections, c)
		} else if !apierrors.IsNotFound(err) {
			g.cannot("GitHubConnection "+key.String(), err)
		}
	}
}

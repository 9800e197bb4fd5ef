// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies loads RunnerPolicies and ClusterRunnerPolicies, evaluates them for pools, and reports their effects in
// their status.
package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// recheck is the interval between checks of a policy. In the meantime, its ConfigMaps may change without an event, and
// the number of its pools may change.
const recheck = time.Minute

// maxStatusEntries limits the diagnostics and findings in the status, and maxMessageEntries the diagnostics in a
// message.
const (
	maxStatusEntries  = 20
	maxMessageEntries = 5
)

// Rules loads and evaluates policies in processes that can be stopped.
type Rules interface {
	policy.Asker
	// Load returns the facts about a policy's rules, and their problems. A *policy.Excess means that loading exceeded its
	// limits. Any other error means that the policy could not be judged. It is policy.ErrOutdated if isCurrent returned
	// false when it was the policy's turn.
	Load(ctx context.Context, source policy.Source, isCurrent func() bool) (policy.Facts, []v1alpha1.Diagnostic, error)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runnerpolicies;clusterrunnerpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpolicies/status;clusterrunnerpolicies/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles the policies of one kind.
type Reconciler struct {
	kube.Reporter
	// Live reads ConfigMaps without a cache.
	Live client.Reader
	// Rules loads and evaluates user-written policies.
	Rules Rules
	// Engine receives the loaded policies.
	Engine *Engine
	// Kind is the kind of the policies: policy.KindRunnerPolicy or policy.KindClusterRunnerPolicy.
	Kind string
}

// object is a policy of either kind.
type object interface {
	kube.Object
	policy.Object
}

// Reconcile loads one policy:
//
//  1. collect: gather its modules and data, including those in ConfigMaps  (modules.go)
//  2. load: in a child process, or in this process if it is a cluster policy that uses only the library
//  3. put it into force: from now on it is evaluated for pools            (engine.go)
//  4. report: digest, pools, problems, and what would change
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := r.empty()
	ref := policy.Source{Kind: r.Kind, Namespace: req.Namespace, Name: req.Name}.Ref()
	if err := r.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.Engine.Remove(ref)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		r.Engine.Remove(ref)
		return ctrl.Result{}, nil
	}
	attempt := r.Begin(obj)
	err := r.load(ctx, obj)
	if errors.Is(err, policy.ErrOutdated) {
		return ctrl.Result{RequeueAfter: recheck}, nil // the watch usually triggers an earlier reconciliation, but may miss a change
	}
	if unread := r.Engine.learn(ctx, r.Client); unread != nil { // finds the pools for status.pools
		return ctrl.Result{}, unread
	}
	return attempt.Finish(ctx, r.report(obj, ref), err)
}

// load puts the policy into force. A policy that cannot be loaded is put into force too: the pools that it binds then
// keep their last decision.
func (r *Reconciler) load(ctx context.Context, obj object) error {
	source, diagnostics, err := r.collect(ctx, obj)
	switch {
	case err != nil:
	case len(diagnostics) > 0:
		r.Engine.Put(policy.Broken(source, diagnostics), source)
	case !r.Engine.isLoaded(source):
		err = r.compile(ctx, source, func() bool { return r.isCurrent(ctx, obj) })
	}
	known := r.Engine.Loaded(source.Ref())
	if err != nil {
		if known == nil && !errors.Is(err, policy.ErrOutdated) {
			r.refuse(source, err.Error())
		}
		return err
	}
	if len(known.Diagnostics()) > 0 {
		return kube.Stall(catalog.PolicyBroken.With(wording.Lines(known.Diagnostics(), maxMessageEntries, compile.Format)), catalog.LastDecisionHolds.With())
	}
	return nil
}

// isCurrent reports whether, according to the cache, a policy has not changed since it was read. It may have, because
// other policies of its namespace are loaded first and may take long.
func (r *Reconciler) isCurrent(ctx context.Context, read object) bool {
	now := r.empty()
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(read), now); err != nil {
		return !apierrors.IsNotFound(err)
	}
	return now.GetUID() == read.GetUID() && now.GetGeneration() == read.GetGeneration() && now.GetDeletionTimestamp().IsZero()
}

// compile loads a policy and puts it into force. If it would exceed a limit together with other policies, compile
// refuses it.
func (r *Reconciler) compile(ctx context.Context, source policy.Source, isCurrent func() bool) error {
	if why := r.Engine.tooMuch(source); why != "" {
		r.refuse(source, why)
		return nil
	}
	p, err := r.loadRules(ctx, source, isCurrent)
	var excess *policy.Excess
	if errors.As(err, &excess) {
		r.Engine.put(loaded{policy: policy.Broken(source, excess.Diagnostics()), source: source, excesses: 1})
		return nil
	}
	if err != nil {
		return fmt.Errorf("loading the policy: %w", err)
	}
	r.Engine.fitting.Lock()
	defer r.Engine.fitting.Unlock()
	if len(p.Diagnostics()) == 0 { // a policy with diagnostics takes no memory
		if why := r.Engine.tooMuch(source); why != "" { // other policies may have been loaded in the meantime
			r.refuse(source, why)
			return nil
		}
		r.Engine.makeRoom(source)
	}
	r.Engine.Put(p, source)
	return nil
}

// refuse puts a policy into force without loading its rules. The Reconciler tries to load it again later.
func (r *Reconciler) refuse(source policy.Source, why string) {
	r.Engine.put(loaded{policy: policy.Broken(source, []v1alpha1.Diagnostic{{Message: why}}), source: source, unfinished: true})
}

// hereTime is how long this process may evaluate a policy before a child process evaluates it instead. Most answers
// take less than 1 ms.
const hereTime = 20 * time.Millisecond

// loadRules loads a policy in a child process. It loads a ClusterRunnerPolicy that uses only library rules in this
// process. It never does so for a RunnerPolicy, because a tenant may have written its library parameters, which are as
// untrusted as rules.
func (r *Reconciler) loadRules(ctx context.Context, source policy.Source, isCurrent func() bool) (*policy.Policy, error) {
	if r.Kind == policy.KindClusterRunnerPolicy && source.IsLibrary() {
		return policy.LoadHere(source, r.Rules, hereTime), nil
	}
	facts, diagnostics, err := r.Rules.Load(ctx, source, isCurrent)
	switch {
	case err != nil:
		return nil, err
	case len(diagnostics) > 0:
		return policy.Broken(source, diagnostics), nil
	}
	return policy.Elsewhere(source, facts, r.Rules), nil
}

// report sets the status of a policy.
func (r *Reconciler) report(obj object, ref string) kube.Done {
	status := obj.GetPolicyStatus()
	if at, ok := meta.ReconcileAnnotationValue(obj.GetAnnotations()); ok {
		status.SetLastHandledReconcileRequest(at)
	}
	status.Mode = obj.GetRules().GetMode()
	loaded := r.Engine.Loaded(ref)
	if loaded == nil {
		return kube.Done{After: recheck}
	}
	diagnostics := loaded.Diagnostics()
	status.Diagnostics = slices.Clone(diagnostics[:min(len(diagnostics), maxStatusEntries)])
	status.Digest, status.Decisions = loaded.Digest(), loaded.Decisions()
	status.Pools = int32(r.Engine.bound(loaded)) //nolint:gosec // far below
	findings := r.Engine.findings(loaded, status.WouldChange)
	status.WouldChange = findings[:min(len(findings), maxStatusEntries)]
	return kube.Done{After: recheck, Message: summary(loaded)}
}

// summary describes the effect of a loaded policy, for its condition.
func summary(p *policy.Policy) string {
	facts, quarantined := p.Facts(), p.Quarantined()
	text := "Loaded; it takes part in no decision"
	if len(facts.Decisions) > 0 {
		text = "Loaded; it decides on " + strings.Join(facts.Decisions, ", ")
	}
	if p.Mode() == v1alpha1.PolicyAudit {
		text += "; audit only"
	}
	if len(quarantined) > 0 {
		text += "; it exceeded its limits too often for pools of these namespaces, and is evaluated for them only periodically: " + strings.Join(quarantined, ", ")
	}
	if len(facts.Doubts) > 0 {
		text += "; warning: " + wording.Lines(facts.Doubts, maxMessageEntries, compile.Format)
	}
	return text
}

func (r *Reconciler) empty() object {
	if r.Kind == policy.KindClusterRunnerPolicy {
		return &v1alpha1.ClusterRunnerPolicy{}
	}
	return &v1alpha1.RunnerPolicy{}
}

// keyOf returns the namespace and name of a pool.
func keyOf(p policy.Pool) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

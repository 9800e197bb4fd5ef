// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/test/golden"
	"github.com/corral-dev/corral/test/reword"
)

// observed returns the metadata of an object whose generation the controller has observed.
func observed(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name), Generation: 1, CreationTimestamp: ago(24 * time.Hour)}
}

// setCondition sets a condition that changed 20 minutes ago.
func setCondition(conditions *[]metav1.Condition, name string, status metav1.ConditionStatus, reason, message string) {
	setConditionSince(conditions, 20*time.Minute, name, status, reason, message)
}

// setConditionSince sets a condition that changed at the given time before noon.
func setConditionSince(conditions *[]metav1.Condition, d time.Duration, name string, status metav1.ConditionStatus, reason, message string) {
	for i := range *conditions {
		if (*conditions)[i].Type == name {
			*conditions = append((*conditions)[:i], (*conditions)[i+1:]...)
			break
		}
	}
	*conditions = append(*conditions, metav1.Condition{Type: name, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(d)})
}

// setNotReady sets Ready to False.
func setNotReady(conditions *[]metav1.Condition, reason, message string) {
	setCondition(conditions, v1alpha1.ReadyCondition, metav1.ConditionFalse, reason, message)
}

// setCauses sets a condition of an object to False with the given causes.
func setCauses(o kubeObject, name string, causes ...catalog.Cause) {
	plain, conditions := catalog.Plain(causes), o.GetConditions()
	setCondition(&conditions, name, metav1.ConditionFalse, catalog.Reason(plain), catalog.Messages(plain))
	o.SetConditions(conditions)
	for _, c := range plain {
		c.Condition = name
		*o.Causes() = append(*o.Causes(), c)
	}
}

type kubeObject interface {
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
	Causes() *[]v1alpha1.Cause
}

// calm returns an installation with the given number of pools and no problems.
func calm(pools int) *Snapshot {
	s := &Snapshot{Now: noon, Leases: []Lease{{Name: "corral-system/corral.corral.dev", Holder: "corral-0", Renewed: ago(2 * time.Second)}}}
	c := v1alpha1.GitHubConnection{ObjectMeta: observed("ci", "acme")}
	setCondition(&c.Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "connected to acme as app/acme")
	c.Status.ObservedGeneration = 1
	src := v1alpha1.PoolSource{ObjectMeta: observed("ci", "pools")}
	src.Spec.Interval.Duration, src.Status.ObservedGeneration, src.Status.LastAppliedRevision = time.Minute, 1, "main@sha1:1234"
	setCondition(&src.Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "applied main@sha1:1234")
	p := v1alpha1.RunnerPolicy{ObjectMeta: observed("ci", "limits")}
	p.Status.ObservedGeneration = 1
	setCondition(&p.Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "loaded")
	s.Connections, s.Sources, s.Policies = []v1alpha1.GitHubConnection{c}, []v1alpha1.PoolSource{src}, []v1alpha1.RunnerPolicy{p}
	for i := range pools {
		s.addPool(fmt.Sprintf("linux-%02d", i+1))
	}
	return s
}

// addPool adds a pool without problems and its scale set.
func (s *Snapshot) addPool(name string) {
	p := v1alpha1.RunnerPool{ObjectMeta: observed("ci", name)}
	p.Labels = map[string]string{v1alpha1.SourceLabel: "pools"}
	p.Spec.ConnectionRef.Name, p.Spec.Scale.Max = "acme", new(int32(10))
	p.Status = v1alpha1.RunnerPoolStatus{
		ObservedGeneration: 1, Jobs: new(int32(2)), Runners: v1alpha1.RunnerCounts{Total: 3, Busy: 2, Idle: 1},
		Decision: &v1alpha1.Decision{Time: ago(5 * time.Minute), Desired: 3, Announced: 10, Reason: "2 jobs + 1 idle", Limits: &v1alpha1.DecidedLimits{Max: new(int32(10)), Idle: 1}},
	}
	setCondition(&p.Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "listening as scale set")
	setCondition(&p.Status.Conditions, v1alpha1.HealthyCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "fewer than 3 runners failed in a row")
	set := v1alpha1.RunnerScaleSet{ObjectMeta: observed("ci", name)}
	set.Spec = v1alpha1.RunnerScaleSetSpec{PoolRef: v1alpha1.LocalObjectReference{Name: name}, PoolUID: string(p.UID), Name: name, RunnerGroup: "default"}
	set.Status = v1alpha1.RunnerScaleSetStatus{ObservedGeneration: 1, ID: 7, Name: name, RunnerGroup: "default", SessionID: "s.seal"}
	setCondition(&set.Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "listening")
	setCondition(&set.Status.Conditions, v1alpha1.ListeningCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "session open")
	s.Pools, s.ScaleSets = append(s.Pools, p), append(s.ScaleSets, set)
}

// addRunner adds a runner of a pool in the given state.
func (s *Snapshot) addRunner(name, pool string, state v1alpha1.RunnerState, cause v1alpha1.RunnerCause, reason string) {
	r := v1alpha1.Runner{ObjectMeta: observed("ci", name)}
	r.CreationTimestamp, r.Spec.PoolRef.Name = ago(5*time.Minute), pool
	r.Status.State, r.Status.Cause, r.Status.Reason = state, cause, reason
	s.Runners = append(s.Runners, r)
}

// pages returns an installation for each situation. testdata/pages.txtar contains the expected output of each.
var pages = map[string]func() *Snapshot{
	"no-problems": func() *Snapshot { return calm(3) },
	"github-answers-500": func() *Snapshot {
		s := calm(12)
		setNotReady(&s.Connections[0].Status.Conditions, v1alpha1.GitHubUnavailableReason, "GitHub answered 500; next try 12:00:10Z")
		s.Connections[0].Status.Outage = &v1alpha1.GitHubOutage{Code: 500, NextAttempt: &metav1.Time{Time: noon.Add(10 * time.Second)}}
		for i := range s.Pools {
			p := &s.Pools[i]
			p.Status.Jobs, p.Status.Runners = new(int32(4)), v1alpha1.RunnerCounts{Total: 2, Busy: 1 + int32(i%2), Idle: int32(1 - i%2)} //nolint:gosec // small
			setNotReady(&p.Status.Conditions, v1alpha1.GitHubUnavailableReason, fmt.Sprintf("scale set: listening: opening the message session of scale set %d: GitHub answered 500", i))
			setNotReady(&s.ScaleSets[i].Status.Conditions, v1alpha1.GitHubUnavailableReason, "listening: GitHub answered 500")
			setCondition(&s.ScaleSets[i].Status.Conditions, v1alpha1.ListeningCondition, metav1.ConditionUnknown, v1alpha1.ProgressingReason, "opening a session")
		}
		return s
	},
	"credentials-refused": func() *Snapshot {
		s := calm(3)
		setNotReady(&s.Connections[0].Status.Conditions, v1alpha1.CredentialsRefusedReason, `Secret "acme": github_token is wrong, expired or revoked: GitHub answered 401`)
		setNotReady(&s.Pools[0].Status.Conditions, v1alpha1.ConnectionNotReadyReason, `scale set: GitHubConnection "acme" isn't ready`)
		setNotReady(&s.Pools[1].Status.Conditions, v1alpha1.CredentialsRefusedReason, "scale set: GitHub answered 401")
		return s
	},
	"rights-missing": func() *Snapshot { // found when creating a runner
		s := calm(2)
		setNotReady(&s.Connections[0].Status.Conditions, v1alpha1.PermissionMissingReason, "a classic token needs the scope admin:org")
		setNotReady(&s.Pools[0].Status.Conditions, v1alpha1.PermissionMissingReason, `runner linux-0-1: registering runner "linux-0-1": GitHub answered 403`)
		for i := range s.Pools {
			r := v1alpha1.Runner{ObjectMeta: observed("ci", s.Pools[i].Name+"-1"), Spec: v1alpha1.RunnerSpec{PoolRef: v1alpha1.LocalObjectReference{Name: s.Pools[i].Name}}}
			r.Status.State, r.Status.Cause, r.Status.Reason = v1alpha1.RunnerPending, v1alpha1.CauseGitHub, "registering runner: GitHub answered 403"
			setNotReady(&r.Status.Conditions, v1alpha1.PermissionMissingReason, r.Status.Reason)
			s.Runners = append(s.Runners, r)
		}
		return s
	},
	"suspended-while-jobs-wait": func() *Snapshot {
		s := calm(1)
		p := &s.Pools[0]
		p.Spec.StopPolicy, p.Status.Jobs, p.Status.JobsWaiting, p.Status.Runners = v1alpha1.StopDrain, new(int32(0)), 3, v1alpha1.RunnerCounts{}
		setNotReady(&p.Status.Conditions, v1alpha1.SuspendedReason, "draining: Corral accepts no new jobs and deletes idle runners")
		return s
	},
	"git-server-hangs": func() *Snapshot { // of the first three sources; the repository of the fourth does not exist
		s := calm(1)
		src := s.Sources[0]
		s.Sources = nil
		const timedOut = "timed out: the server did not answer in time; check that it can be reached, or allow more time (spec.timeout is 20s)"
		for i, cause := range []catalog.Cause{
			catalog.ServerUnanswered.With("https://git.example/team/pools.git").Detailed(timedOut),
			catalog.FetchLate.With("https://git.example/infra.git").Detailed("the server did not answer lately"),
			catalog.ServerUnanswered.With("https://other.example/pools.git").Detailed(timedOut),
			catalog.RepositoryUnavailable.With("https://git.example/nothing.git").Detailed("repository not found"),
		} {
			one := *src.DeepCopy()
			one.Name = fmt.Sprintf("pools-%d", i)
			setCauses(&one, v1alpha1.ReadyCondition, cause)
			s.Sources = append(s.Sources, one)
		}
		return s
	},
	"previous-credentials": func() *Snapshot { // two pools keep working; only the jobs of the third wait
		s := calm(3)
		s.Connections[0].Status.FormerCredentials = true
		setNotReady(&s.Connections[0].Status.Conditions, v1alpha1.CredentialsMissingReason, `Secret acme not found; pools continue with the previous credentials: a restart of the controller would stop them`)
		s.Pools[2].Status.Jobs = new(int32(4))
		setNotReady(&s.Pools[2].Status.Conditions, v1alpha1.ConnectionNotReadyReason, `scale set: GitHubConnection "acme" is not ready: CredentialsMissing`)
		return s
	},
	"rate-limited-and-unreachable": func() *Snapshot { // two connections fail; the third is ready although its pool reports 429
		s := calm(3)
		for i, code := range []int32{429, 0, 429} {
			if i > 0 {
				c := s.Connections[0]
				c.ObjectMeta, c.Status.Conditions = observed("ci", fmt.Sprintf("acme-%d", i)), slices.Clone(calm(1).Connections[0].Status.Conditions)
				s.Connections, s.Pools[i].Spec.ConnectionRef.Name = append(s.Connections, c), c.Name
			}
			setNotReady(&s.Pools[i].Status.Conditions, v1alpha1.GitHubUnavailableReason, "scale set: listening: GitHub is unavailable")
			s.ScaleSets[i].Status.Outage = &v1alpha1.GitHubOutage{Code: code}
			if i < 2 {
				s.Connections[i].Status.Outage = &v1alpha1.GitHubOutage{Code: code, NextAttempt: &metav1.Time{Time: noon.Add(time.Minute)}}
				setNotReady(&s.Connections[i].Status.Conditions, v1alpha1.GitHubUnavailableReason, "GitHub is unavailable")
			}
		}
		return s
	},
	"no-leader": func() *Snapshot {
		s := calm(3)
		s.Leases[0].Renewed, s.Leases[0].Lost = ago(7*time.Minute), true
		s.Pools[0].Generation, s.Pools[0].ManagedFields = 2, []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: new(ago(6 * time.Minute))}}
		s.Pools[1].Status.Conditions, s.Pools[1].Status.ObservedGeneration, s.Pools[1].CreationTimestamp = nil, -1, ago(30*time.Second)
		s.Sources[0].Annotations = map[string]string{"reconcile.fluxcd.io/requestedAt": noon.Add(-3 * time.Minute).Format(time.RFC3339Nano)}
		return s
	},
	"jobs-of-one-pool-unknown": func() *Snapshot { return uncounted(2) },
	"all-jobs-unknown":         func() *Snapshot { return uncounted(1) },
	"unreadable":               unreadable,
	"mixed":                    mixed,
	"secondary-problems": func() *Snapshot { // the pools keep working; the reason why jobs wait is unknown
		s := calm(2)
		for i := range s.Pools {
			setCondition(&s.Pools[i].Status.Conditions, v1alpha1.DrainableCondition, metav1.ConditionFalse, v1alpha1.DisruptionBudgetsReason,
				"PodDisruptionBudget team-budget selects runners with a job, as corral-busy-runners does. Kubernetes evicts no pod that two budgets select, so node drains fail. Exclude pods with the label corral.dev/job-id from your budget")

		}
		s.Pools[0].Status.Jobs, s.Pools[0].Status.Decision.Desired, s.Pools[0].Status.Decision.Time = new(int32(5)), 5, ago(20*time.Minute)
		s.Sources[0].Spec.CommitStatus = &v1alpha1.CommitStatus{ConnectionRef: v1alpha1.LocalObjectReference{Name: "acme"}}
		s.Sources[0].Status.CommitStatus = &v1alpha1.CommitStatusFailure{
			Message: "the credentials may not write check runs: let the App have the permission \"checks\" with write access, and among its repositories this one: reading the check runs of commit 1a2b3c4 of acme/pools: GitHub answered 403",
			Since:   ago(time.Hour),
		}
		s.Connections[0].Status.MissingFeatures = []v1alpha1.MissingFeature{{Name: v1alpha1.FeatureEvents, Message: "incoming events aren't signed with the secret in Secret hook"}}
		return s
	},
	"ahead": func() *Snapshot {
		s := calm(2)
		for i := range s.Pools {
			p := &s.Pools[i]
			p.Status.RunnerVersion = &v1alpha1.RunnerVersionStatus{Version: "2.330.0", Latest: "2.331.0", UpdateBy: &metav1.Time{Time: noon.Add(10 * 24 * time.Hour)}}
			setCondition(&p.Status.Conditions, v1alpha1.RunnerVersionCondition, metav1.ConditionFalse, v1alpha1.RunnerOutdatedReason, "GitHub may refuse runner version 2.330.0 from 2026-07-16 on: update the image to 2.331.0")
		}
		s.ScaleSets[0].Status.SessionID = ""
		s.Connections[0].Status.TokenExpires = &metav1.Time{Time: noon.Add(6 * 24 * time.Hour)}
		q := corev1.ResourceQuota{ObjectMeta: observed("ci", "runners")}
		q.Status.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"), "services": resource.MustParse("1")}
		q.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9"), "services": resource.MustParse("1")}
		s.Quotas = []corev1.ResourceQuota{q}
		s.Sources[0].Spec.Suspend = true
		setCauses(&s.Sources[0], v1alpha1.ReadyCondition, catalog.SourceSuspended.With())
		s.Sources[0].Status.Conditions[0].LastTransitionTime = ago(2 * time.Hour)
		return s
	},
	"restricted": func() *Snapshot {
		s := calm(1)
		s.Namespace, s.Leases = "ci", nil
		s.Unseen = []Unseen{{"ResourceQuotas", "no permission to read"}, {"ClusterRunnerPolicies", "no permission to read"}, {"whether a controller works", "you have no permission to read Lease corral-system/corral.corral.dev"}}
		return s
	},
	"api-server-unreachable": func() *Snapshot {
		s := &Snapshot{Now: noon}
		for _, what := range []string{"RunnerPools", "GitHubConnections", "PoolSources", "RunnerScaleSets", "Runners", "RunnerPolicies", "ResourceQuotas", "ClusterRunnerPolicies", "whether a controller works"} {
			s.Unseen = append(s.Unseen, Unseen{what, "connection refused"})
		}
		return s
	},
	"left-over-lease": func() *Snapshot { // of a controller that was previously installed in another namespace
		s := calm(3)
		s.Leases = append(s.Leases, Lease{Name: "corral/corral.corral.dev", Holder: "corral-7", Renewed: ago(7 * time.Minute), Lost: true})
		return s
	},
	"other-version": func() *Snapshot {
		s := calm(1)
		s.Version, s.Leases[0].Version = "v0.2.0", "v0.1.0"
		return s
	},
	"temporary-states": func() *Snapshot { // they are not problems
		s := calm(3)
		for i, reason := range []string{v1alpha1.SessionRefusedReason, v1alpha1.ProgressingReason} {
			setConditionSince(&s.Pools[i].Status.Conditions, 30*time.Second, v1alpha1.ReadyCondition, metav1.ConditionFalse, reason, "wait")
		}
		s.Pools[2].Spec.StopPolicy = v1alpha1.StopDrain
		setNotReady(&s.Pools[2].Status.Conditions, v1alpha1.SuspendedReason, "draining: Corral accepts no new jobs and deletes idle runners")
		s.addRunner("linux-01-1", "linux-01", v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable, "Unschedulable: 0/3 nodes are available")
		s.Runners[0].CreationTimestamp = ago(time.Minute)
		for i, state := range []v1alpha1.RunnerState{v1alpha1.RunnerBusy, v1alpha1.RunnerBusy, v1alpha1.RunnerIdle} { // their pool was deleted
			s.addRunner(fmt.Sprintf("deleted-%d", i), "deleted", state, "", "")
			r := &s.Runners[len(s.Runners)-1]
			r.DeletionTimestamp, r.OwnerReferences = new(ago(2*time.Minute)), []metav1.OwnerReference{{Kind: "RunnerPool", Name: "deleted", UID: "ci-deleted", Controller: new(true)}}
		}
		set := v1alpha1.RunnerScaleSet{ObjectMeta: observed("ci", "deleted"), Spec: v1alpha1.RunnerScaleSetSpec{PoolRef: v1alpha1.LocalObjectReference{Name: "deleted"}, PoolUID: "ci-deleted"}}
		set.Status.ObservedGeneration = 1
		setNotReady(&set.Status.Conditions, v1alpha1.DrainingReason, "deleted at 2026-07-06T11:58:00Z; 2 runners finish their jobs, 1 more to end")
		s.ScaleSets = append(s.ScaleSets, set)
		return s
	},
}

// uncounted returns an installation in which Corral has never counted the jobs of the first pool.
func uncounted(pools int) *Snapshot {
	s := calm(pools)
	s.Pools[0].Status.Jobs, s.Pools[0].Status.Runners = nil, v1alpha1.RunnerCounts{}
	setNotReady(&s.Pools[0].Status.Conditions, v1alpha1.RunnerGroupNotFoundReason, `scale set: runner group "gpu" not found`)
	return s
}

// unreadable returns an installation in which one object of each kind has an unreadable field, and a user has created a
// runner manually.
func unreadable() *Snapshot {
	s := calm(2)
	fail := func(unread *v1alpha1.Unread, conditions *[]metav1.Condition, reason string, fields ...string) {
		unread.Fields = fields
		setNotReady(conditions, reason, strings.Join(fields, "\n"))
	}
	const invalid = v1alpha1.InvalidSpecReason
	c, src, p := &s.Connections[0], &s.Sources[0], &s.Policies[0]
	fail(&c.Unread, &c.Status.Conditions, invalid, "spec.webhook.hookID: json: cannot unmarshal string into Go value of type int64")
	fail(&src.Unread, &src.Status.Conditions, invalid, `spec.timeout: time: invalid duration "99999999999h"`)
	p.Fields = []string{"spec.library.resources.maxPerPod.cpu"}
	setCauses(p, v1alpha1.ReadyCondition, catalog.PolicyBroken.With(`spec.library.resources.maxPerPod.cpu: "1e1.5" is no quantity`), catalog.LastDecisionHolds.With())
	fail(&s.Pools[0].Unread, &s.Pools[0].Status.Conditions, invalid, `spec.scale.behavior.scaleUp.tolerance: "1e-2147483647" is no quantity`, `spec.scale.idleTimeout: time: invalid duration "banana"`)
	fail(&s.ScaleSets[1].Unread, &s.ScaleSets[1].Status.Conditions, invalid, "spec.labels[0]: json: cannot unmarshal number into Go value of type string")
	s.ScaleSets = append(s.ScaleSets, s.ScaleSets[1])
	s.ScaleSets[2].ObjectMeta, s.ScaleSets[2].Spec.PoolRef.Name = observed("ci", "gone"), "gone"
	for _, name := range []string{"unread", "by-hand"} {
		s.addRunner(name, "linux-02", v1alpha1.RunnerPending, "", "")
	}
	fail(&s.Runners[0].Unread, &s.Runners[0].Status.Conditions, invalid, "spec.scaleSetID: json: cannot unmarshal string into Go value of type int64")
	setNotReady(&s.Runners[1].Status.Conditions, invalid, `RunnerPool "linux-02" did not create this runner, so Corral does not start it`)
	return s
}

// mixed returns an installation with several causes at once. One of them affects objects in three namespaces.
func mixed() *Snapshot {
	s := calm(8)
	setNotReady(&s.Sources[0].Status.Conditions, v1alpha1.BuildFailedReason, "pools/linux.cue:12:3: pools.linux.spec.scale.max: invalid value \"ten\"")
	setCondition(&s.Sources[0].Status.Conditions, meta.StalledCondition, metav1.ConditionTrue, v1alpha1.BuildFailedReason, "")
	setNotReady(&s.Policies[0].Status.Conditions, v1alpha1.PolicyInvalidReason, "limits.rego:3: rego_parse_error")
	for i, message := range []string{"the last decision stays in force: RunnerPolicy/ci/limits cannot be loaded", "the last decision stays in force: RunnerPolicy/ci/limits failed"} {
		setNotReady(&s.Pools[i].Status.Conditions, v1alpha1.PolicyFailedReason, message)
		setCondition(&s.Pools[i].Status.Conditions, v1alpha1.PolicyCondition, metav1.ConditionFalse, v1alpha1.PolicyFailedReason, message)
	}
	s.Pools[2].Status.Jobs = new(int32(5))
	for _, name := range []string{v1alpha1.ReadyCondition, v1alpha1.HealthyCondition} {
		setCauses(&s.Pools[2], name, catalog.CircuitOpen.With(3, v1alpha1.CauseCrash).Detailed("Error (exit code 1)").Retry(noon.Add(7*time.Second)))
	}
	s.Pools[2].Status.Failures = []v1alpha1.RunnerFailure{{
		Runner: "linux-03-6", Time: ago(3 * time.Second), Cause: v1alpha1.CauseCrash, Reason: "Error (exit code 1)", Node: "n1",
		Exit: &v1alpha1.RunnerExit{Code: 1, Message: "no such file: run.sh"},
	}}
	s.addRunner("linux-03-7", "linux-03", v1alpha1.RunnerFailed, v1alpha1.CauseCrash, "Error (exit code 1)")
	for i := range 4 {
		s.addRunner(fmt.Sprintf("linux-04-%d", i), "linux-04", v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable, fmt.Sprintf("Unschedulable: 0/%d nodes are available", i+2))
	}
	s.Pools[3].Status.Jobs, s.Pools[3].Status.Decision.Desired = new(int32(6)), 7
	s.Pools[4].Status.Jobs, s.Pools[4].Status.Runners = new(int32(14)), v1alpha1.RunnerCounts{Total: 10, Busy: 10}
	s.Pools[4].Status.Decision.Desired, s.Pools[4].Status.Decision.Reason = 10, "14 jobs + 1 idle, bounded by max 10"
	s.Pools[4].Status.Jobs, s.Pools[4].Status.JobsWaiting = new(int32(10)), 4
	s.Pools[4].Status.Decision.Reason = "10 jobs: full (max 10); 4 more wait on GitHub"
	setCondition(&s.Pools[4].Status.Conditions, v1alpha1.SaturatedCondition, metav1.ConditionTrue, v1alpha1.MaxReachedReason, "the pool runs the maximum of 10 jobs and more jobs wait")
	setCondition(&s.ScaleSets[5].Status.Conditions, v1alpha1.LabelsAcceptedCondition, metav1.ConditionFalse, v1alpha1.LabelsDroppedReason, "GitHub kept linux of linux, x64")
	setNotReady(&s.Pools[6].Status.Conditions, v1alpha1.QuotaExceededReason, `runner linux-07-3: cannot create the pod: pods "linux-07-3" is forbidden: exceeded quota: runners`)
	s.addRunner("linux-07-3", "linux-07", v1alpha1.RunnerPending, v1alpha1.CauseQuota, `cannot create the pod: pods "linux-07-3" is forbidden: exceeded quota: runners`)
	s.Pools[7].Status.Demand = []v1alpha1.DemandStatus{{Name: "queue", Stale: true, Reason: "no answer from http://prometheus:9090"}}
	return s
}

func TestPages(t *testing.T) {
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			golden.CompareIn(t, "testdata/pages.txtar", name+".txt", Look(page()).Text())
		})
	}
}

func TestVerdicts(t *testing.T) {
	want := map[string]Verdict{
		"no-problems": Well, "ahead": Well, "temporary-states": Well, "other-version": Well, "suspended-while-jobs-wait": Well,
		"restricted": Unknown, "api-server-unreachable": Unknown,
	}
	for name, page := range pages {
		expected := want[name]
		if expected == "" {
			expected = Trouble
		}
		if got := Look(page()).Verdict; got != expected {
			t.Errorf("%s: %s, want %s", name, got, expected)
		}
	}
}

// The advice mentions the previous revision only if there is one.
func TestAdviceForADeniedTemplate(t *testing.T) {
	for want, more := range map[string][]catalog.Cause{
		"Until then the pool starts no runners and accepts no jobs.": nil,
		"The previous revision stays in force.":                      {catalog.PreviousRevision.With("linux-1")},
	} {
		s := calm(1)
		setCauses(&s.Pools[0], v1alpha1.ReadyCondition, append([]catalog.Cause{catalog.PodDenied.With("spec.template.spec.hostPID: no")}, more...)...)
		if found := Look(s).Findings; len(found) != 1 || !strings.HasSuffix(found[0].Do, "allow it. "+want) {
			t.Errorf("%s: found %+v", want, found)
		}
	}
}

// If a rule limits max, raising spec.scale.max has no effect. The advice therefore depends on the pool.
func TestAdviceForAFullPool(t *testing.T) {
	s := calm(2)
	full := func(p *v1alpha1.RunnerPoolStatus) {
		p.Jobs, p.JobsWaiting, p.Runners = new(int32(10)), 4, v1alpha1.RunnerCounts{Total: 10, Busy: 10}
		setCondition(&p.Conditions, v1alpha1.SaturatedCondition, metav1.ConditionTrue, v1alpha1.MaxReachedReason, "the pool runs the maximum of 10 jobs and more jobs wait")
	}
	advises := func(want string) {
		t.Helper()
		if found := Look(s).Findings; len(found) != 1 || found[0].Do != want {
			t.Errorf("want %q, found %+v", want, found)
		}
	}
	full(&s.Pools[0].Status)
	advises("Raise spec.scale.max (now 10), or wait. Jobs and idle runners together need 15.")
	s.Pools[0].Status.Decision.Limits.Bounds = []v1alpha1.LimitBound{
		{Field: "idle", Declared: 2, Value: 1, Rule: v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/limits", Name: "corral.scaling.limit"}},
		{Field: "max", Declared: 20, Value: 10, Rule: v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/limits", Name: "corral.scaling.limit"}},
	}
	advises("Raising spec.scale.max above 10 has no effect, because the rule RunnerPolicy/ci/limits corral.scaling.limit limits it. Change the rule, or ask its owner, or wait.")
	full(&s.Pools[1].Status)
	advises("Raise max in spec.scale, in a schedule or in a policy, or wait. corral explain pool/NAME shows which max applies.")
}

// Each job is counted as waiting for one cause only, and never for a policy whose last decision is still in force.
func TestJobsWaitOnlyForCausesThatStopThem(t *testing.T) {
	for reason, want := range map[string]int32{v1alpha1.PolicyFailedReason: 0, v1alpha1.RolledBackReason: 0, v1alpha1.PolicyPendingReason: 3} {
		s := calm(1)
		p := &s.Pools[0].Status
		p.Jobs = new(int32(5))
		setNotReady(&p.Conditions, v1alpha1.RunnersFailingReason, "3 runners in a row failed")
		setCondition(&p.Conditions, v1alpha1.PolicyCondition, metav1.ConditionFalse, reason, "limits.rego:3")
		setNotReady(&s.Policies[0].Status.Conditions, v1alpha1.PolicyInvalidReason, "limits.rego:3")
		for _, f := range Look(s).Findings {
			isFailing := f.Reason == v1alpha1.RunnersFailingReason
			if isFailing && f.Hurts.Jobs != 3 || !isFailing && f.Hurts.Pools > 0 && f.Hurts.Jobs != want {
				t.Errorf("%s: %s hurts %+v", reason, f.Reason, f.Hurts)
			}
		}
	}
}

// If no revision was ever applied, the advice does not claim that one keeps running.
func TestAdviceForASourceWithoutAnAppliedRevision(t *testing.T) {
	for applied, want := range map[string]bool{"main@sha1:1234": true, "": false} {
		s := calm(1)
		s.Sources[0].Status.LastAppliedRevision = applied
		setCauses(&s.Sources[0], v1alpha1.ReadyCondition, catalog.FolderMissing.With("there is no folder \"pool\" to compile"))
		if found := Look(s).Findings; len(found) != 1 || strings.Contains(found[0].Do, "stays in force") != want {
			t.Errorf("%q: found %+v", applied, found)
		}
	}
}

// If the compiler did not finish, the finding does not blame the definitions.
func TestUnfinishedCompilationIsNotABrokenDefinition(t *testing.T) {
	s := calm(1)
	setCauses(&s.Sources[0], v1alpha1.ReadyCondition, catalog.CompilerFailed.With("main@sha1:1").Detailed("too little CPU time"))
	if found := Look(s).Findings; len(found) != 1 || found[0].What != "definitions are not compiled yet" {
		t.Errorf("found %+v", found)
	}
}

// The same denied template in several pools is one finding, although each pool keeps a different revision.
func TestPoolsWithTheSameDeniedTemplateAreOneFinding(t *testing.T) {
	s := calm(2)
	for i := range s.Pools {
		p := &s.Pools[i]
		setCauses(p, v1alpha1.ReadyCondition, catalog.PodRefused.With().Detailed("spec.template: no"), catalog.PreviousRevision.With([]string{"arm", "amd"}[i]+"-ec565b8037"))
	}
	found := Look(s).Findings
	if len(found) != 1 || found[0].Message != "the previous revision stays in force: spec.template: no" || found[0].Hurts.Pools != 2 {
		t.Errorf("found %+v", found)
	}
}

// The message and the last failure of a finding come from the same pool: the pool that failed last.
func TestAFindingOfSeveralPoolsShowsTheLatestFailure(t *testing.T) {
	s := calm(3)
	for i := range s.Pools {
		p := &s.Pools[i]
		setCauses(p, v1alpha1.HealthyCondition, catalog.CircuitOpen.With(i+3, v1alpha1.CauseCrash).Detailed("Error (exit code 1)"))
		last := ago(time.Hour)
		if i == 1 {
			last = ago(time.Minute)
		}
		p.Status.Failures = []v1alpha1.RunnerFailure{{Runner: p.Name + "-7", Time: last, Cause: v1alpha1.CauseCrash}}
	}
	found := Look(s).Findings
	if len(found) != 1 || found[0].LastFailure.Runner != "linux-02-7" || !strings.HasPrefix(found[0].Message, "4 runners in a row failed") {
		t.Errorf("found %+v", found)
	}
}

// Changes lists the problems that began and ended, and nothing if the status is unchanged.
func TestChanges(t *testing.T) {
	before, after := Look(calm(3)), Look(pages["credentials-refused"]())
	if lines := after.Changes(&after); len(lines) != 0 {
		t.Errorf("got the changes %q without a change", lines)
	}
	began, over := after.Changes(&before), before.Changes(&after)
	if len(began) != 1 || !strings.HasPrefix(began[0], "ERROR GitHub refuses the credentials: 1 connection, 3 pools") {
		t.Errorf("the problem began with %q", began)
	}
	if len(over) != 1 || !strings.HasPrefix(over[0], "RESOLVED GitHub refuses the credentials") {
		t.Errorf("the problem ended with %q", over)
	}
}

// Condition times come from the controller's clock, which may be ahead. A condition that begins in the future is reported
// as a problem if it is far ahead.
func TestConditionsThatBeginInTheFuture(t *testing.T) {
	for begins, want := range map[time.Duration]Verdict{-time.Hour: Trouble, -time.Second: Well} {
		s := calm(1)
		setConditionSince(&s.Pools[0].Status.Conditions, begins, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.SessionRefusedReason, "wait")
		if page := Look(s); page.Verdict != want {
			t.Errorf("%s ago: %s", begins, page.Text())
		}
	}
}

// If the cluster is unreachable, no problem is reported as resolved.
func TestUnreadableProblemsAreNotResolved(t *testing.T) {
	trouble, lost := Look(pages["credentials-refused"]()), Look(pages["api-server-unreachable"]())
	if lines := lost.Changes(&trouble); len(lines) != 1 || !strings.HasPrefix(lines[0], "NOT CHECKED RunnerPools") {
		t.Errorf("the lost connection to the cluster was reported as %q", lines)
	}
	lost.Keep(&trouble)
	still := Look(pages["api-server-unreachable"]())
	if lines := still.Changes(&lost); len(lines) != 0 {
		t.Errorf("got the changes %q without a change", lines)
	}
	still.Keep(&lost)
	back, well := Look(pages["credentials-refused"]()), Look(calm(3))
	if lines := back.Changes(&still); len(lines) != 1 || !strings.HasPrefix(lines[0], "CHECKED AGAIN RunnerPools") {
		t.Errorf("the return of the problem was reported as %q", lines)
	}
	if lines := well.Changes(&still); len(lines) != 2 || !strings.HasPrefix(lines[0], "RESOLVED GitHub refuses the credentials") {
		t.Errorf("the recovery was reported as %q", lines)
	}
}

// constants returns the string constants in a file of the API whose names have the given suffix, by name.
func constants(t *testing.T, file, suffix string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../apis/v1alpha1", file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if literal, isLiteral := spec.Values[i].(*ast.BasicLit); isLiteral && strings.HasSuffix(name.Name, suffix) {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[name.Name] = value
			}
		}
		return true
	})
	if len(found) == 0 {
		t.Fatalf("%s has no constants that end in %s", file, suffix)
	}
	return found
}

// docs/spec/conditions.md lists each condition of a pool with the status that indicates a problem.
func TestDocsStateTheProblemStatusOfConditions(t *testing.T) {
	page, err := os.ReadFile("../../docs/spec/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conditionsOfPools {
		if row := fmt.Sprintf("| RunnerPool | `%s` | %s", c.name, c.problem); !strings.Contains(string(page), row) {
			t.Errorf("docs/spec/conditions.md has no row %q", row)
		}
	}
}

func TestEachReasonHasASeverityAndARemedy(t *testing.T) {
	reasons := constants(t, "conditions.go", "Reason")
	known := map[string]bool{string(v1alpha1.RunnerFinished): true, string(v1alpha1.RunnerFailed): true}
	for name, reason := range reasons {
		known[reason] = true
		row := catalog.Of(reason)
		switch {
		case row.Title == reason:
			t.Errorf("the catalog has no row for the reason %s (%s)", reason, name)
		case !catalog.IsFine(reason) && (row.Title == "" || row.Severity == "" || row.Remedy == ""):
			t.Errorf("the reason %s has the row %+v", reason, row)
		}
	}
	for _, row := range catalog.Rows() {
		if row.Reason != "" && !known[row.Reason] && row.Role != catalog.Finding {
			t.Errorf("the row %s has the reason %s, which the API does not define", row.Code, row.Reason)
		}
	}
}

func TestStatusReportsEachCondition(t *testing.T) {
	reported := map[string]bool{
		v1alpha1.ReadyCondition: true, v1alpha1.ListeningCondition: true, v1alpha1.LabelsAcceptedCondition: true,
		v1alpha1.ReconcilingCondition: true, v1alpha1.StalledCondition: true, // these repeat Ready
	}
	for _, c := range conditionsOfPools {
		reported[c.name] = true
	}
	for name, condition := range constants(t, "conditions.go", "Condition") {
		if !reported[condition] {
			t.Errorf("corral status ignores the condition %s (%s)", condition, name)
		}
	}
}

func TestEachRunnerCauseHasARemedy(t *testing.T) {
	for _, cause := range []v1alpha1.RunnerCause{
		v1alpha1.CauseUnschedulable, v1alpha1.CauseQuota, v1alpha1.CauseRefused, v1alpha1.CauseImagePull, v1alpha1.CauseConfig, v1alpha1.CauseCrash,
		v1alpha1.CauseOutdated, v1alpha1.CauseNeverConnected, v1alpha1.CauseGitHub, v1alpha1.CauseCache, v1alpha1.CauseSlow,
	} {
		if CauseRemedy(cause) == "" {
			t.Errorf("the cause %s has no remedy", cause)
		}
	}
}

// The work grows linearly with the number of runners. Unlike a time limit, the number of allocations per runner does not
// depend on the machine.
func TestAllocationsPerRunnerAreBounded(t *testing.T) {
	s := calm(300)
	for i := range s.Pools {
		setNotReady(&s.Pools[i].Status.Conditions, v1alpha1.RunnersFailingReason, fmt.Sprintf("3 runners in a row failed (Crash: pod %d)", i))
		for j := range 30 {
			s.addRunner(fmt.Sprintf("r-%d-%d", i, j), s.Pools[i].Name, v1alpha1.RunnerFailed, v1alpha1.CauseCrash, fmt.Sprintf("exit code %d", j))
		}
	}
	page := Page{}
	perRunner := testing.AllocsPerRun(1, func() { page = Look(s) }) / (300 * 30)
	if len(page.Findings) != 1 || page.Findings[0].Hurts.Pools != 300 || page.Findings[0].Hurts.Runners != 9000 || page.Findings[0].More != 9280 {
		t.Errorf("got %+v", page.Findings)
	}
	if perRunner > 60 {
		t.Errorf("got %.0f allocations per runner, want at most 60", perRunner)
	}
}

// Findings are grouped by typed causes. Another wording of the catalog must not change the groups.
func TestGroupsDoNotDependOnTheWording(t *testing.T) {
	brief := func(p Page) (all []string) {
		for i := range p.Findings {
			f := &p.Findings[i]
			all = append(all, fmt.Sprint(f.Severity, f.Reason, f.Since, f.By, f.Next, f.Hurts, f.Objects, f.More))
		}
		slices.Sort(all)
		return all
	}
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			before := brief(Look(page()))
			reword.All(t)
			if after := brief(Look(page())); !slices.Equal(before, after) {
				t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}

// The totals count the remaining runners of a deleted pool in their states. If the pools could not be read, it is unknown
// which pools were deleted.
func TestTotalsOfRunnersWithoutAPool(t *testing.T) {
	for name, tc := range map[string]struct {
		unseen []Unseen
		want   v1alpha1.RunnerCounts
		jobs   int32
	}{
		"deleted": {nil, v1alpha1.RunnerCounts{Total: 3, Pending: 1, Idle: 1, Busy: 1}, 1},
		"unread":  {[]Unseen{{What: poolsRead, Why: "forbidden"}}, v1alpha1.RunnerCounts{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm(0)
			s.Unseen = tc.unseen
			for i, state := range []v1alpha1.RunnerState{v1alpha1.RunnerBusy, v1alpha1.RunnerIdle, v1alpha1.RunnerPending} {
				s.addRunner(fmt.Sprintf("deleted-%d", i), "deleted", state, "", "")
				r := &s.Runners[i]
				r.DeletionTimestamp, r.OwnerReferences = new(ago(time.Minute)), []metav1.OwnerReference{{Kind: "RunnerPool", Name: "deleted", UID: "ci-deleted", Controller: new(true)}}
			}
			got := Look(s).Totals
			if diff := cmp.Diff(tc.want, got.Runners); diff != "" || got.Jobs != tc.jobs {
				t.Errorf("%d jobs, runners (-want +got):\n%s", got.Jobs, diff)
			}
		})
	}
}

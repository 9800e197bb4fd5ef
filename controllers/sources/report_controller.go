// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// reportsAtOnce is the number of concurrent reports. The sources of one namespace use at most a quarter of it.
	reportsAtOnce = 16
	// reportRetry is the delay before a report that waits for a connection is retried, and refusedRetry the delay after a
	// refusal by GitHub, which an administrator must fix first.
	reportRetry, refusedRetry = 30 * time.Second, 10 * time.Minute
	// reportBurst is the number of outcomes of one revision that are reported without a delay. The next one waits for
	// reportDelay, and the delay doubles with each further one up to maxReportDelay, because GitHub accepts only a thousand
	// statuses per commit.
	reportBurst, reportDelay, maxReportDelay = 3, 30 * time.Second, time.Hour
	// maxNoted is the maximum size of the message about a refusal in the status, in bytes.
	maxNoted = 1000
)

// Commits reports the results of commits; *rest.Client implements it.
type Commits interface {
	ReportCommit(ctx context.Context, repository, sha string, report rest.CommitReport) error
}

// CommitStatusReporter reports the results of revisions to GitHub, for sources with spec.commitStatus. It reads the result
// from the status of a source, and records in the status why a report failed. So the reconciliation of a source never waits
// for GitHub. A restart repeats no reports, because the client first reads the reports that GitHub has.
type CommitStatusReporter struct {
	sources *Reconciler
	gitHub  func(connection types.NamespacedName) (Commits, bool)
	cluster string
	now     func() time.Time

	last sync.Map // of types.NamespacedName to lastReport
}

// NewCommitStatusReporter returns a reporter for the sources of a reconciler. gitHub returns the client of a connection,
// and false while there is none. Reports name the cluster.
func NewCommitStatusReporter(sources *Reconciler, gitHub func(connection types.NamespacedName) (Commits, bool), cluster string, now func() time.Time) *CommitStatusReporter {
	sources.keepsDiagnoses = true
	return &CommitStatusReporter{sources: sources, gitHub: gitHub, cluster: cluster, now: now}
}

// lastReport is the last report about a source.
type lastReport struct {
	revision, id string
	at           time.Time
	times        int    // number of reports about this revision
	refused      string // the refusal that the last event reported
}

// SetupWithManager watches the status of sources.
func (r *CommitStatusReporter) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("poolsource-report").
		For(&v1alpha1.PoolSource{}).
		WithOptions(kube.Fair(reportsAtOnce, tenant)).
		Complete(r)
}

// Reconcile reports the last attempted revision of one source, once per outcome.
func (r *CommitStatusReporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	source := &v1alpha1.PoolSource{}
	if err := r.sources.Client.Get(ctx, req.NamespacedName, source); err != nil {
		if apierrors.IsNotFound(err) {
			r.last.Delete(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	v, known := revisionStateOf(source)
	if source.Spec.CommitStatus == nil {
		return ctrl.Result{}, r.note(ctx, source, "")
	}
	if source.Spec.Suspend || !source.DeletionTimestamp.IsZero() || !known {
		return ctrl.Result{}, nil
	}
	last := r.lastOf(req.NamespacedName)
	if last.id == v.id {
		return ctrl.Result{}, r.note(ctx, source, "")
	}
	if wait := last.wait(v, r.now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	err := r.report(ctx, source, v)
	if err == nil {
		reportsTotal.WithLabelValues("sent").Inc()
		r.last.Store(req.NamespacedName, last.next(v, r.now()))
		return ctrl.Result{}, r.note(ctx, source, "")
	}
	return r.failed(ctx, source, v, err)
}

// errNotYet means that a report must wait for an object in this cluster. The object's own status reports the problem.
var errNotYet = errors.New("not yet")

func (r *CommitStatusReporter) report(ctx context.Context, source *v1alpha1.PoolSource, v revisionState) error {
	repository, err := r.repository(ctx, source)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: source.Namespace, Name: source.Spec.CommitStatus.ConnectionRef.Name}
	connection := &v1alpha1.GitHubConnection{}
	if err := r.sources.Client.Get(ctx, key, connection); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%w: reading GitHubConnection %s: %w", errNotYet, key.Name, err)
	} else if err != nil {
		return fmt.Errorf("GitHubConnection %s doesn't exist", key.Name)
	}
	name, err := repositoryOf(repository, connection.Spec.URL)
	if err != nil {
		return err
	}
	gh, serving := r.gitHub(key)
	if !serving {
		return fmt.Errorf("%w: GitHubConnection %s is not in use", errNotYet, key.Name)
	}
	if all := r.sources.diagnosticsOf(client.ObjectKeyFromObject(source), v.revision); len(v.diagnostics) > 0 && len(all) > 0 {
		v.diagnostics = all
	}
	return gh.ReportCommit(github.InFlow(ctx, source.Namespace+"/"+source.Name), name, v.commit, v.report(source, r.cluster))
}

// repository returns the URL of the repository that a source reads.
func (r *CommitStatusReporter) repository(ctx context.Context, source *v1alpha1.PoolSource) (string, error) {
	if source.Spec.Git != nil {
		return source.Spec.Git.URL, nil
	}
	from := originOf(source)
	if from.kind != v1alpha1.GitRepositoryKind {
		return "", fmt.Errorf("%s is no Git repository whose URL is known; only revisions of spec.git and of a GitRepository have a commit status", from)
	}
	object := &sourcev1.GitRepository{}
	if err := r.sources.Live.Get(ctx, from.key, object); err != nil {
		return "", fmt.Errorf("%w: reading %s: %w", errNotYet, from, err)
	}
	return object.Spec.URL, nil
}

// failed schedules a retry. If the error is a refusal, it records the refusal in the status, and emits an event if the
// refusal is new.
func (r *CommitStatusReporter) failed(ctx context.Context, source *v1alpha1.PoolSource, v revisionState, err error) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err()
	}
	if errors.Is(err, errNotYet) {
		return ctrl.Result{RequeueAfter: reportRetry}, nil
	}
	if after, away := github.ComeBack(err); away {
		reportsTotal.WithLabelValues("delayed").Inc()
		return ctrl.Result{RequeueAfter: max(after, reportRetry)}, nil
	}
	reportsTotal.WithLabelValues("refused").Inc()
	key, last, message := client.ObjectKeyFromObject(source), r.lastOf(client.ObjectKeyFromObject(source)), github.Summary(err)
	if was := source.Status.CommitStatus; was != nil { // an earlier process may have emitted the event
		last.refused = cmp.Or(last.refused, was.Message)
	}
	if withoutCommit(last.refused) != withoutCommit(message) {
		r.sources.Event(source, corev1.EventTypeWarning, v1alpha1.CommitStatusFailedReason, fmt.Sprintf("cannot report the outcome of revision %s: %s", v.revision, message))
		kube.Warn(ctx, "Setting the commit status of a revision failed", "reason", v1alpha1.CommitStatusFailedReason, "revision", v.revision, "message", message)
	}
	last.refused = message
	r.last.Store(key, last)
	return ctrl.Result{RequeueAfter: refusedRetry}, r.note(ctx, source, message)
}

// ofCommit matches the part of a refusal that names the commit. Refusals that only differ there have the same cause.
var ofCommit = regexp.MustCompile(`commit [0-9a-f]{7} `)

// withoutCommit returns a refusal without its commit.
func withoutCommit(refusal string) string { return ofCommit.ReplaceAllString(refusal, "") }

// note records in a source's status why a report failed. If refusal is "", it removes the record. It changes no other
// fields, because the Reconciler may be writing them.
func (r *CommitStatusReporter) note(ctx context.Context, source *v1alpha1.PoolSource, refusal string) error {
	was, is := source.Status.CommitStatus, (*v1alpha1.CommitStatusFailure)(nil)
	if refusal != "" {
		is = &v1alpha1.CommitStatusFailure{Message: wording.Truncate(refusal, maxNoted), Since: metav1.Time{Time: r.now()}}
		if was != nil {
			is.Since = was.Since
		}
	}
	if equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	changed := source.DeepCopy()
	changed.Status.CommitStatus = is
	if err := r.sources.Client.Status().Patch(ctx, changed, client.MergeFrom(source)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording the result of the commit status: %w", err)
	}
	return nil
}

func (r *CommitStatusReporter) lastOf(key types.NamespacedName) lastReport {
	known, _ := r.last.Load(key)
	last, _ := known.(lastReport)
	return last
}

// wait returns how long to delay a report, because the outcome of the revision has changed often.
func (t lastReport) wait(v revisionState, now time.Time) time.Duration {
	if t.revision != v.revision || t.times < reportBurst {
		return 0
	}
	return min(maxReportDelay, reportDelay<<min(t.times-reportBurst, 10)) - now.Sub(t.at)
}

func (t lastReport) next(v revisionState, now time.Time) lastReport {
	next := lastReport{revision: v.revision, id: v.id, at: now, times: 1}
	if t.revision == v.revision {
		next.times = t.times + 1
	}
	return next
}

// diagnosis identifies a revision whose diagnostics are in the cache of compiled revisions.
type diagnosis struct {
	revision string
	key      cacheKey
}

// keepDiagnostics remembers, for the CommitStatusReporter, the cache key of a revision's diagnostics, because the status may
// not contain all of them. They remain in the cache of compiled revisions, as part of the namespace's space. If the cache
// has dropped them, the reporter uses the diagnostics in the status.
func (r *Reconciler) keepDiagnostics(source *v1alpha1.PoolSource, rev revision, outcome error) {
	key := client.ObjectKeyFromObject(source)
	r.diagnoses.Delete(key)
	if !r.keepsDiagnoses || source.Spec.CommitStatus == nil || kube.ReasonOf(outcome, "") != v1alpha1.BuildFailedReason {
		return
	}
	r.diagnoses.Store(key, diagnosis{revision: rev.name, key: cacheKeyOf(source, rev)})
}

// diagnosticsOf returns all diagnostics of a revision, if they are known.
func (r *Reconciler) diagnosticsOf(key types.NamespacedName, revision string) []v1alpha1.Diagnostic {
	kept, ok := r.diagnoses.Load(key)
	if !ok || kept.(diagnosis).revision != revision {
		return nil
	}
	result, _ := r.compiled.get(key.Namespace, kept.(diagnosis).key)
	return result.Diagnostics
}

var reportsTotal = meter.CountersOf("corral_source_reports_total",
	"Reports of revisions to GitHub, by result: sent, delayed because GitHub is unavailable, or refused.",
	"outcome", "sent", "delayed", "refused")

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
)

const (
	// reportsAtOnce is how many sources are told of at once; those of one namespace take a quarter of it at most.
	reportsAtOnce = 16
	// reportRetry is how soon a report is tried again that waits for a connection, or that GitHub refused: somebody has to
	// grant something first.
	reportRetry, refusedRetry = 30 * time.Second, 10 * time.Minute
	// freely is how many outcomes of one revision are told at once; others wait, twice as long each time, as GitHub takes a
	// thousand statuses of a commit.
	freely, patience, mostPatience = 3, 30 * time.Second, time.Hour
)

// Commits tells GitHub how commits fared; *rest.Client does.
type Commits interface {
	ReportCommit(ctx context.Context, repository, sha string, report rest.CommitReport) error
}

// Teller tells GitHub what became of the revisions of sources that ask for it. It reads what the status of a source says, so that
// no source waits for GitHub, and a restart forgets nothing: GitHub is asked what it knows before it is told.
type Teller struct {
	kube.Reporter
	// Live reads what Flux names as the repository.
	Live client.Reader
	// GitHub returns the client of a connection; false while it has none.
	GitHub func(connection types.NamespacedName) (Commits, bool)
	// Cluster is named in what is told.
	Cluster string
	// Sources knows all diagnostics of a revision, of which the status has the first; may be nil.
	Sources *Reconciler
	Now     func() time.Time

	mu   sync.Mutex
	told map[types.NamespacedName]telling
}

// telling is what was told of a source last.
type telling struct {
	revision, id string
	at           time.Time
	times        int    // of this revision
	refused      string // what was said of it when it could not be told
}

// SetupWithManager watches what becomes of sources.
func (r *Teller) SetupWithManager(mgr ctrl.Manager) error {
	if r.Sources != nil {
		r.Sources.isTold = true
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("poolsource-report").
		For(&v1alpha1.PoolSource{}).
		WithOptions(kube.Fair(reportsAtOnce, tenant)).
		Complete(r)
}

// Reconcile tells what is to be told of one source.
func (r *Teller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	source := &v1alpha1.PoolSource{}
	if err := r.Client.Get(ctx, req.NamespacedName, source); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	v, known := verdictOf(source)
	if source.Spec.CommitStatus == nil || source.Spec.Suspend || !source.DeletionTimestamp.IsZero() || !known {
		return ctrl.Result{}, nil
	}
	last := r.last(req.NamespacedName)
	if last.id == v.id {
		return ctrl.Result{}, nil
	}
	if wait := last.wait(v, r.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	err := r.tell(ctx, source, v)
	if err == nil {
		reportsTotal.WithLabelValues("told").Inc()
		r.remember(req.NamespacedName, last.next(v, r.Now()))
		return ctrl.Result{}, nil
	}
	return r.failed(ctx, source, v, err)
}

// errNotYet waits for something of this cluster, whose own status says what it lacks.
var errNotYet = errors.New("not yet")

func (r *Teller) tell(ctx context.Context, source *v1alpha1.PoolSource, v verdict) error {
	repository, err := r.repository(ctx, source)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: source.Namespace, Name: source.Spec.CommitStatus.ConnectionRef.Name}
	connection := &v1alpha1.GitHubConnection{}
	if err := r.Client.Get(ctx, key, connection); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%w: reading GitHubConnection %s: %w", errNotYet, key.Name, err)
	} else if err != nil {
		return fmt.Errorf("GitHubConnection %s is not there", key.Name)
	}
	name, err := repositoryOf(repository, connection.Spec.URL)
	if err != nil {
		return err
	}
	gh, serving := r.GitHub(key)
	if !serving {
		return fmt.Errorf("%w: GitHubConnection %s is not in use", errNotYet, key.Name)
	}
	if all := r.Sources.diagnosticsOf(client.ObjectKeyFromObject(source), v.revision); len(v.diagnostics) > 0 && len(all) > 0 {
		v.diagnostics = all
	}
	return gh.ReportCommit(github.InFlow(ctx, source.Namespace+"/"+source.Name), name, v.commit, v.report(source, r.Cluster))
}

// repository is the URL of what a source reads.
func (r *Teller) repository(ctx context.Context, source *v1alpha1.PoolSource) (string, error) {
	if source.Spec.Git != nil {
		return source.Spec.Git.URL, nil
	}
	from := originOf(source)
	if from.kind != v1alpha1.GitRepositoryKind {
		return "", fmt.Errorf("%s is no Git repository whose URL is known; only spec.git and a GitRepository are told of", from)
	}
	object := &sourcev1.GitRepository{}
	if err := r.Live.Get(ctx, from.key, object); err != nil {
		return "", fmt.Errorf("%w: reading %s: %w", errNotYet, from, err)
	}
	return object.Spec.URL, nil
}

// failed tries again when it may help, and says once what it needs.
func (r *Teller) failed(ctx context.Context, source *v1alpha1.PoolSource, v verdict, err error) (ctrl.Result, error) {
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
	key := client.ObjectKeyFromObject(source)
	last := r.last(key)
	if last.refused != err.Error() {
		r.Event(source, corev1.EventTypeWarning, v1alpha1.CommitStatusFailedReason, fmt.Sprintf("Telling GitHub of revision %s: %s", v.revision, err))
		last.refused = err.Error()
		r.remember(key, last)
	}
	return ctrl.Result{RequeueAfter: refusedRetry}, nil
}

func (r *Teller) last(key types.NamespacedName) telling {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[key]
}

func (r *Teller) remember(key types.NamespacedName, t telling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[types.NamespacedName]telling{}
	}
	r.told[key] = t
}

func (r *Teller) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, key)
}

// wait is how long a revision whose outcome changes again and again has to wait.
func (t telling) wait(v verdict, now time.Time) time.Duration {
	if t.revision != v.revision || t.times < freely {
		return 0
	}
	return min(mostPatience, patience<<min(t.times-freely, 10)) - now.Sub(t.at)
}

func (t telling) next(v verdict, now time.Time) telling {
	next := telling{revision: v.revision, id: v.id, at: now, times: 1}
	if t.revision == v.revision {
		next.times = t.times + 1
	}
	return next
}

// diagnosis is all that is wrong with a revision.
type diagnosis struct {
	revision    string
	diagnostics []v1alpha1.Diagnostic
}

// keepDiagnostics keeps what the status has no room for, for who tells of it.
func (x *run) keepDiagnostics(outcome error) {
	key := x.sourceKey()
	x.diagnoses.Delete(key)
	if !x.isTold || x.source.Spec.CommitStatus == nil || kube.ReasonOf(outcome, "") != v1alpha1.BuildFailedReason {
		return
	}
	if result, ok := x.compiled.get(x.source.Namespace, x.cacheKey()); ok && len(result.Diagnostics) > maxStatusDiagnostics {
		x.diagnoses.Store(key, diagnosis{revision: x.revision, diagnostics: result.Diagnostics})
	}
}

// diagnosticsOf returns what keepDiagnostics kept of a revision.
func (r *Reconciler) diagnosticsOf(key types.NamespacedName, revision string) []v1alpha1.Diagnostic {
	if r == nil {
		return nil
	}
	if kept, ok := r.diagnoses.Load(key); ok && kept.(diagnosis).revision == revision {
		return kept.(diagnosis).diagnostics
	}
	return nil
}

var reportsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "corral_source_reports_total",
	Help: "Reports of revisions to GitHub, by how they ended: told, delayed because GitHub can't be asked now, or refused.",
}, []string{"outcome"})

func init() {
	for _, outcome := range []string{"told", "delayed", "refused"} {
		reportsTotal.WithLabelValues(outcome)
	}
}

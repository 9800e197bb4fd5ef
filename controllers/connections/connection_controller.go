// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package connections reconciles GitHubConnections: it reads their credentials, verifies them with GitHub, and provides the
// clients that all other controllers use.
package connections

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
)

const (
	// rereadInterval is how often credentials are read again, to notice a rotated Secret. Secrets are not watched, because
	// that requires the right to list them.
	rereadInterval = time.Minute
	// missingInterval is how often missing credentials are looked for: pools wait for them, and no watch reports the Secret.
	missingInterval = 10 * time.Second
	// verifyInterval is how often accepted or refused credentials are verified again.
	verifyInterval = 10 * time.Minute
	// retryMin and retryMax limit the back-off while GitHub is unavailable.
	retryMin = 15 * time.Second
	retryMax = 5 * time.Minute
	// refusalMin is the delay before the next verification after GitHub refused credentials, because a single refusal may be
	// GitHub's fault. It triples with each further refusal, up to verifyInterval.
	refusalMin = 5 * time.Second
)

// Verifier verifies the credentials of a connection, NAMESPACE/NAME, with GitHub; rest.Verify with its options implements
// it. Its errors are *rest.Error.
type Verifier func(ctx context.Context, connection string, creds github.Credentials) (rest.Identity, error)

// +kubebuilder:rbac:groups=corral.dev,resources=githubconnections,verbs=list;watch
// +kubebuilder:rbac:groups=corral.dev,resources=githubconnections/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets;configmaps,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles GitHubConnections.
type Reconciler struct {
	kube.Reporter
	// Secrets reads without a cache, so that the right to list Secrets is not needed.
	Secrets client.Reader
	// CredentialsDir contains the folders for spec.mount; empty if there are none.
	CredentialsDir string
	// Connections receives the credentials that GitHub accepted.
	Connections *github.Connections
	Verify      Verifier
	Probe       Prober
	Signatures  Signatures
	Now         func() time.Time

	mu       sync.Mutex
	verified map[types.NamespacedName]verification
}

// New returns a Reconciler. secrets reads without a cache. credentialsDir contains the folders for spec.mount, and is empty
// if there are none.
func New(report kube.Reporter, secrets client.Reader, known *github.Connections, verify Verifier, probe Prober, signatures Signatures, credentialsDir string, now func() time.Time) *Reconciler {
	return &Reconciler{Reporter: report, Secrets: secrets, Connections: known, Verify: verify, Probe: probe, Signatures: signatures, CredentialsDir: credentialsDir, Now: now}
}

// verification is GitHub's answer about credentials, and when to verify them again.
type verification struct {
	uid        types.UID
	generation int64
	hash       string
	request    string // reconcile.fluxcd.io/requestedAt
	identity   rest.Identity
	err        error
	failures   int // consecutive verifications without an answer from GitHub
	refusals   int // consecutive refusals of the credentials by GitHub
	at, next   time.Time

	probed  bool // whether GitHub's features were probed
	missing []v1alpha1.MissingFeature
	unknown error // error of probes without a result
}

// Key returns the registry key of a connection's client.
func Key(connection types.NamespacedName) string { return connection.String() }

// Reconcile keeps one connection verified:
//
//  1. credentials: read them
//  2. verify: ask GitHub about them, if something changed or the last answer is too old
//  3. use: accepted credentials become the client of all pools on the connection
//  4. missing features: find out, once, what GitHub does not support
//  5. webhook: check whether there is a secret for GitHub's events
//  6. trouble: report GitHub's answers to calls for the connection's pools
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	conn := &v1alpha1.GitHubConnection{}
	if err := r.Client.Get(ctx, req.NamespacedName, conn); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the connection: %w", err)
	} else if err != nil || !conn.DeletionTimestamp.IsZero() {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	attempt := r.Begin(conn)
	if err := kube.Unreadable(conn); err != nil {
		return attempt.Finish(ctx, kube.Done{}, err)
	}
	if request, ok := meta.ReconcileAnnotationValue(conn.Annotations); ok {
		conn.Status.SetLastHandledReconcileRequest(request)
	}
	conn.Status.MissingFeatures = withEvents(conn.Status.MissingFeatures, r.eventsRefused(ctx, conn)) // this does not depend on GitHub's answer about the credentials
	before := conn.Status.Identity
	done, err := r.reconcile(ctx, conn)
	done.News = before != "" && before != conn.Status.Identity
	if err == nil {
		err = r.trouble(conn)
	}
	conn.Status.Outage = OutageOf(err)
	if conn.Status.FormerCredentials {
		done.Unready, err = with(done.Unready, catalog.FormerCredentials.With()), kube.With(err, catalog.FormerCredentials.With())
	}
	return attempt.Finish(ctx, done, err)
}

func (r *Reconciler) reconcile(ctx context.Context, conn *v1alpha1.GitHubConnection) (kube.Done, error) {
	again := kube.Done{After: rereadInterval}
	creds, err := r.credentials(ctx, conn)
	if err == nil || kube.IsStalled(err) { // otherwise it is unknown whether the credentials changed
		serving := r.Connections.Serving(Key(client.ObjectKeyFromObject(conn)))
		conn.Status.FormerCredentials = serving != "" && serving != identify(creds)
	}
	if err != nil {
		return untilRead(err), err
	}
	known := conn.Status.CredentialsHash == creds.Hash() && conn.Status.NetworkHash == creds.NetworkHash()
	if conn.Spec.GetVerification() == v1alpha1.VerificationPaused {
		return r.paused(conn, creds, known)
	}
	if known && !r.Connections.Serves(Key(client.ObjectKeyFromObject(conn))) {
		// The credentials were verified before a restart. Pools must not wait until GitHub verifies them again.
		if err := r.use(conn, creds); err != nil {
			return again, err
		}
	}
	v := r.verify(ctx, conn, creds)
	if v.err != nil {
		again.After = min(rereadInterval, max(time.Second, v.next.Sub(r.Now())))
		return again, v.outcome(r.Now(), conn)
	}
	if err := r.use(conn, creds); err != nil {
		return again, err
	}
	conn.Status.Scope, conn.Status.Identity, conn.Status.ServerVersion = string(v.identity.Scope), v.identity.Login, v.identity.ServerVersion
	missing, probed := r.missingFeatures(ctx, conn, v)
	conn.Status.MissingFeatures, conn.Status.FeaturesProbe = withEvents(missing, conn.EventsRefused()), probed
	conn.Status.TokenExpires = nil
	if !v.identity.Expires.IsZero() {
		conn.Status.TokenExpires = &metav1.Time{Time: v.identity.Expires}
	}
	again.Message, again.Notes = fmt.Sprintf("connected to %s %s as %s", v.identity.Scope, conn.Spec.URL, v.identity.Login), r.notes(conn)
	return again, r.checkWebhook(ctx, conn)
}

// untilRead returns the delay before the next attempt to read credentials.
func untilRead(err error) kube.Done {
	if kube.ReasonOf(err, "") == v1alpha1.CredentialsMissingReason {
		return kube.Done{After: missingInterval}
	}
	return kube.Done{After: rereadInterval}
}

// paused keeps pools working with credentials that were verified earlier, and makes no requests.
func (r *Reconciler) paused(conn *v1alpha1.GitHubConnection, creds github.Credentials, known bool) (kube.Done, error) {
	done := kube.Done{After: rereadInterval, Message: "verification is paused; the credentials verified last stay in use"}
	if known {
		return done, r.use(conn, creds)
	}
	done.Unready = []catalog.Cause{catalog.VerificationPaused.With()}
	return done, nil
}

// use makes the client with these credentials available for the connection's pools. The previous client stays in use until
// then, so that new credentials that do not work break nothing.
func (r *Reconciler) use(conn *v1alpha1.GitHubConnection, creds github.Credentials) error {
	if err := r.Connections.Set(Key(client.ObjectKeyFromObject(conn)), creds); err != nil {
		return kube.Stall(catalog.CredentialsUnusable.With().Wrap(err))
	}
	conn.Status.CredentialsHash, conn.Status.NetworkHash, conn.Status.FormerCredentials = creds.Hash(), creds.NetworkHash(), false
	return nil
}

// verify returns GitHub's last answer. It asks again if anything changed, if the next verification is due, or if a later
// call contradicts the answer.
func (r *Reconciler) verify(ctx context.Context, conn *v1alpha1.GitHubConnection, creds github.Credentials) verification {
	key, now := client.ObjectKeyFromObject(conn), r.Now()
	r.mu.Lock()
	last, seen := r.verified[key]
	r.mu.Unlock()
	v := verification{uid: conn.UID, generation: conn.Generation, hash: identify(creds), request: conn.Annotations[meta.ReconcileRequestAnnotation]}
	same := seen && v.uid == last.uid && v.generation == last.generation && v.hash == last.hash && v.request == last.request
	if same && now.Before(last.next) && !r.contradicts(Key(key), last) {
		return last
	}
	v.at = now
	v.identity, v.err = r.Verify(ctx, Key(key), creds)
	v.next = now.Add(spread(verifyInterval))
	if same {
		v.failures, v.refusals = last.failures, last.refusals
	}
	v.pace()
	r.keep(key, v)
	return v
}

// contradicts reports whether a later call contradicts the last verification: GitHub refused credentials that it had
// accepted, or accepted credentials that it had refused.
func (r *Reconciler) contradicts(key string, last verification) bool {
	if last.refusals == 0 {
		return r.Connections.Refused(key).After(last.at)
	}
	accepted := r.Connections.Accepted(key)
	return r.Connections.Serving(key) == last.hash && accepted.After(last.at) && accepted.Sub(last.at) >= refusalMin
}

// pace counts consecutive failures and refusals, and delays the next verification accordingly.
func (v *verification) pace() {
	e := new(rest.Error)
	isKnown := errors.As(v.err, &e)
	switch {
	case isKnown && e.Reason == v1alpha1.GitHubUnavailableReason:
		v.next = v.at.Add(max(e.RetryAfter, spread(min(retryMax, retryMin<<min(v.failures, 8)))))
		v.failures, v.refusals = v.failures+1, 0
	case isKnown:
		v.next = v.at.Add(spread(refusalPause(v.refusals)))
		v.failures, v.refusals = 0, v.refusals+1
	default:
		v.failures, v.refusals = 0, 0
	}
}

// refusalPause returns the pause before the next verification, given the number of previous consecutive refusals.
func refusalPause(refusals int) time.Duration {
	pause := refusalMin
	for range refusals {
		pause = min(3*pause, verifyInterval)
	}
	return pause
}

// keep stores a verification until the next one.
func (r *Reconciler) keep(key types.NamespacedName, v verification) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verified == nil {
		r.verified = map[types.NamespacedName]verification{}
	}
	r.verified[key] = v
}

// outcome returns an outcome that waits if GitHub is unavailable, and a Stall if a user must change something. After a
// Stall, too, the credentials are verified again, because the user may make the change on GitHub.
func (v verification) outcome(now time.Time, conn *v1alpha1.GitHubConnection) error {
	e := new(rest.Error)
	if !errors.As(v.err, &e) {
		return fmt.Errorf("verifying the credentials: %w", v.err)
	}
	if e.Reason == v1alpha1.GitHubUnavailableReason {
		return unavailable(min(rereadInterval, max(time.Second, v.next.Sub(now))), unavailableBy(e.Code).With().Wrap(e), e.Code, v.next)
	}
	if conn.Spec.SecretRef != nil && e.Reason == v1alpha1.CredentialsRefusedReason {
		return kube.Stall(catalog.SecretRefusedByGitHub.With(conn.Spec.SecretRef.Name).Wrap(e))
	}
	return kube.Stall(catalog.Of(e.Reason).With().Wrap(e))
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.Connections.Drop(Key(key))
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.verified, key)
}

// spread returns 90 to 110 % of d, so that connections are not verified in step.
func spread(d time.Duration) time.Duration { return wait.Jitter(d*9/10, 2.0/9) }

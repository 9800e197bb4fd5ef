// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

const (
	// connectionRetry is the delay before the next attempt while the runner's connection or pool cannot be used.
	connectionRetry = 5 * time.Second
	// awayMin and awayMax limit the back-off while GitHub is unavailable.
	awayMin, awayMax = 500 * time.Millisecond, 30 * time.Second
	// awayLook is the maximum time between passes while GitHub asks clients to wait. These passes send no requests to
	// GitHub, but they check the runner's own deadline.
	awayLook = time.Minute
	// rightsRetry is the delay before the next attempt after GitHub refused the credentials or did not find the runner
	// group.
	rightsRetry = 15 * time.Second
	// registerRetry is the minimum delay before a new registration after the previous one was removed.
	registerRetry = time.Second
	// secretRetry is the delay before the next check of an unusable Secret, because Secrets are not watched.
	secretRetry = 15 * time.Second
)

// register ensures that the runner is registered on GitHub and that its JIT configuration is in its Secret. Normally, this
// takes one JIT call and one request that creates the Secret. The Secret is read only if an earlier attempt may have stored
// it.
func (p pass) register(ctx context.Context) error {
	if p.registrationID() != 0 || p.runner.Persists() && p.hasToken() {
		return nil
	}
	if p.pod != nil {
		return p.readSecret(ctx)
	}
	if err := p.Access.Check(ctx, p.connectionKey(), p.runner.Namespace); err != nil {
		return err
	}
	if err := p.checkPool(); err != nil {
		return err
	}
	gh, access := p.client(ctx)
	switch access {
	case moved:
		return kube.Wait(connectionRetry, catalog.ConnectionMoved.With(p.runner.Spec.ConnectionRef.Name, p.runner.Spec.REST.URL))
	case denied, notReady:
		return connections.NotReady(ctx, p.Client, p.connectionKey())
	}
	return p.registerBy(ctx, gh)
}

// registerBy registers the runner and stores its Secret. If the controller restarts while a pool has no runners, the pool
// uses the names of earlier runners again, and the Secret of an earlier runner may still exist. registerBy therefore looks
// for a Secret first, until this process has stored a Secret for the pool: from then on, the names are new.
func (p pass) registerBy(ctx context.Context, gh registrar) error {
	if !p.Memory.storedSecret(p.poolKey()) {
		if err := p.readSecret(ctx); !apierrors.IsNotFound(err) {
			return err
		}
	}
	if p.memory.unstored == nil {
		if err := p.clearName(ctx, gh); err != nil {
			return err
		}
		jit, err := gh.generate(ctx)
		switch {
		case github.IsRunnerExists(err):
			return p.reregister(ctx, gh)
		case err != nil:
			return p.githubOutcome(err)
		}
		p.memory.unstored, p.memory.registered = &jit, !p.runner.Persists()
		p.Memory.beginStart(p.memory, p.runner.Namespace)
	}
	return p.storeSecret(ctx, *p.memory.unstored, gh.network())
}

// checkPool returns nil if the runner matches its pool and the pool holds the runner's scale set. Otherwise anyone who can
// create Runners could register them on a connection shared with other teams.
func (p pass) checkPool() error {
	spec, pool := &p.runner.Spec, p.pool
	switch {
	case pool == nil || !pool.DeletionTimestamp.IsZero():
		return p.noPool()
	case spec.ConnectionRef.From(p.runner.Namespace) != pool.Spec.ConnectionRef.From(pool.Namespace),
		spec.REST != nil && (spec.REST.RunnerGroup != pool.Spec.GetRunnerGroup() || !slices.Equal(spec.REST.Labels, pool.GetMarkedLabels(p.Cluster))):
		return kube.Wait(connectionRetry, catalog.RegistrationOutdated.With(pool.Name))
	case p.runner.Persists() != pool.Spec.Persists():
		return kube.Wait(connectionRetry, catalog.LifetimeOutdated.With(pool.Name))
	case spec.REST == nil && !p.Sets.HoldsAny(p.poolKey()): // the pool's status shows the reason
		return kube.Starting(connectionRetry, catalog.PoolSessionPending.With(pool.Name))
	case spec.REST == nil && !p.Sets.Holds(p.poolKey(), p.connectionKey(), pool.UID, spec.ScaleSetID):
		return kube.Wait(connectionRetry, catalog.PoolSessionMissing.With(pool.Name, spec.ScaleSetID))
	}
	return nil
}

// noPool returns why a runner without a pool, or with a deleted pool, is not started. The garbage collector soon deletes a
// runner of a deleted pool.
func (p pass) noPool() error {
	owner := metav1.GetControllerOf(p.runner)
	if p.pool != nil || owner != nil && owner.Kind == "RunnerPool" && owner.Name == p.runner.Spec.PoolRef.Name {
		return kube.Progress(connectionRetry, catalog.PoolDeleted.With())
	}
	return kube.Wait(connectionRetry, catalog.RunnerForged.With(p.runner.Spec.PoolRef.Name))
}

// registrationID returns the ID of the runner's registration from its status, this process's memory or its pod, without any
// request; 0 if unknown.
func (p pass) registrationID() int64 {
	id := cmp.Or(p.runner.Status.RunnerID, p.memory.registration)
	if id == 0 && p.pod != nil {
		id = podspec.RegistrationOf(p.pod)
	}
	return id
}

// reregister handles a registration that already exists under the runner's name, because GitHub's answer to an earlier
// attempt, or the Secret, was lost. If the Secret exists, the registration is usable. Otherwise reregister removes the
// registration, so that the next attempt can create a new one under the same name.
func (p pass) reregister(ctx context.Context, gh registrar) error {
	if err := p.readSecret(ctx); !apierrors.IsNotFound(err) {
		return err
	}
	known, err := gh.find(ctx, 0)
	if err != nil {
		return p.githubOutcome(err)
	}
	if known != nil {
		if known.foreign != "" {
			return &conflictError{v1alpha1.CauseGitHub, fmt.Sprintf("a runner named %q is registered %s", p.runner.Name, known.foreign)}
		}
		if err := gh.remove(ctx, known.id); err != nil && !github.IsNotFound(err) {
			return p.githubOutcome(err)
		}
	}
	p.memory.refused++
	return kube.Progress(max(registerRetry, backoff(p.memory.refused)), catalog.RegisteringAgain.With())
}

// readSecret reads the registration's ID from the runner's Secret. For a persistent runner, it only records that the Secret
// exists.
func (p pass) readSecret(ctx context.Context) error {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: p.runner.Namespace, Name: podspec.SecretName(p.runner.Name)}
	if err := p.Live.Get(ctx, key, secret); err != nil {
		return fmt.Errorf("reading the registration: %w", err)
	}
	if !metav1.IsControlledBy(secret, p.runner) {
		return p.takenSecret(secret)
	}
	if p.runner.Persists() {
		p.memory.persistent.hasToken = true
		return nil
	}
	id, err := strconv.ParseInt(string(secret.Data[podspec.RunnerIDKey]), 10, 64)
	if err != nil {
		return kube.Wait(secretRetry, catalog.RunnerIDInvalid.With(secret.Name, podspec.RunnerIDKey).Wrap(err))
	}
	p.Memory.setRegistration(p.memory, id)
	return nil
}

// takenSecret returns the outcome if the Secret with the runner's name belongs to another object. Runner names repeat if
// the controller restarts while a pool has no runners, and the Secret of an earlier runner exists until the garbage
// collector deletes it. A runner without a pod fails, so that its pool replaces it with a runner that has another number.
func (p pass) takenSecret(secret *corev1.Secret) error {
	if p.pod != nil {
		return kube.Wait(secretRetry, catalog.SecretOfAnother.With(secret.Name))
	}
	of := "another object"
	if owner := metav1.GetControllerOf(secret); owner != nil && owner.Kind == "Runner" {
		of = "a previous runner that the garbage collector has not deleted yet"
	}
	return &conflictError{v1alpha1.CauseRemoved, fmt.Sprintf("Secret %q belongs to %s", secret.Name, of)}
}

// networkData returns the entries of a runner's Secret that contain the connection's network settings.
func networkData(n github.Network) map[string][]byte {
	data := map[string][]byte{v1alpha1.CAKey: n.CA}
	if n.RunnersUseProxy {
		data[podspec.HTTPProxyKey], data[podspec.HTTPSProxyKey], data[podspec.NoProxyKey] = []byte(n.HTTPProxy), []byte(n.HTTPSProxy), []byte(n.NoProxy)
	}
	maps.DeleteFunc(data, func(_ string, value []byte) bool { return len(value) == 0 })
	return data
}

func (p pass) storeSecret(ctx context.Context, jit github.JIT, network github.Network) error {
	data := networkData(network)
	if p.runner.Persists() {
		data[podspec.RegistrationTokenKey] = []byte(jit.Encoded)
	} else {
		data[podspec.JITKey], data[podspec.RunnerIDKey] = []byte(jit.Encoded), []byte(strconv.FormatInt(jit.RunnerID, 10))
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.runner.Namespace, Name: podspec.SecretName(p.runner.Name),
			Labels: podspec.Labels(p.identity(), p.pool.Spec.LabelsOfObjects()), Annotations: p.pool.Spec.AnnotationsOfObjects(),
		},
		Data: data,
	}
	if err := controllerutil.SetControllerReference(p.runner, secret, p.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of the registration's Secret: %w", err)
	}
	err := p.Client.Create(ctx, secret)
	switch {
	case apierrors.IsAlreadyExists(err): // an earlier attempt, whose answer was lost, created it
		return p.readSecret(ctx)
	case IsQuota(err):
		return kube.Wait(refusalRetry, catalog.SecretQuota.With().Wrap(err))
	case kube.IsRefused(err):
		return kube.Wait(refusalRetry, catalog.RegistrationSecretRefused.With().Wrap(err))
	case err != nil:
		return fmt.Errorf("creating the Secret of its registration: %w", err)
	case p.runner.Persists():
		p.memory.persistent.hasToken = true
	default:
		p.Memory.setRegistration(p.memory, jit.RunnerID)
	}
	p.memory.unstored = nil
	p.Memory.setStoredSecret(p.poolKey())
	return nil
}

func (p pass) identity() podspec.Runner {
	return podspec.Runner{
		Namespace: p.runner.Namespace, Name: p.runner.Name, UID: p.runner.UID,
		Pool: p.runner.Spec.PoolRef.Name, Revision: p.runner.Spec.Revision, ID: p.registrationID(), Self: podspec.RegistrationFor(p.runner),
	}
}

// verify checks the registration of a suspected runner, whose state on GitHub seems to differ from Corral's. GitHub removes
// an ephemeral runner when its job ends. So if GitHub has not known a busy runner for absentFor, the job has ended and its
// completion message was lost. An idle runner that GitHub does not know will never get a job. However, an idle runner
// without a scale set may have had a job that no event reported.
func (p pass) verify(ctx context.Context) error {
	key := client.ObjectKeyFromObject(p.runner)
	if err := p.awaitLook(); err != nil {
		return err
	}
	gh, access := p.client(ctx)
	if access != allowed || !p.Memory.popSuspicion(key) {
		return nil
	}
	err := p.lookUp(ctx, gh)
	if err != nil {
		p.Memory.suspectStill(key)
	}
	return err
}

// lookUp deletes a suspected Runner if GitHub has removed its registration or does not see it as connected. It deletes a
// Runner with a job only when the job cannot be running any more. A runner without a known job may have an unreported one,
// so finalize checks that before it deletes the pod.
func (p pass) lookUp(ctx context.Context, gh registrar) error {
	key := client.ObjectKeyFromObject(p.runner)
	known, err := gh.find(ctx, p.runner.Status.RunnerID)
	absent := err == nil && p.isAbsent(known)
	if absent && gh.check(ctx) != nil {
		p.memory.absence = absence{}
		return nil // this may not be the GitHub instance that the runner registered with
	}
	if !absent {
		p.memory.absence = absence{}
		if err != nil {
			return p.githubOutcome(err)
		}
		return p.judge(ctx, known)
	}
	hasJob := p.observe(nil).Job != nil
	if err := p.absent(hasJob && p.runs()); err != nil {
		return err
	}
	const why = "GitHub has forgotten its registration"
	switch {
	case p.runner.Persists(), !hasJob && p.runner.Spec.REST == nil: // GitHub does not remove the registration of a persistent runner after a job
		p.Memory.MarkFailed(key, p.runner.UID, poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: p.Now(), Cause: v1alpha1.CauseRemoved, Reason: why})
	case hasJob:
		p.Memory.recordCompletion(key, p.runner.UID, completion{at: p.Now()})
	}
	return p.Memory.end(ctx, p.Client, p.runner, why)
}

// githubOutcome converts an error of a call to GitHub into an outcome. The runner waits while GitHub is unavailable or asks
// clients to wait. It also waits while rights or the runner group are missing, until an administrator restores them. Other
// errors are retried with the work queue's back-off.
func (p pass) githubOutcome(err error) error {
	after, away := github.ComeBack(err)
	switch {
	case away:
		p.memory.refused++
		return kube.Wait(max(min(after, awayLook), backoff(p.memory.refused)), connections.Unavailable(err))
	case github.IsUnauthorized(err):
		return kube.Wait(rightsRetry, catalog.CredentialsRefused.With().Wrap(github.Summarize(err)))
	case github.IsForbidden(err):
		return kube.Wait(rightsRetry, catalog.PermissionMissing.With().Wrap(github.Summarize(err)))
	case github.IsRunnerGroupNotFound(err):
		return kube.Wait(rightsRetry, catalog.RunnerGroupNotFound.With().Wrap(github.Summarize(err)))
	}
	return answerError{github.Summary(err)} // without request IDs, because a message that changes each time would cause a status write each time
}

// answerError is an error answer from GitHub that is neither an outage nor a refusal.
type answerError struct{ summary string }

func (e answerError) Error() string { return e.summary }

// backoff returns the delay after a number of failed attempts: 500 ms, doubling up to 30 s, minus up to half of it so that
// runners do not retry in step.
func backoff(failures int) time.Duration {
	return wait.Jitter(min(awayMax, awayMin<<min(failures-1, 10))/2, 1)
}

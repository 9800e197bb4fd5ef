// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

const (
	// connectionRetry is the time to the next look for a connection that isn't there yet.
	connectionRetry = 5 * time.Second
	// awayMin and awayMax bound the back-off while GitHub is away.
	awayMin, awayMax = 500 * time.Millisecond, 30 * time.Second
	// awayLook is the longest time to the next look while GitHub asked to be left alone: it is not
	// called before its time, but the runner's own deadline goes on.
	awayLook = time.Minute
	// rightsRetry is the time to the next attempt after GitHub refused the credentials.
	rightsRetry = 15 * time.Second
	// registerRetry is the time to the next registration after one was removed.
	registerRetry = time.Second
)

// register makes sure that the runner is registered on GitHub and that its JIT
// configuration is in its Secret. The happy path is one JIT call and one create;
// a Secret is read only where something was lost on the way.
func (x *run) register(ctx context.Context) error {
	if x.recall() {
		return nil
	}
	if x.pod != nil {
		return x.recallSecret(ctx)
	}
	if err := x.Access.Check(ctx, x.connectionKey(), x.runner.Namespace); err != nil {
		return err
	}
	if err := x.belong(ctx); err != nil {
		return err
	}
	gh, ok := x.client(ctx)
	switch {
	case x.elsewhere:
		return kube.Wait(v1alpha1.ConnectionNotReadyReason, connectionRetry, "GitHubConnection %q isn't for %s any more", x.runner.Spec.ConnectionRef.Name, x.runner.Spec.REST.URL)
	case !ok:
		return connections.NotReady(ctx, x.Client, x.connectionKey())
	}
	jit, err := gh.generate(ctx)
	if err == nil {
		x.Notes.begin(x.note)
	}
	if github.IsRunnerExists(err) {
		return x.reregister(ctx, gh)
	}
	if err != nil {
		return x.githubOutcome(err)
	}
	return x.storeSecret(ctx, jit)
}

// belong returns nil if the runner is as its pool makes them, and the pool holds what it is to be registered with: whoever may write
// Runners must not register any on a connection that others use, too.
func (x *run) belong(ctx context.Context) error {
	pool, err := x.pool(ctx)
	switch spec := &x.runner.Spec; {
	case err != nil:
		return err
	case pool == nil || !pool.DeletionTimestamp.IsZero():
		return x.stranger()
	case spec.ConnectionRef.From(x.runner.Namespace) != pool.Spec.ConnectionRef.From(pool.Namespace),
		spec.REST != nil && (spec.REST.RunnerGroup != pool.Spec.GetRunnerGroup() || !slices.Equal(spec.REST.Labels, pool.GetMarkedLabels(x.Cluster))):
		return kube.Wait(v1alpha1.InvalidSpecReason, connectionRetry, "RunnerPool %q has another connection, runner group or labels by now", pool.Name)
	case spec.REST == nil && !x.Sets.Holds(x.poolKey(), x.connectionKey(), pool.UID, spec.ScaleSetID):
		return kube.Wait(v1alpha1.ProgressingReason, connectionRetry, "RunnerPool %q doesn't hold the session of scale set %d", pool.Name, spec.ScaleSetID)
	}
	return nil
}

// stranger is why a runner gets nothing that no pool made.
func (x *run) stranger() error {
	return kube.Wait(v1alpha1.InvalidSpecReason, connectionRetry, "there is no RunnerPool %q that made the runner", x.runner.Spec.PoolRef.Name)
}

// recall finds the registration without a request: in the status, in what this process
// noted, or on the pod.
func (x *run) recall() bool {
	s := &x.runner.Status
	s.RunnerID = cmp.Or(s.RunnerID, x.note.registration)
	if s.RunnerID == 0 && x.pod != nil {
		s.RunnerID = podspec.RegistrationOf(x.pod)
	}
	return s.RunnerID != 0
}

// remember notes a registration that its Secret holds.
func (x *run) remember(id int64) {
	x.runner.Status.RunnerID = id
	x.Notes.register(x.note, id)
}

// reregister comes after an attempt that lost its answer or its Secret: with the
// Secret the registration can be used; without it the registration is removed, so
// that the next attempt can make a new one under the same name.
func (x *run) reregister(ctx context.Context, gh registrar) error {
	if err := x.recallSecret(ctx); !apierrors.IsNotFound(err) {
		return err
	}
	known, err := gh.find(ctx, 0)
	if err != nil {
		return x.githubOutcome(err)
	}
	if known != nil {
		if known.foreign != "" {
			x.nameTaken(v1alpha1.CauseGitHub, "a runner named %q is registered %s", x.runner.Name, known.foreign)
			return nil
		}
		if err := gh.remove(ctx, known.id); err != nil {
			return x.githubOutcome(err)
		}
	}
	return kube.Wait(v1alpha1.ProgressingReason, registerRetry, "registering again: the first registration's configuration was lost")
}

// recallSecret takes the registration's id from the runner's Secret.
func (x *run) recallSecret(ctx context.Context) error {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: x.runner.Namespace, Name: podspec.SecretName(x.runner.Name)}
	if err := x.Live.Get(ctx, key, secret); err != nil {
		return fmt.Errorf("reading the registration: %w", err)
	}
	if !metav1.IsControlledBy(secret, x.runner) {
		return kube.Stall(v1alpha1.InvalidSpecReason, "Secret %q belongs to something else", secret.Name)
	}
	id, err := strconv.ParseInt(string(secret.Data[podspec.RunnerIDKey]), 10, 64)
	if err != nil {
		return kube.Stall(v1alpha1.InvalidSpecReason, "Secret %q, key %s: %w", secret.Name, podspec.RunnerIDKey, err)
	}
	x.remember(id)
	return nil
}

func (x *run) storeSecret(ctx context.Context, jit github.JIT) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.runner.Namespace, Name: podspec.SecretName(x.runner.Name),
			Labels: podspec.Labels(x.identity(), nil),
		},
		Data: map[string][]byte{
			podspec.JITKey:      []byte(jit.Encoded),
			podspec.RunnerIDKey: []byte(strconv.FormatInt(jit.RunnerID, 10)),
		},
	}
	if err := controllerutil.SetControllerReference(x.runner, secret, x.Client.Scheme()); err != nil {
		return fmt.Errorf("owning the registration's Secret: %w", err)
	}
	if err := x.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("storing the registration: %w", err)
	}
	x.remember(jit.RunnerID)
	x.note.made = true
	return nil
}

func (x *run) identity() podspec.Runner {
	return podspec.Runner{
		Namespace: x.runner.Namespace, Name: x.runner.Name, UID: x.runner.UID,
		Pool: x.runner.Spec.PoolRef.Name, Revision: x.runner.Spec.Revision, ID: x.runner.Status.RunnerID,
	}
}

// verify looks for the registration of a runner that GitHub doesn't count as we do.
// GitHub forgets an ephemeral runner when its job is over, so a busy one that it doesn't
// know has no job any more: the message of the completion was lost. An idle one that it
// doesn't know will never get a job; one without a scale set may have had one that nobody told of.
func (x *run) verify(ctx context.Context) error {
	key := client.ObjectKeyFromObject(x.runner)
	gh, ok := x.client(ctx)
	if !ok || !x.Notes.takeDoubt(key) {
		return nil
	}
	known, err := gh.find(ctx, x.runner.Status.RunnerID)
	if err != nil {
		return x.githubOutcome(err)
	}
	if known != nil {
		return nil
	}
	if err := gh.recognize(ctx); err != nil {
		return nil // this may not be the GitHub that the runner is registered with
	}
	if x.runner.Spec.REST == nil && x.runner.Status.Job == nil && (x.pod == nil || poolstatus.JobOf(x.pod) == nil) {
		x.Notes.Condemn(key, x.runner.UID, poolstatus.Verdict{
			State: v1alpha1.RunnerFailed, Since: x.Now(), Cause: v1alpha1.CauseRemoved, Reason: "GitHub has forgotten its registration",
		})
	} else {
		x.Notes.complete(key, x.runner.UID, x.Now(), true)
	}
	return End(ctx, x.Client, x.runner)
}

// githubOutcome turns GitHub's refusals into waits: while it is away or asks to come
// back later, and for want of rights, which somebody has to give back. What else goes
// wrong is retried with the work queue's back-off.
func (x *run) githubOutcome(err error) error {
	after, away := github.ComeBack(err)
	switch {
	case away:
		x.note.refused++
		return kube.Wait(v1alpha1.GitHubUnavailableReason, max(min(after, awayLook), patience(x.note.refused)), "%s", github.Summary(err))
	case github.IsUnauthorized(err):
		return kube.Wait(v1alpha1.CredentialsRefusedReason, rightsRetry, "%s", github.Summary(err))
	case github.IsForbidden(err):
		return kube.Wait(v1alpha1.PermissionMissingReason, rightsRetry, "%s", github.Summary(err))
	case github.IsRunnerGroupNotFound(err):
		return kube.Wait(v1alpha1.RunnerGroupNotFoundReason, rightsRetry, "%s", github.Summary(err))
	}
	// Without the ids of the request: a message that is new each time would be written.
	return errors.New(github.Summary(err))
}

// patience is the time to the next attempt after so many in vain: 500 ms, doubling to
// 30 s, less up to a half of it so that runners don't ask in step.
func patience(failures int) time.Duration {
	return wait.Jitter(min(awayMax, awayMin<<min(failures-1, 10))/2, 1)
}

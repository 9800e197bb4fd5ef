// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Exit codes as the kubelet reports them.
const (
	exitKilled            = 137 // 128 + SIGKILL: exceeded the grace period, or never started
	exitSegmentationFault = 139 // 128 + SIGSEGV
	exitTerminated        = 143 // 128 + SIGTERM
	exitUnknown           = 255 // of a container that the node did not start itself, as containerd reports it
)

// secretRetry is how often a missing Secret is looked up. A kubelet waits about ten seconds.
const secretRetry = time.Second

// Pauses between failed image pulls. A kubelet waits from 10 s to 5 min.
const (
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
)

// actor simulates one pod. Of its contexts, each also ends when one of those below it ends.
type actor struct {
	node   *Node
	pod    *corev1.Pod // as first seen
	runner *corev1.Container
	status statusWriter
	fault  *injected   // the fault of the pod; nil if there is none
	spent  atomic.Bool // the fault has killed the process, which runs again

	term     context.Context // ends when the pod is being deleted or its deadline has passed: SIGTERM
	sendTerm context.CancelFunc
	deleted  context.Context // ends when the pod is being deleted
	delete   context.CancelFunc
	kill     context.Context // ends after the grace period: SIGKILL
	sendKill context.CancelFunc
	life     context.Context // ends when the pod no longer exists or the node stops
	end      context.CancelCauseFunc

	// guarded by node.mu
	grace *int64 // in seconds, the latest value
	place string // name of the node, empty until the pod is scheduled
	now   *process
	said  *kubeletEnd // what the kubelet reports if it ends the pod; nil otherwise
	ended atomic.Bool // the runner has ended
}

func newActor(ctx context.Context, n *Node, pod *corev1.Pod, runner *corev1.Container) *actor {
	a := &actor{node: n, pod: pod, runner: runner, place: pod.Spec.NodeName}
	a.life, a.end = context.WithCancelCause(ctx)
	a.kill, a.sendKill = context.WithCancel(a.life)
	a.deleted, a.delete = context.WithCancel(a.kill)
	a.term, a.sendTerm = context.WithCancel(a.deleted)
	a.status = statusWriter{pod: pod, runner: runner, address: podIP(n.address.Add(1))}
	return a
}

// gone ends the actor of a pod that no longer exists.
func (a *actor) gone() { a.end(nil) }

// terminate asks the pod to end, and kills it after the grace period. Repeated calls have an effect only with a shorter
// period.
func (a *actor) terminate(graceSeconds *int64) {
	a.delete()
	if graceSeconds == nil || a.grace != nil && *graceSeconds >= *a.grace {
		return
	}
	a.grace = graceSeconds
	insist := time.AfterFunc(time.Duration(*graceSeconds)*time.Second, a.sendKill)
	context.AfterFunc(a.life, func() { insist.Stop() })
}

// play takes the pod from its current state to its end, and removes it if it is being deleted. If that fails, the pod
// gets another actor: the response to its assignment may have been lost together with its node.
func (a *actor) play() {
	defer a.gone()
	if err := a.toEnd(); err != nil {
		a.complain(err)
		a.node.dismiss(a)
	}
}

// complain logs an error of a pod that still exists.
func (a *actor) complain(err error) {
	if err != nil && a.life.Err() == nil {
		log.FromContext(a.life).Error(err, "Playing a pod", "pod", a.pod.Namespace+"/"+a.pod.Name)
	}
}

func (a *actor) toEnd() error {
	end, ended, err := a.outcome()
	if err != nil {
		return err
	}
	if a.ended.Store(true); !ended {
		status := a.status.terminated(end)
		if a.suffers(SidecarStays) {
			a.struck(SidecarStays)
			status = a.status.runnerEnded(end)
		}
		if said := a.endByNode(); said != nil {
			status = said.over(status)
		}
		if err := a.report(status); err != nil {
			return err
		}
	}
	<-a.deleted.Done()
	if a.life.Err() != nil {
		return nil
	}
	return a.remove()
}

// endByNode returns what the kubelet reports about a pod that it has ended, or nil if it has not.
func (a *actor) endByNode() *kubeletEnd {
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	if a.said == nil && a.term.Err() != nil && a.deleted.Err() == nil {
		return &deadlineEnd
	}
	return a.said
}

// outcome runs the pod and returns how it ended, or ended = true if it had ended before.
func (a *actor) outcome() (end ending, ended bool, err error) {
	switch a.pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return ending{}, true, nil
	case corev1.PodRunning:
		return ending{exitCode: exitUnknown}, false, nil
	}
	if a.fault = a.node.faults.strike(a.pod); a.fault != nil {
		a.status.ahead = a.fault.Clock
	}
	if a.suffers(DeletedAtOnce) && a.place == "" { // on a node, a deleted pod waits for the kubelet
		return ending{}, true, a.deleteAtOnce()
	}
	if err := a.schedule(); err != nil {
		return ending{}, false, err
	}
	switch {
	case a.suffers(Refused):
		return ending{}, true, a.refuse()
	case a.suffers(InitFails):
		return a.failInit()
	}
	container, err := a.prepare()
	if a.term.Err() != nil {
		return ending{exitCode: exitKilled}, false, nil
	}
	if err != nil {
		return ending{}, false, err
	}
	end, err = a.run(container)
	if a.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		end, err = a.runAgain(container, end, err)
	}
	return end, false, err
}

// noNode is the scheduler's explanation while a fault leaves a pod without a node.
var noNode = map[FaultKind]string{Unschedulable: "Insufficient cpu", VolumeElsewhere: "node(s) had volume node affinity conflict"}

// schedule assigns the pod to a node, like a scheduler: only from then on does a deletion have a grace period. While no
// node accepts the pod, it waits, and its status says so.
func (a *actor) schedule() error {
	if a.pod.Spec.NodeName != "" {
		return nil
	}
	if a.fault != nil && noNode[a.fault.Kind] != "" {
		a.struck(a.fault.Kind)
		if err := a.report(a.status.unschedulable(noNode[a.fault.Kind])); err != nil {
			return err
		}
		if err := a.suffer(); err != nil {
			return err
		}
	}
	for {
		place, changed := a.node.choose(a)
		if place != "" {
			return a.bind(place)
		}
		if err := a.report(a.status.unschedulable("node(s) had untolerated taint {node.kubernetes.io/unreachable: }")); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-a.term.Done():
			return a.term.Err()
		}
	}
}

// bind binds the pod's claims, as Kubernetes does for the first pod of each claim, and assigns the pod to the node.
func (a *actor) bind(place string) error {
	for _, v := range a.pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		bound := []byte(`{"status": {"phase": "Bound"}}`)
		err := a.persistently(func(ctx context.Context) error {
			_, err := a.node.client.CoreV1().PersistentVolumeClaims(a.pod.Namespace).Patch(ctx, v.PersistentVolumeClaim.ClaimName, types.MergePatchType, bound, metav1.PatchOptions{}, "status")
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("binding claim %s: %w", v.PersistentVolumeClaim.ClaimName, err)
		}
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.pod.Namespace, Name: a.pod.Name, UID: a.pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: place},
	}
	err := a.persistently(func(ctx context.Context) error {
		return a.node.client.CoreV1().Pods(a.pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	})
	if err != nil {
		return fmt.Errorf("binding the pod: %w", err)
	}
	return nil
}

// prepare waits for the start delay and returns the input of the container. While the Secret is missing, the pod waits,
// and its status says so. It returns an error if the pod is deleted first.
func (a *actor) prepare() (c Container, err error) {
	if a.node.options.StartDelay > 0 {
		if err := a.report(a.status.waiting("ContainerCreating", "")); err != nil {
			return c, err
		}
		if err := pause(a.term, a.node.options.StartDelay); err != nil {
			return c, err
		}
	}
	if err := a.pull(); err != nil {
		return c, err
	}
	for reported := ""; ; {
		c, missing := a.container()
		if missing == "" || a.term.Err() != nil {
			return c, a.term.Err()
		}
		if missing != reported {
			if err := a.report(a.status.waiting("CreateContainerConfigError", missing)); err != nil {
				return c, err
			}
			reported = missing
		}
		if err := pause(a.term, secretRetry); err != nil {
			return c, err
		}
	}
}

// pull makes image pulls fail or take long if the pod's fault requires it.
func (a *actor) pull() error {
	switch {
	case a.suffers(StartsSlowly):
		a.struck(StartsSlowly)
		if err := a.report(a.status.waiting("ContainerCreating", "")); err != nil {
			return err
		}
		return a.suffer()
	case a.suffers(ImageRefused):
		return a.failPulls(ImageRefused, a.runner.Image, a.status.waiting)
	case a.suffers(InitImageRefused):
		return a.failPulls(InitImageRefused, a.pod.Spec.InitContainers[0].Image, a.status.initWaiting)
	}
	return nil
}

// failPulls reports failed pulls, with increasing pauses, until the fault is over.
func (a *actor) failPulls(m FaultKind, image string, waiting func(reason, message string) corev1.PodStatus) error {
	a.struck(m)
	over := make(chan error, 1)
	a.node.running.Go(func() { over <- a.suffer() })
	refusal := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", image, image, image)
	for backOff := firstBackOff; ; backOff = min(2*backOff, lastBackOff) {
		if err := a.report(waiting("ErrImagePull", refusal)); err != nil {
			return err
		}
		select {
		case err := <-over:
			return err
		case <-time.After(backOff / 4):
		}
		backingOff := fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", image, refusal)
		if err := a.report(waiting("ImagePullBackOff", backingOff)); err != nil {
			return err
		}
		select {
		case err := <-over:
			return err
		case <-time.After(backOff):
		}
	}
}

// failInit ends the pod through its first init container.
func (a *actor) failInit() (end ending, ended bool, err error) {
	a.struck(InitFails)
	return ending{}, true, a.report(a.status.initFailed(ending{exitCode: 1}))
}

// container reads the Secret that the container refers to, or returns the kubelet's message why it cannot.
func (a *actor) container() (c Container, missing string) {
	ref := jitConfigRef(a.runner)
	secret, err := a.node.client.CoreV1().Secrets(a.pod.Namespace).Get(a.term, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c, fmt.Sprintf("secret %q not found", ref.Name)
	}
	if err != nil {
		return c, err.Error()
	}
	c.Env = map[string]string{}
	for _, e := range a.runner.Env {
		c.Env[e.Name] = e.Value
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil || e.ValueFrom.SecretKeyRef.Name != secret.Name {
			continue
		}
		from := e.ValueFrom.SecretKeyRef
		value, ok := secret.Data[from.Key]
		switch {
		case ok:
			c.Env[e.Name] = string(value)
		case from.Optional != nil && *from.Optional:
			delete(c.Env, e.Name)
		default:
			return c, fmt.Sprintf("couldn't find key %s in Secret %s/%s", from.Key, a.pod.Namespace, from.Name)
		}
	}
	c.JITConfig, c.Files, c.Args, c.Kept = c.Env[JITConfigEnv], a.files(secret), a.runner.Args, map[string][]byte{}
	return c, ""
}

// files returns the files of a Secret that the container mounts.
func (a *actor) files(secret *corev1.Secret) map[string][]byte {
	files := map[string][]byte{}
	for _, v := range a.pod.Spec.Volumes {
		at := slices.IndexFunc(a.runner.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		if at < 0 || v.Secret == nil || v.Secret.SecretName != secret.Name {
			continue
		}
		for _, item := range v.Secret.Items {
			if value, ok := secret.Data[item.Key]; ok {
				files[path.Join(a.runner.VolumeMounts[at].MountPath, item.Path)] = value
			}
		}
	}
	return files
}

// report writes the pod's status. It never touches a pod with the same name but another UID.
func (a *actor) report(status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encoding the pod's status: %w", err)
	}
	err = a.persistently(func(ctx context.Context) error {
		_, err := a.node.client.CoreV1().Pods(a.pod.Namespace).
			Patch(ctx, a.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	if err != nil {
		return fmt.Errorf("reporting the pod's status: %w", err)
	}
	return nil
}

// remove deletes the Pod object, as the kubelet does at the end of a deletion.
func (a *actor) remove() error {
	err := a.persistently(func(ctx context.Context) error {
		return a.node.client.CoreV1().Pods(a.pod.Namespace).Delete(ctx, a.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64),
			Preconditions:      metav1.NewUIDPreconditions(string(a.pod.UID)),
		})
	})
	if err != nil {
		return fmt.Errorf("removing the pod: %w", err)
	}
	return nil
}

// persistently repeats a write, with increasing pauses for about half a minute, until it succeeds or cannot succeed any
// more because the pod is gone or was replaced.
func (a *actor) persistently(write func(ctx context.Context) error) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 5 * time.Second}
	var last error
	_ = wait.ExponentialBackoffWithContext(a.life, backoff, func(ctx context.Context) (bool, error) {
		last = write(ctx)
		final := last == nil || apierrors.IsNotFound(last) || apierrors.IsConflict(last) || apierrors.IsInvalid(last)
		return final, nil
	})
	if apierrors.IsNotFound(last) || apierrors.IsConflict(last) {
		a.gone()
	}
	return last
}

// pause waits, or returns an error as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Loss determines what happens to the pods of a lost node. With the zero value, they keep their last status.
type Loss struct {
	// EvictAfter is when they are deleted, as Kubernetes does after five minutes. Without a kubelet, they remain until
	// the node returns or is removed. 0 means never.
	EvictAfter time.Duration
	// RemoveAfter is when the Node object is deleted, and then its pods, without a kubelet. 0 means never.
	RemoveAfter time.Duration
}

// Places returns the names of the nodes.
func (n *Node) Places() []string { return slices.Clone(n.places) }

// choose assigns the actor to the next available node and returns its name, or a channel that is closed when a node
// returns.
func (n *Node) choose(a *actor) (place string, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range n.places {
		n.turn++
		if name := n.places[n.turn%len(n.places)]; n.lost[name] == nil && !n.isCordoned(name) {
			a.place = name
			return name, nil
		}
	}
	return "", n.changed
}

// isCordoned reports whether a node is unschedulable.
func (n *Node) isCordoned(name string) bool {
	node, err := n.nodes.Get(name)
	return err == nil && node.Spec.Unschedulable
}

// uncordoned wakes waiting pods when a node becomes schedulable again.
func (n *Node) uncordoned(before, after any) {
	if !before.(*corev1.Node).Spec.Unschedulable || after.(*corev1.Node).Spec.Unschedulable {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wake()
}

// wake makes pods that wait for a node check again.
func (n *Node) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Lose makes a node fail without warning, like a lost machine: the processes of its pods are killed, and its pods stay
// unchanged until [Node.Return]. The node becomes NotReady. It returns an error if there is no such node, if the node
// is already lost, or before Play.
func (n *Node) Lose(ctx context.Context, name string, loss Loss) error {
	aftermath, err := n.cut(name)
	if err != nil {
		return err
	}
	if err := n.lookAgain(""); err != nil { // pods that were just being assigned to it
		return err
	}
	if err := n.markLost(ctx, name); err != nil {
		return err
	}
	if loss.EvictAfter > 0 {
		n.later(aftermath, loss.EvictAfter, func() error { return n.evictAll(aftermath, name) })
	}
	if loss.RemoveAfter > 0 {
		n.later(aftermath, loss.RemoveAfter, func() error { return n.removeNode(aftermath, name) })
	}
	return nil
}

// ErrLost is returned for a node that is already lost.
var ErrLost = errors.New("it is lost already")

// cut ends everything that runs on a node. The returned context ends when the node returns.
func (n *Node) cut(name string) (context.Context, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.ctx == nil:
		return nil, errors.New("the nodes are not played yet")
	case !slices.Contains(n.places, name):
		return nil, fmt.Errorf("there is no node %q", name)
	case n.lost[name] != nil:
		return nil, fmt.Errorf("node %s: %w", name, ErrLost)
	}
	aftermath, returned := context.WithCancel(n.ctx)
	n.lost[name] = returned
	for uid, a := range n.actors {
		if a.place == name {
			if a.ended.Load() {
				a.struck(NodeLostAfterEnd)
			} else {
				a.struck(NodeLost)
			}
			a.end(ErrKilled)
			delete(n.actors, uid)
		}
	}
	return aftermath, nil
}

// Return brings a lost node back, as after a reboot: its pods that were running have ended, those being deleted are
// removed, and those that had not started are started. It returns an error if the node is not lost.
func (n *Node) Return(ctx context.Context, name string) error {
	n.mu.Lock()
	returned := n.lost[name]
	n.mu.Unlock()
	if returned == nil {
		return fmt.Errorf("node %q is not lost", name)
	}
	returned()
	if err := n.register(ctx, name); err != nil {
		return err
	}
	n.mu.Lock()
	delete(n.lost, name)
	n.wake()
	n.mu.Unlock()
	return n.lookAgain(name)
}

// lookAgain creates the actors of a node's pods or, with an empty name, of the pods that have no node.
func (n *Node) lookAgain(name string) error {
	pods, err := n.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing the node's pods: %w", err)
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == name {
			n.observe(pod)
		}
	}
	return nil
}

// ReturnAll brings all lost nodes back.
func (n *Node) ReturnAll(ctx context.Context) error {
	var errs []error
	for _, name := range n.places {
		n.mu.Lock()
		lost := n.lost[name] != nil
		n.mu.Unlock()
		if lost {
			errs = append(errs, n.Return(ctx, name))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) later(ctx context.Context, after time.Duration, do func() error) {
	n.running.Go(func() {
		if pause(ctx, after) != nil {
			return
		}
		if err := do(); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Playing the loss of a node")
		}
	})
}

// markLost sets the conditions of the node and of its pods, as the node controller does if a node stops reporting.
func (n *Node) markLost(ctx context.Context, name string) error {
	condition := map[string]any{
		"type": corev1.NodeReady, "status": corev1.ConditionUnknown, "reason": "NodeStatusUnknown",
		"message": "Kubelet stopped posting node status.", "lastTransitionTime": metav1.Now(),
	}
	patch, err := statusPatch(map[string]any{"conditions": []any{condition}})
	if err != nil {
		return err
	}
	if _, err := n.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("reporting the node lost: %w", err)
	}
	return n.eachPod(ctx, name, func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodRunning {
			return nil
		}
		return n.patchPod(ctx, pod, map[string]any{"type": corev1.PodReady, "status": corev1.ConditionFalse, "lastTransitionTime": metav1.Now()})
	})
}

// evictAll deletes the pods of an unreachable node, as the taint manager does when their toleration ends.
func (n *Node) evictAll(ctx context.Context, name string) error {
	return n.eachPod(ctx, name, func(pod *corev1.Pod) error {
		if pod.DeletionTimestamp != nil {
			return nil
		}
		err := n.patchPod(ctx, pod, disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"))
		return errors.Join(err, n.deletePod(ctx, pod, nil))
	})
}

// removeNode deletes the Node and then its pods, as the pod garbage collector does.
func (n *Node) removeNode(ctx context.Context, name string) error {
	if err := n.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the node: %w", err)
	}
	return n.eachPod(ctx, name, func(pod *corev1.Pod) error {
		var err error
		if phase := pod.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			gone := disruption("DeletionByPodGC", "PodGC: node no longer exists")
			err = n.patchStatus(ctx, pod, map[string]any{"phase": corev1.PodFailed, "conditions": []any{gone}})
		}
		return errors.Join(err, n.deletePod(ctx, pod, new(int64)))
	})
}

func disruption(reason, message string) map[string]any {
	return map[string]any{
		"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue, "reason": reason, "message": message, "lastTransitionTime": metav1.Now(),
	}
}

// eachPod calls do with each pod of a node.
func (n *Node) eachPod(ctx context.Context, name string, do func(*corev1.Pod) error) error {
	selector := fields.OneTermEqualSelector("spec.nodeName", name).String()
	pods, err := n.client.CoreV1().Pods(n.options.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return fmt.Errorf("listing the node's pods: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		errs = append(errs, do(&pods.Items[i]))
	}
	return errors.Join(errs...)
}

func (n *Node) patchPod(ctx context.Context, pod *corev1.Pod, condition map[string]any) error {
	return n.patchStatus(ctx, pod, map[string]any{"conditions": []any{condition}})
}

func (n *Node) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	patch, err := statusPatch(status)
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reporting pod %s: %w", pod.Name, err)
	}
	return nil
}

func (n *Node) deletePod(ctx context.Context, pod *corev1.Pod, grace *int64) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}

func statusPatch(status map[string]any) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	return patch, nil
}

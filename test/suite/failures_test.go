// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// keptPod waits until the pod of one failed runner is kept after its end, and nothing else of that runner is left.
func (w *story) keptPod(t *testing.T, pool client.ObjectKey) (kept corev1.Pod) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		must(t, w.Client.List(ctx, pods, client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool.Name}))
		var all []corev1.Pod
		for _, p := range pods.Items {
			if p.Annotations[v1alpha1.KeptUntilAnnotation] != "" && p.DeletionTimestamp == nil {
				all = append(all, p)
			}
		}
		if len(all) != 1 || all[0].Status.Phase != corev1.PodFailed {
			return fmt.Errorf("%d of %d pods are kept", len(all), len(pods.Items))
		}
		kept = all[0]
		for _, rest := range []client.Object{
			&v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: kept.Namespace, Name: kept.Name}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kept.Namespace, Name: kept.Name + "-jit"}},
		} {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(rest), rest); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is still there: %w", rest, rest.GetName(), err)
			}
		}
		return nil
	})
	return kept
}

func TestACrashLoopLeavesItsTracesAndOneWordEndsIt(t *testing.T) {
	const namespace = "failures"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	w.controller(t)
	heal := w.Node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Namespace: namespace})
	t.Cleanup(heal)
	pool := newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Scale.Idle, p.Spec.FailedPodTTL = new(int32(1)), &metav1.Duration{Duration: 10 * time.Minute}
	})
	must(t, w.Client.Create(t.Context(), pool))
	eventually(t, func(ctx context.Context) error {
		must(t, w.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool))
		if n := len(pool.Status.Failures); n < 4 { // the fourth failure is an attempt after a delay
			return fmt.Errorf("%d failures", n)
		}
		return nil
	})
	last := pool.Status.Failures[0]
	if last.Cause != v1alpha1.CauseCrash || last.Node == "" || last.Exit == nil || last.Exit.Code != 1 || last.Exit.Message != "Connecting to GitHub An error occurred: the runner ends." {
		t.Errorf("the last failure is %s", last.String())
	}
	newQuestion(t, namespace).says([]string{"pool/linux", "-n", namespace}, last.Runner, last.Node, "Crash: Error (exit code 1)", "Connecting to GitHub")
	kept := w.keptPod(t, client.ObjectKeyFromObject(pool))
	newQuestion(t, namespace).says([]string{"pool/linux", "-n", namespace}, "kubectl logs -n "+namespace+" "+kept.Name)

	heal()
	asked := time.Now()
	must(t, w.Client.Patch(t.Context(), pool, client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"annotations":{"corral.dev/retry":"mended"}}}`))))
	w.allDone(t, w.addJobs(t, namespace+"-org", "linux", 3, 50*time.Millisecond))
	must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	if pool.Status.LastHandledRetryAt != "mended" || len(pool.Status.Failures) == 0 || pool.Status.Failures[0].Time.After(asked) {
		t.Errorf("handled %q, last failure %v", pool.Status.LastHandledRetryAt, pool.Status.Failures)
	}
	if last, now := pool.Status.Failures[0].Runner, w.keptPod(t, client.ObjectKeyFromObject(pool)); now.Name != last {
		t.Errorf("pod %s is kept, and %s failed last", now.Name, last)
	}
	w.cleanUp(t, namespace)
}

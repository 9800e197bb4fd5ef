// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/sim/githubsim"
)

// otherTemplate returns a ControllerRevision with a different template.
func (s *fixture) otherTemplate(name string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Data:       runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"other:1"}]}}`)},
	}
}

// A revision's name contains only ten digits of its template's digest, so a revision of another template may
// already have the name.
func TestATemplateWhoseRevisionIsNamedLikeAnother(t *testing.T) {
	s := newFixture(t)
	digest, err := podspec.Digest(newPool(s.namespace, "linux", "acme").Spec.Template.Raw)
	must(t, err)
	names := podspec.RevisionNames("linux", digest)
	s.create(s.otherTemplate(names[0]))
	pool := s.listening("linux")
	s.hasRevision(pool, names[1])
	s.look("", 0, "pool/linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// hasRevision waits until a pool's template is valid and in force under a name.
func (s *fixture) hasRevision(pool *v1alpha1.RunnerPool, revision string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if !conditions.IsTrue(pool, v1alpha1.TemplateValidCondition) || pool.Status.Revision != revision {
			return fmt.Errorf("revision %s is in force, want %s; %+v", pool.Status.Revision, revision, conditions.Get(pool, v1alpha1.TemplateValidCondition))
		}
		return nil
	})
}

// replace replaces the template in a revision, as `kubectl replace --force` does, before the controller restores
// the original.
func (s *fixture) replace(revision string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		known, other := &appsv1.ControllerRevision{}, s.otherTemplate(revision)
		if err := w.Client.Get(ctx, key(s.namespace, revision), known); err != nil {
			return err
		}
		other.Labels, other.Annotations, other.OwnerReferences = known.Labels, known.Annotations, known.OwnerReferences
		if err := w.Client.Delete(ctx, known); err != nil {
			return err
		}
		return w.Client.Create(ctx, other)
	})
}

// While GitHub is slow, the pod of a runner does not exist yet. The pod is created from the template that policies
// judged, or not at all.
func TestARevisionThatSomebodyReplaces(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	pool := s.listening("linux")
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Times: 1, Delay: 12 * time.Second})
	jobs := s.addJobs("linux", 1, time.Millisecond)
	eventually(t, func(ctx context.Context) error {
		if runners, err := s.runners(ctx, "linux"); err != nil || len(runners) == 0 {
			return fmt.Errorf("no runner is made: %w", err)
		}
		return nil
	})
	former := pool.Status.Revision
	s.replace(former)
	s.hasRevision(pool, former+"-1")
	s.doneOnce(jobs)
	s.look("", 1, "pool/linux")
	s.othersGoOn()
}

// A user who may create Runners must not be able to register one. The pool did not create a Runner of this name.
func TestARunnerThatSomebodyMadeByHand(t *testing.T) {
	s := newFixture(t)
	pool := s.listening("linux")
	forged := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "mine", Labels: map[string]string{v1alpha1.PoolLabel: "linux"}},
		Spec: v1alpha1.RunnerSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: "linux"}, ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"},
			ScaleSetID: int64(s.setID(pool)), Revision: pool.Status.Revision,
		},
	}
	s.create(forged)
	s.says(forged, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.InvalidSpecReason,
		Causes: `RunnerForged pool="linux"`,
	})
	s.look(`RunnerPool "linux"`, 1, "runner/mine")
	for _, r := range s.github.Report().Runners {
		if r.Name == forged.Name {
			t.Error("it is registered")
		}
	}
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	must(t, w.Client.Delete(t.Context(), forged))
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(forged), forged); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it may be there: %w", err)
		}
		return nil
	})
	s.othersGoOn()
}

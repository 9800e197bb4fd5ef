// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
)

// jobsAsPods makes the jobs of the bench's pool run as pods, with or without a claim.
func jobsAsPods(claim *v1alpha1.WorkVolumeClaim) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) {
		p.Spec.ContainerMode = &v1alpha1.ContainerMode{Type: v1alpha1.KubernetesMode, Kubernetes: &v1alpha1.HooksSpec{WorkVolumeClaim: claim}}
	}
}

// The template with the additions of the mode is stored, tried, and used for runners.
func TestRunnersAreOfTheTemplateWithTheMode(t *testing.T) {
	b := newBench(t)
	b.change(jobsAsPods(&v1alpha1.WorkVolumeClaim{Size: "1Gi"}))
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	p := b.pool()
	want, err := podspec.Template(p)
	if err != nil {
		t.Fatal(err)
	}
	revision := &appsv1.ControllerRevision{}
	if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: p.Status.Revision}, revision); err != nil {
		t.Fatal(err)
	}
	if valid := conditions.Get(p, v1alpha1.TemplateValidCondition); !strings.Contains(valid.Message, "jobs can read each Secret of the namespace, and GitHubConnection acme is in it") {
		t.Errorf("TemplateValid is %+v", valid)
	}
	digest, err := podspec.Digest(want)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err := podspec.Digest(revision.Data.Raw); err != nil || stored != digest {
		t.Errorf("stored is %s, %v", revision.Data.Raw, err)
	}
	if spec := b.tried[0].Spec; spec.ServiceAccountName != p.Name+"-hooks" || len(spec.Volumes) != 1 {
		t.Errorf("tried is %+v", spec)
	}
	list := b.runners()
	if len(list) != 1 || list[0].Spec.TemplateDigest != digest || list[0].Spec.HooksAccount != p.Name+"-hooks" {
		t.Errorf("runners: %+v", list)
	}
}

func TestAModeThatCannotBeAppliedLeavesTheLastTemplateInForce(t *testing.T) {
	b := newBench(t)
	b.start()
	good := b.pool().Status.Revision
	b.change(jobsAsPods(nil))
	b.reconcile()
	p := b.pool()
	valid := conditions.Get(p, v1alpha1.TemplateValidCondition)
	if valid.Reason != v1alpha1.TemplateInvalidReason || !strings.HasPrefix(valid.Message, "spec.containerMode.kubernetes.workVolumeClaim: must be set") {
		t.Errorf("TemplateValid is %+v", valid)
	}
	if !conditions.IsStalled(p) || p.Status.Revision != good || !strings.Contains(b.readyReason(), "revision "+good+" stays in force: spec.containerMode") {
		t.Errorf("revision %s, ready: %s", p.Status.Revision, b.readyReason())
	}
}

func TestAMissingServiceAccountIsWaitedFor(t *testing.T) {
	b := newBench(t)
	b.change(jobsAsPods(&v1alpha1.WorkVolumeClaim{Size: "1Gi"}))
	b.refusal = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New(`error looking up service account ci/linux-hooks: serviceaccount "linux-hooks" not found`))
	b.snapshot.Assigned = 1
	b.reconcile()
	p := b.pool()
	valid := conditions.Get(p, v1alpha1.TemplateValidCondition)
	if valid == nil || valid.Reason != v1alpha1.ServiceAccountMissingReason || conditions.IsStalled(p) || !strings.Contains(b.readyReason(), "ServiceAccountMissing") {
		t.Errorf("TemplateValid is %+v, ready: %s", valid, b.readyReason())
	}
	if n := len(b.runners()); n != 0 {
		t.Errorf("%d runners", n)
	}
	b.refusal = nil
	b.start()
	b.reconcile()
	if n := len(b.runners()); n != 1 || !conditions.IsTrue(b.pool(), v1alpha1.TemplateValidCondition) {
		t.Errorf("%d runners, ready: %s", n, b.readyReason())
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// sourceOwner is the field manager of a PoolSource.
	sourceOwner = client.FieldOwner("corral-source")
	// maxAsked is the maximum number of dry runs, and askedAtOnce the maximum number of concurrent dry runs.
	maxAsked, askedAtOnce = 500, 8
)

// askCluster reads the pools in the cluster, and applies each changed object of the head as a dry run. It returns notes on
// objects that the cluster did not check.
func (o *reviewOptions) askCluster(ctx context.Context, in *review.Input) (notes []string, err error) {
	c, own, err := o.cluster.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	in.LiveNamespace = own
	in.Live, err = livePools(ctx, c, own, namespacesOf(slices.Concat(in.Base.Objects, in.Head.Objects)))
	if err != nil || len(in.Base.Diagnostics)+len(in.Head.Diagnostics) > 0 {
		return nil, err
	}
	changed := slices.DeleteFunc(review.ChangedObjects(&in.Base, &in.Head), func(o review.ChangedObject) bool { return o.Head == nil })
	if len(changed) > maxAsked {
		notes = append(notes, fmt.Sprintf("The cluster did not check %s.", wording.Count(len(changed)-maxAsked, "more object")))
		changed = changed[:maxAsked]
	}
	answers := make([]error, len(changed))
	// The loop ignores the time-out, so that the remaining dry runs fail and are reported. Otherwise the loop would leave out
	// the remaining objects without an error.
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), askedAtOnce, len(changed), func(i int) { answers[i] = dryRun(ctx, c, own, changed[i].Head) })
	for i, answer := range answers {
		at := changed[i].Head
		switch {
		case answer == nil:
		case apierrors.IsForbidden(answer), apierrors.ReasonForError(answer) == "":
			notes = append(notes, fmt.Sprintf("The cluster did not check %s: %v.", changed[i].Name, answer))
		default:
			in.Refused = append(in.Refused, v1alpha1.Diagnostic{File: at.File, Line: v1alpha1.LineNumber(at.Line), Column: v1alpha1.LineNumber(at.Column), Path: at.Path, Message: "the cluster refuses it: " + answer.Error()})
		}
	}
	return notes, nil
}

// livePools returns the pools of the given namespaces, by NAMESPACE/NAME. An empty namespace stands for the namespace own;
// the keys of its pools have no namespace.
func livePools(ctx context.Context, c client.Reader, own string, namespaces []string) (map[string]*v1alpha1.RunnerPool, error) {
	pools := map[string]*v1alpha1.RunnerPool{}
	for _, namespace := range namespaces {
		list := &v1alpha1.RunnerPoolList{}
		if err := c.List(ctx, list, client.InNamespace(cmp.Or(namespace, own))); err != nil {
			return nil, fmt.Errorf("reading pools of the cluster: %w", err)
		}
		for i := range list.Items {
			pools[wording.Qualified(namespace, list.Items[i].Name)] = &list.Items[i]
		}
	}
	return pools, nil
}

// namespacesOf returns the namespaces of the pools among the objects, including the empty one.
func namespacesOf(objects []compile.Object) []string {
	namespaces := map[string]bool{}
	for _, object := range objects {
		if object.Manifest.GetKind() == "RunnerPool" {
			namespaces[object.Manifest.GetNamespace()] = true
		}
	}
	return slices.Sorted(maps.Keys(namespaces))
}

// dryRun applies an object as a dry run, and returns the API server's error.
func dryRun(ctx context.Context, c client.Client, namespace string, object *compile.Object) error {
	u := object.Manifest.DeepCopy()
	u.SetNamespace(cmp.Or(u.GetNamespace(), namespace))
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), sourceOwner, client.ForceOwnership, client.DryRunAll)
}

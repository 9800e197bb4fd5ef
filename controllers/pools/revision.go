// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

// probeName is the runner's name in the dry run of a template.
const probeName = "template-check"

// recordRetry is the delay before the next check for the result of another controller. An event of a watch usually
// triggers a pass earlier.
const recordRetry = 5 * time.Second

// hiddenRetry is the delay before the next name of a revision is tried.
const hiddenRetry = 100 * time.Millisecond

// revisionChangedEvent is the event reason for an unchanged template that has another revision.
const revisionChangedEvent = "RevisionChanged"

// templateState is the result of processing the spec's template.
type templateState struct {
	// content is the template of runners, including what spec.containerMode adds.
	content []byte
	// digest is the digest of the spec's template.
	digest string
	// adopted is the revision of the spec's template; empty if the template cannot be used.
	adopted string
	// revision is the newest usable revision: adopted or the previous one; empty if there never was one.
	revision string
	// verdict is the last verdict of policies on the template.
	verdict *v1alpha1.TemplateVerdict
	// failures are the policies that could not be evaluated for a template that they allowed before.
	failures []policy.Failure
	// refusal is why the spec's template cannot be used; nil if it can. invalid is the same outcome for a pool that keeps
	// using a previous template.
	refusal, invalid error
	// former is true while a pool keeps using a previous template because the spec's cannot be used.
	former bool
	// accepted identifies the last accepted template.
	accepted string
	// hidden are names taken by foreign revisions that the cache does not show because they have no pool label.
	hidden []string
	// note is advice about a usable template for its owner; empty for none.
	note string
	// version is GitHub's information about the version of the runners; nil if it is unchanged or unknown.
	version *v1alpha1.RunnerVersionStatus
}

// storeTemplate makes the spec's template the pool's current revision, once the API server has accepted its pod in a dry
// run. If the template cannot be used, the last good one stays in force; without one, the pass ends with an error.
func (r *Reconciler) storeTemplate(ctx context.Context, pool *v1alpha1.RunnerPool, p appliedPolicies, memory poolMemory) (templateState, error) {
	last := memory.template
	t := templateState{revision: pool.Status.Revision, verdict: pool.Status.Policy, accepted: last, hidden: memory.hiddenRevisions}
	var err error
	if t.content, err = podspec.Template(pool); err != nil {
		return t.refuse("", kube.Stall(catalog.PodInvalid.With().Wrap(err)))
	}
	if t.digest, err = podspec.Digest(t.content); err != nil {
		return t, kube.Stall(catalog.TemplateUnreadable.With().Wrap(err))
	}
	name, isStored, err := r.nameOf(ctx, pool, t)
	if err != nil {
		return t, err
	}
	t.verdict, t.failures, err = r.permit(ctx, pool, p, t, name, isStored)
	content := fmt.Sprint(" ", t.digest, p.network)
	this := name + content
	switch {
	case err != nil:
	case !isStored:
		if err = r.storeRevision(ctx, pool, t, p.network, name, last == this); errors.Is(err, errHidden) {
			t.hidden = append(slices.Clip(t.hidden), name)
			err = kube.Progress(hiddenRetry, catalog.RevisionHidden.With(name))
		}
	case last != this:
		_, err = buildProbe(pool, t.content, p.network) // an earlier version of Corral may have accepted what this one refuses
	}
	if err != nil {
		return t.refuse(name, err)
	}
	if p.network.CA {
		if pod, err := buildProbe(pool, t.content, p.network); err == nil {
			t.note = podspec.OwnTrust(pod)
		}
	}
	t.note = join(join(t.note, podspec.HooksMayRead(pool)), podspec.DaemonApart(pool))
	if former, isSame := strings.CutSuffix(last, content); isSame && former != name {
		message := fmt.Sprintf("the pool's ControllerRevisions were modified: the template of revision %s is now revision %s", former, name)
		kube.Warn(ctx, "ControllerRevisions were changed", "reason", message)
		r.Event(pool, corev1.EventTypeWarning, revisionChangedEvent, message)
	}
	t.revision, t.adopted, t.accepted = name, name, this
	return t, nil
}

// refuse keeps the last good revision in force, if there is one, because the spec's template cannot be used.
func (t templateState) refuse(name string, err error) (templateState, error) {
	t.former = t.revision != "" && t.revision != name // that revision was allowed once; see evictDenied
	t.refusal, t.invalid = err, t.goesOn(err)
	if t.revision != "" {
		err = nil
	}
	return t, err
}

// goesOn returns the outcome of a pool whose template is refused. If a previous revision stays in force, the outcome says
// so.
func (t templateState) goesOn(err error) error {
	causes := kube.CausesOf(err)
	switch {
	case !t.former, kube.IsProgress(err):
		return err
	case kube.ReasonOf(err, "") == "":
		causes = []catalog.Cause{catalog.Progressing.With().Wrap(err)}
	}
	causes = append(slices.Clip(causes), catalog.PreviousRevision.With(t.revision))
	if kube.IsStalled(err) {
		return kube.Stall(causes...)
	}
	return kube.Wait(recordRetry, causes...)
}

// mark sets the conditions that report whether the template can be used.
func (t templateState) mark(pool *v1alpha1.RunnerPool) {
	switch {
	case t.adopted != "":
		conditions.MarkTrue(pool, v1alpha1.TemplateValidCondition, v1alpha1.SucceededReason, "%s", join("revision "+t.adopted, t.note))
	case kube.ReasonOf(t.refusal, "") == v1alpha1.PolicyDeniedReason:
		kube.Mark(pool, v1alpha1.PolicyCondition, kube.CausesOf(t.invalid)...)
	case kube.ReasonOf(t.refusal, "") == v1alpha1.ServiceAccountMissingReason, kube.IsStalled(t.refusal):
		kube.Mark(pool, v1alpha1.TemplateValidCondition, kube.CausesOf(t.refusal)...)
	}
}

// nameOf returns the name under which a template is stored. If it is not stored, it returns the first free name: names
// contain only ten digits of the digest, so another template may have the same first name.
func (r *Reconciler) nameOf(ctx context.Context, pool *v1alpha1.RunnerPool, t templateState) (name string, isStored bool, err error) {
	candidates := podspec.RevisionNames(pool.Name, t.digest)
	for _, candidate := range candidates {
		known := &appsv1.ControllerRevision{}
		switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: candidate}, known); {
		case apierrors.IsNotFound(err):
			if !slices.Contains(t.hidden, candidate) {
				name = cmp.Or(name, candidate)
			}
			continue
		case err != nil:
			return "", false, fmt.Errorf("reading the revision: %w", err)
		}
		if other, err := podspec.Digest(known.Data.Raw); err != nil || other != t.digest {
			continue
		}
		if owner := metav1.GetControllerOf(known); owner != nil && owner.UID != pool.UID {
			return "", false, kube.Progress(recordRetry, catalog.RevisionOfFormerPool.With(candidate))
		}
		return candidate, true, nil
	}
	if name == "" {
		return "", false, kube.Stall(catalog.RevisionNamesTaken.With(candidates[0]))
	}
	return name, false, nil
}

// storeRevision tries the template and stores it under a name that is free according to the cache, which may not show yet
// what was stored before. before is true if this process has already accepted the template under this name.
func (r *Reconciler) storeRevision(ctx context.Context, pool *v1alpha1.RunnerPool, t templateState, n podspec.Network, name string, before bool) error {
	if err := r.probe(ctx, pool, t.content, n); err != nil {
		return err
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: name,
			Labels:      with(pool.Spec.LabelsOfObjects(), v1alpha1.PoolLabel, pool.Name),
			Annotations: with(pool.Spec.AnnotationsOfObjects(), v1alpha1.TemplateDigestAnnotation, t.digest),
		},
		Data:     runtime.RawExtension{Raw: t.content},
		Revision: pool.Generation,
	}
	// The scheme contains the pool's kind, so this cannot fail.
	_ = controllerutil.SetControllerReference(pool, revision, r.Client.Scheme())
	switch err := r.Client.Create(ctx, revision); {
	case apierrors.IsAlreadyExists(err):
		return r.alreadyThere(ctx, revision, before)
	case err != nil:
		return fmt.Errorf("storing the revision: %w", err)
	}
	return nil
}

// errHidden means that a foreign revision has the name, and that the cache will never show it.
var errHidden = errors.New("the revision belongs to another owner")

// alreadyThere handles a revision that exists although the cache does not show it. Either the cache is behind, or a user
// created the revision without Corral's labels.
func (r *Reconciler) alreadyThere(ctx context.Context, revision *appsv1.ControllerRevision, before bool) error {
	known := &appsv1.ControllerRevisionList{} // a list of one, because the controller may not get revisions
	if err := r.Live.List(ctx, known, client.InNamespace(revision.Namespace), client.MatchingFields{metav1.ObjectNameField: revision.Name}); err != nil {
		return fmt.Errorf("looking for the revision: %w", err)
	}
	if len(known.Items) > 0 && known.Items[0].Labels[v1alpha1.PoolLabel] == "" {
		return errHidden
	}
	if !before {
		return kube.Progress(recordRetry, catalog.RevisionUnseen.With(revision.Name))
	}
	return nil
}

// with returns a copy of a map, which may be nil, with one more entry.
func with(given map[string]string, key, value string) map[string]string {
	all := make(map[string]string, len(given)+1)
	maps.Copy(all, given)
	all[key] = value
	return all
}

// buildProbe builds the pod of the template.
func buildProbe(pool *v1alpha1.RunnerPool, template []byte, n podspec.Network) (*corev1.Pod, error) {
	identity := podspec.Runner{
		Namespace: pool.Namespace, Name: pool.Name + "-" + probeName, Pool: pool.Name, Revision: probeName, UID: pool.UID,
		Network: n, Self: podspec.RegistrationOfSpecimen(pool), Claim: podspec.SpecimenClaim,
	}
	pod, err := podspec.Build(identity, template)
	if err != nil {
		return nil, kube.Stall(catalog.PodInvalid.With().Wrap(err))
	}
	return pod, nil
}

// probe builds the pod of the template and lets the API server check it in a dry run. A refusal because of a quota is not
// the template's fault.
func (r *Reconciler) probe(ctx context.Context, pool *v1alpha1.RunnerPool, template []byte, n podspec.Network) error {
	pod, err := buildProbe(pool, template, n)
	if err != nil {
		return err
	}
	secrets, err := runners.Credentials(ctx, r.Client, pool.Namespace)
	if err != nil {
		return err
	}
	if err := podspec.CheckSecrets(pod, secrets); err != nil {
		return kube.Stall(catalog.PodInvalid.With().Wrap(err))
	}
	err = r.Client.Create(ctx, pod, client.DryRunAll)
	switch {
	case err == nil, runners.IsQuota(err):
		return nil
	case runners.AccountMissing(err, pod, pool.GetHooksAccount()) != nil:
		return runners.AccountMissing(err, pod, pool.GetHooksAccount())
	case kube.IsRefused(err):
		return kube.Stall(catalog.PodRefused.With().Detailed(kube.Refusal(err, "spec.template")))
	}
	return fmt.Errorf("checking the template with a dry run: %w", err)
}

// storedRevisions are the pool's revisions that are stored.
type storedRevisions struct {
	templates map[string][]byte
	// denied has the reasons why policies deny revisions now.
	denied map[string]string
}

// readRevisions lists the stored revisions, and evaluates the policies for each.
func (r *Reconciler) readRevisions(ctx context.Context, pool *v1alpha1.RunnerPool, p appliedPolicies, t templateState) (storedRevisions, error) {
	s := storedRevisions{templates: map[string][]byte{}, denied: map[string]string{}}
	list := &appsv1.ControllerRevisionList{}
	if err := r.Client.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("listing revisions: %w", err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], pool) {
			s.templates[list.Items[i].Name] = list.Items[i].Data.Raw
		}
	}
	if t.adopted != "" { // the cache may not show it yet
		s.templates[t.adopted] = t.content
	}
	for _, revision := range slices.Sorted(maps.Keys(s.templates)) {
		if denials := r.denials(ctx, pool, p, revision, s.templates[revision]); len(denials) > 0 {
			s.denied[revision] = denial(denials)
		}
	}
	return s, nil
}

// usable lists the revisions that new runners may use.
func (s storedRevisions) usable() []string {
	isDenied := func(name string) bool { return s.denied[name] != "" }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.templates)), isDenied)
}

// sources returns the revisions that new runners may use: the spec's and, during an update, the previous one.
func (o observation) sources(u *v1alpha1.UpdateStatus) []string {
	names := []string{o.template.revision, o.pool.Status.Revision}
	if u != nil {
		names = append(names, u.From)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// sweepRevisions deletes revisions that no runner uses or will use. update is the update in progress.
func (r *Reconciler) sweepRevisions(ctx context.Context, o observation, update *v1alpha1.UpdateStatus) error {
	// A rollback may need the stored revisions.
	used := append(o.sources(update), o.sources(o.pool.Status.Update)...)
	for _, x := range o.runners {
		used = append(used, x.runner.Spec.Revision)
	}
	for name := range o.revisions.templates {
		if slices.Contains(used, name) {
			continue
		}
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: o.key().Namespace, Name: name}}
		if err := r.Client.Delete(ctx, revision); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting revision %s: %w", name, err)
		}
		kube.LogDeleted(ctx, r.Client, revision, name, "no runner of the pool uses it any more")
	}
	return nil
}

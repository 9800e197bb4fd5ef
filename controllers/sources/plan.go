// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// Kinds that a source may apply.
const (
	connectionKind = "GitHubConnection"
	policyKind     = "RunnerPolicy"
	poolKind       = "RunnerPool"
)

// kinds lists the kinds in the order of application. Pruning uses the reverse order.
var kinds = []string{connectionKind, policyKind, accountKind, roleKind, bindingKind, poolKind}

// id identifies an object in the source's namespace.
type id struct{ kind, name string }

// String returns the kind and the name.
func (i id) String() string { return i.kind + " " + i.name }

// compareIDs sorts by the order of application, then by name.
func compareIDs(a, b id) int {
	return cmp.Or(cmp.Compare(slices.Index(kinds, a.kind), slices.Index(kinds, b.kind)), cmp.Compare(a.name, b.name))
}

// existing contains the objects of a namespace, read without a cache.
type existing struct {
	live    map[id]*metav1.PartialObjectMetadata // objects of the kinds that a source may apply
	sources sets.Set[string]                     // names of PoolSources
	// byAccount is true if a service account acts for the source, rather than the controller.
	byAccount bool
}

// heldBy returns the objects with a source's label that are not being deleted, sorted.
func (s existing) heldBy(source string) []id {
	var held []id
	for i, object := range s.live {
		if object.Labels[v1alpha1.SourceLabel] == source && object.DeletionTimestamp.IsZero() {
			held = append(held, i)
		}
	}
	slices.SortFunc(held, compareIDs)
	return held
}

// plan is the effect of one revision on the namespace.
type plan struct {
	apply   []compile.Object // in order
	refused []string         // objects that may not be applied, with position and reason
	adopted []id             // objects to apply that no source holds yet
	remove  []id             // objects to delete, in order
	held    []id             // objects that the source held before
	pools   int              // number of pools that the revision declares
	unruled bool             // a policy is refused
	// contested is true if another source holds one of the objects.
	contested bool
	// withheld are pools that must not be applied, because an object that grants rights to their hooks is refused.
	withheld sets.Set[string]
}

// makePlan compares the objects of a revision with the existing ones:
//
//   - An object that another source holds is refused.
//   - An object without a holder, or whose source no longer exists, is taken over.
//   - A connection without a holder is refused. A source that took it over could delete it, or send its credentials to
//     another server.
//   - A rights-granting object without a holder is refused, because other workloads may rely on it.
//
// applied contains the objects that the source applied before. Applying such an object again is not a takeover, even if its
// label was removed.
func makePlan(source types.NamespacedName, declared []compile.Object, now existing, applied sets.Set[id]) plan {
	p := plan{held: now.heldBy(source.Name), withheld: sets.New[string]()}
	wanted, own := sets.New[id](), compile.IntoNamespace(source.Namespace)
	for _, o := range declared {
		i := id{o.Manifest.GetKind(), o.Manifest.GetName()}
		wanted.Insert(i)
		if i.kind == poolKind {
			p.pools++
		}
		holder, stands := now.holderOf(i)
		isTakeover := stands && holder != source.Name && !applied.Has(i)
		if now.isToldByAnother(i) {
			continue
		}
		why := refusal(source, o, holder, now, own)
		if why == "" && isTakeover {
			why = takeoverRefusal(source, i, holder)
		}
		if why != "" {
			p.refused, p.unruled = append(p.refused, at(o, why)), p.unruled || i.kind == policyKind
			p.contested = p.contested || isContested(source, holder, now)
			p.withheld.Insert(poolNeeding(o)...)
			continue
		}
		if isTakeover {
			p.adopted = append(p.adopted, i)
		}
		p.apply = append(p.apply, o)
	}
	slices.SortStableFunc(p.apply, func(a, b compile.Object) int { return compareIDs(idOf(a), idOf(b)) })
	p.remove = slices.DeleteFunc(slices.Clone(p.held), wanted.Has)
	// Pools are deleted before their connections.
	slices.SortStableFunc(p.remove, func(a, b id) int { return slices.Index(kinds, b.kind) - slices.Index(kinds, a.kind) })
	return p
}

// holderOf returns the source that holds an object, if there is one, and whether the object exists.
func (s existing) holderOf(i id) (holder string, stands bool) {
	if s.live[i] == nil {
		return "", false
	}
	return s.live[i].Labels[v1alpha1.SourceLabel], true
}

// isToldByAnother reports whether the refusal of an object's ServiceAccount covers this object, too, so that only one
// refusal is reported.
func (s existing) isToldByAnother(i id) bool {
	return i.givesRights() && i.kind != accountKind && !s.byAccount
}

// takeoverRefusal returns why an existing object may not be taken over; empty if it may.
func takeoverRefusal(source types.NamespacedName, i id, holder string) string {
	why := ""
	switch {
	case holder != "":
		return ""
	case i.kind == connectionKind:
		why = "its credentials may belong to another team. To hand it over"
	case i.givesRights():
		why = "another workload may need its permissions. Set spec.template.spec.serviceAccountName of the pool to another ServiceAccount, or hand it over"
	default:
		return ""
	}
	return fmt.Sprintf("it already exists, and no source owns it: %s: kubectl label %s -n %s %s %s=%s",
		why, strings.ToLower(i.kind), source.Namespace, i.name, v1alpha1.SourceLabel, source.Name)
}

// refusal returns why an object may not be applied; empty if it may.
func refusal(source types.NamespacedName, o compile.Object, holder string, now existing, own *compile.OneNamespace) string {
	version := o.Manifest.GetAPIVersion()
	switch i := idOf(o); {
	case !slices.Contains(kinds, i.kind) || version != groupVersion(i.kind).String():
		return fmt.Sprintf("a PoolSource applies only %s and %s of %s, not %s of %s",
			strings.Join([]string{connectionKind, policyKind}, ", "), poolKind, v1alpha1.GroupVersion, i.kind, version)
	case i.givesRights() && !now.byAccount:
		return "with its Role and RoleBinding it is applied only as the ServiceAccount that spec.serviceAccountName of the PoolSource names, by whose rights it is: " +
			"name one, or name a ServiceAccount of your own in spec.template.spec.serviceAccountName of the pool"
	case isContested(source, holder, now):
		return fmt.Sprintf("PoolSource %q holds it; remove it there first", holder)
	}
	return own.Refusal(&o)
}

// isContested reports whether another source holds an object.
func isContested(source types.NamespacedName, holder string, now existing) bool {
	return holder != "" && holder != source.Name && now.sources.Has(holder)
}

func idOf(o compile.Object) id { return id{o.Manifest.GetKind(), o.Manifest.GetName()} }

// at prefixes a text about an object with its position and name.
func at(o compile.Object, text string) string {
	return compile.Format(o.Diagnostic("", fmt.Sprintf("%s: %s", idOf(o), text)))
}

// decide plans a revision. If the revision would remove too many pools, decide refuses all of it, because the cause is
// probably a mistake that also affects the revision's other objects.
func decide(source *v1alpha1.PoolSource, b built, now existing) (plan, error) {
	p := makePlan(client.ObjectKeyFromObject(source), b.result.Objects, now, readInventory(source))
	if !source.Spec.GetPrune() {
		p.remove = nil
	}
	revision := b.revision.name
	why, allowed := p.tooMuch(), source.Annotations[v1alpha1.AllowPruneAnnotation]
	if why == "" || allows(allowed, revision) {
		return p, nil
	}
	annotation, word := v1alpha1.AllowPruneAnnotation, shellWord(revision)
	causes := []catalog.Cause{catalog.PruneTooMuch.With(revision, strings.TrimPrefix(why, "It"), source.Namespace, source.Name, annotation, word)}
	if allowed != "" {
		causes = append(causes, catalog.AllowedAnother.With(annotation, shellWord(wording.TruncateRunes(allowed, 100))))
	}
	return p, kube.Stall(append(causes, inForce(source, revision), catalog.AllowPrune.With(source.Namespace, source.Name, annotation, word))...)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/@:+-]+$`)

// shellWord quotes an untrusted text as one word of a shell command that users copy.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// tooMuch returns why the plan removes too many pools; empty if it does not.
func (p plan) tooMuch() string {
	return compile.RemovesTooMany(len(poolsOf(p.held)), poolsOf(p.remove), p.pools)
}

// allows reports whether an annotation contains a revision, in full or only its commit.
func allows(annotation, revision string) bool {
	_, commit, _ := strings.Cut(revision, "sha1:")
	return annotation != "" && (annotation == revision || annotation == commit)
}

// poolsOf returns the names of the pools among objects.
func poolsOf(ids []id) []string {
	var names []string
	for _, i := range ids {
		if i.kind == poolKind {
			names = append(names, i.name)
		}
	}
	return names
}

// summary counts the applied objects, as "3 pools, 1 connection, 1 policy".
func (p plan) summary() string {
	n := map[string]int{}
	for _, o := range p.apply {
		n[idOf(o).kind]++
	}
	text := wording.Count(n[poolKind], "pool") + ", " + wording.Count(n[connectionKind], "connection")
	if n[policyKind] > 0 {
		text += ", " + wording.Count(n[policyKind], "policy")
	}
	return text
}

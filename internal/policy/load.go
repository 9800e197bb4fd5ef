// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Kinds of policies.
const (
	// KindRunnerPolicy is the kind of a policy that binds pools of its own namespace. It can only narrow the numbers that
	// they declare.
	KindRunnerPolicy = "RunnerPolicy"
	// KindClusterRunnerPolicy is the kind of a policy that binds pools of any namespace.
	KindClusterRunnerPolicy = "ClusterRunnerPolicy"
)

// Names of the decisions, as in Policy.Decisions.
const (
	// DecisionScaling is the decision of corral.scaling.
	DecisionScaling = "scaling"
	// DecisionTemplate is the decision of corral.template.
	DecisionTemplate = "template"
	// DecisionUpdate is the decision of corral.update.
	DecisionUpdate = "update"
)

// Source is one policy object with its modules, data and parameters, before it is loaded.
type Source struct {
	// Kind is KindRunnerPolicy or KindClusterRunnerPolicy.
	Kind string
	// Namespace is the namespace of the object; empty for the cluster kind.
	Namespace string
	// Name is the name of the object.
	Name string
	// Mode is Enforce or Audit; empty means Enforce.
	Mode v1alpha1.PolicyMode
	// Selector selects pools by labels; nil selects all pools in the policy's namespaces.
	Selector *metav1.LabelSelector
	// Namespaces are the namespaces that a cluster policy binds, with * for any characters; none means all.
	Namespaces []string
	// Library enables built-in rules, which read it as data.library.
	Library *v1alpha1.PolicyLibrary
	// Modules are Rego modules by file name; files that end in _test.rego are ignored.
	Modules map[string]string
	// Data is merged into the root of OPA's data document.
	Data map[string]any
	// DataFiles are JSON or YAML files by name. They are merged into the root of OPA's data document when the policy is
	// loaded.
	DataFiles map[string]string
	// Partial is true if this Source contains only a part of the policy's modules and data. References may then refer to
	// the missing part.
	Partial bool
	// Parameters are available to rules as data.parameters.
	Parameters map[string]any
	// Prints keeps the calls of print in the rules, and answers then contain their output. Otherwise the compiler removes
	// them.
	Prints bool `json:",omitempty"`
}

// Ref returns the policy's name: KIND/NAME or KIND/NAMESPACE/NAME.
func (s Source) Ref() string {
	if s.Namespace == "" {
		return s.Kind + "/" + s.Name
	}
	return s.Kind + "/" + s.Namespace + "/" + s.Name
}

// IsLibrary reports whether all rules of a policy are from the built-in library, and it has no files to parse. A tenant
// may still have written its parameters.
func (s Source) IsLibrary() bool { return len(s.Modules) == 0 && len(s.DataFiles) == 0 }

// Policy is one loaded policy object. Only its quarantine and its retirement change.
type Policy struct {
	source      Source
	ref         string
	digest      string
	selector    labels.Selector // nil if the source has none
	diagnostics []v1alpha1.Diagnostic
	facts       Facts
	program     *program      // nil if there are diagnostics, or if only another process has loaded the rules
	asker       Asker         // nil if only this process evaluates the rules
	limit       time.Duration // time limit of an evaluation in this process; 0 for none
	quarantine  quarantine
	retired     atomic.Bool
}

// Retire marks the policy as no longer in force. A decision in which another policy has already failed then skips it.
func (p *Policy) Retire() { p.retired.Store(true) }

// Facts are the properties of a policy's rules that a process without the rules needs.
type Facts struct {
	// Decisions are the decisions that the policy takes part in, sorted.
	Decisions []string
	// Needs are the inputs that the policy's scaling rules read.
	Needs Needs
	// Doubts are warnings about rules that load, but probably do not do what their authors mean.
	Doubts []v1alpha1.Diagnostic `json:",omitempty"`
}

// Load parses, checks and compiles a policy. A policy with diagnostics still binds its pools and fails every decision
// with NotLoaded. Untrusted rules must be loaded in a process with limited resources: compiling them may use all
// memory, or never end.
func Load(source Source) (*Policy, []v1alpha1.Diagnostic) {
	p, d := declared(source)
	checkSource(&source, &d)
	if len(d) == 0 {
		p.program = tryBuild(&source, &d)
	}
	if p.program != nil {
		p.facts = Facts{Decisions: slices.Sorted(maps.Keys(p.program.queries)), Needs: p.program.needs, Doubts: p.program.doubted}
	}
	p.diagnostics = d.sorted()
	p.source.Modules, p.source.Data, p.source.DataFiles, p.source.Parameters = nil, nil, nil, nil // the program contains them
	return p, p.Diagnostics()
}

// Elsewhere returns a policy whose rules were loaded without diagnostics in another process.
func Elsewhere(source Source, facts Facts, asker Asker) *Policy {
	p, d := declared(source)
	p.facts, p.asker, p.diagnostics = facts, asker, d.sorted()
	return p
}

// declared returns a policy with its selector, but without its rules.
func declared(source Source) (*Policy, diagnostics) {
	p := &Policy{source: source, ref: source.Ref(), digest: digest(&source), quarantine: quarantine{of: map[string]excesses{}}}
	var d diagnostics
	selector, err := metav1.LabelSelectorAsSelector(source.Selector)
	if err != nil {
		d.add(nil, "selector: %v; without one that holds, the policy binds every pool in reach", err)
	}
	if source.Selector != nil && err == nil {
		p.selector = selector
	}
	return p, d
}

// tryBuild builds a policy. It reports a panic of the compiler as a diagnostic.
func tryBuild(source *Source, d *diagnostics) (p *program) {
	defer func() {
		if fault := recover(); fault != nil {
			p = nil
			d.add(nil, "OPA can't compile the policy, for a fault of its own (%v): simplify the rules changed last", fault)
		}
	}()
	return build(source, d)
}

// Broken returns a policy that binds its pools and fails every decision with NotLoaded. The diagnostics name the
// problem that prevents the policy from loading, such as a missing ConfigMap.
func Broken(source Source, diagnostics []v1alpha1.Diagnostic) *Policy {
	reach := Source{
		Kind: source.Kind, Namespace: source.Namespace, Name: source.Name, Mode: source.Mode,
		Selector: source.Selector, Namespaces: source.Namespaces,
	}
	p, d := declared(reach)
	checkSource(&reach, &d)
	p.digest, p.diagnostics = digest(&source), append(slices.Clone(diagnostics), d.sorted()...)
	if len(p.diagnostics) == 0 {
		p.diagnostics = []v1alpha1.Diagnostic{{Message: "the policy could not be read"}}
	}
	return p
}

// Ref returns the policy's name, as Source.Ref does.
func (p *Policy) Ref() string { return p.ref }

// Mode returns the policy's mode; the default is Enforce.
func (p *Policy) Mode() v1alpha1.PolicyMode {
	return cmp.Or(p.source.Mode, v1alpha1.PolicyEnforce)
}

// Digest returns a hash of the policy's modules, data, library and parameters.
func (p *Policy) Digest() string { return p.digest }

// Facts returns the properties of the policy's rules.
func (p *Policy) Facts() Facts { return p.facts }

// Decisions returns the decisions that the policy takes part in, sorted.
func (p *Policy) Decisions() []string { return slices.Clone(p.facts.Decisions) }

// isLoaded reports whether the policy can be evaluated.
func (p *Policy) isLoaded() bool { return len(p.diagnostics) == 0 }

// Diagnostics returns the problems that prevent the policy from being loaded.
func (p *Policy) Diagnostics() []v1alpha1.Diagnostic { return slices.Clone(p.diagnostics) }

// Quarantined returns the namespaces for which the policy is in quarantine, sorted.
func (p *Policy) Quarantined() []string { return p.quarantine.namespaces() }

// Binds reports whether the policy applies to the pool.
func (p *Policy) Binds(pool Pool) bool {
	return p.reaches(pool.Namespace) && (p.selector == nil || p.selector.Matches(labels.Set(pool.Labels)))
}

// reaches reports whether the policy can apply to pools of the namespace.
func (p *Policy) reaches(namespace string) bool {
	if !p.isCluster() {
		return p.source.Namespace == namespace
	}
	return len(p.source.Namespaces) == 0 || slices.ContainsFunc(p.source.Namespaces, func(pattern string) bool {
		ok, err := path.Match(pattern, namespace)
		return ok || err != nil // an invalid pattern binds all namespaces
	})
}

func (p *Policy) isCluster() bool { return p.source.Kind == KindClusterRunnerPolicy }

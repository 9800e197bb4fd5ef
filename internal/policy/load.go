// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"path"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Kinds of policies.
const (
	// KindRunnerPolicy binds pools of its own namespace, and can only narrow what they declare.
	KindRunnerPolicy = "RunnerPolicy"
	// KindClusterRunnerPolicy binds pools of any namespace.
	KindClusterRunnerPolicy = "ClusterRunnerPolicy"
)

// Names of the decisions, as Policy.Decisions has them.
const (
	// DecisionScaling is what corral.scaling answers.
	DecisionScaling = "scaling"
	// DecisionTemplate is what corral.template answers.
	DecisionTemplate = "template"
	// DecisionUpdate is what corral.update answers.
	DecisionUpdate = "update"
)

// Source is one policy object with all that it reads, before it is loaded.
type Source struct {
	// Kind is KindRunnerPolicy or KindClusterRunnerPolicy.
	Kind string
	// Namespace of the object; empty for the cluster kind.
	Namespace string
	// Name of the object.
	Name string
	// Mode is Enforce if empty.
	Mode v1alpha1.PolicyMode
	// Selector of pools by labels; nil selects every pool in reach.
	Selector *metav1.LabelSelector
	// Namespaces that a cluster policy binds, by name or with * for any characters; none means all.
	Namespaces []string
	// Library switches on built-in rules, which read it as data.library.
	Library *v1alpha1.PolicyLibrary
	// Modules are Rego by file name; files that end in _test.rego are left out.
	Modules map[string]string
	// Data is merged at the root of data.
	Data map[string]any
	// DataFiles are JSON or YAML by file name, merged at the root of data when the policy is loaded.
	DataFiles map[string]string
	// Partial is true when more modules and data exist than are known here: then what rules refer to may be among those.
	Partial bool
	// Parameters are data.parameters.
	Parameters map[string]any
}

// Ref names the policy: KIND/NAME or KIND/NAMESPACE/NAME.
func (s Source) Ref() string {
	if s.Namespace == "" {
		return s.Kind + "/" + s.Name
	}
	return s.Kind + "/" + s.Namespace + "/" + s.Name
}

// IsLibrary reports whether a policy has no rules but the built-in library's, and nothing that has to be parsed. Its
// parameters may still be a tenant's.
func (s Source) IsLibrary() bool { return len(s.Modules) == 0 && len(s.DataFiles) == 0 }

// Policy is one policy object, loaded. It never changes, but for its quarantine, and when it is in force no more.
type Policy struct {
	source      Source
	ref         string
	digest      string
	selector    labels.Selector // nil when the source's is none
	diagnostics []v1alpha1.Diagnostic
	facts       Facts
	program     *program // nil with diagnostics, and when the rules are only elsewhere
	asker       Asker    // nil when the rules are only here
	limit       Limit    // of an evaluation here; nil for none
	quarantine  quarantine
	retired     atomic.Bool
}

// Retire says that the policy is in force no more. A decision that is void already doesn't ask it then.
func (p *Policy) Retire() { p.retired.Store(true) }

// Facts is what is known of a policy's rules to who doesn't have them.
type Facts struct {
	// Decisions that it takes part in, sorted.
	Decisions []string
	// Needs are what its scaling rules read.
	Needs Needs
}

// Load parses, checks and compiles a policy. With diagnostics it can't be asked: it binds
// its pools all the same, and fails with NotLoaded for every decision. Rules that aren't trusted
// must be loaded in a limited process: compiling them may take all memory, or never end.
func Load(source Source) (*Policy, []v1alpha1.Diagnostic) {
	p, d := declared(source)
	checkSource(&source, &d)
	if len(d) == 0 {
		p.program = tryBuild(&source, &d)
	}
	if p.diagnostics = d.sorted(); len(p.diagnostics) > 0 {
		p.program = nil
	} else {
		p.facts = Facts{Decisions: p.program.decisions(), Needs: p.program.needs}
	}
	p.source.Modules, p.source.Data, p.source.DataFiles, p.source.Parameters = nil, nil, nil, nil // the program has them
	return p, p.Diagnostics()
}

// Elsewhere returns a policy whose rules another process has, which Load found nothing wrong with there.
func Elsewhere(source Source, facts Facts, asker Asker) *Policy {
	p, d := declared(source)
	p.facts, p.asker, p.diagnostics = facts, asker, d.sorted()
	return p
}

// declared returns a policy without its rules.
func declared(source Source) (*Policy, diagnostics) {
	p := &Policy{source: source, ref: source.Ref(), digest: digest(&source)}
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

// tryBuild builds a policy, and tells of a fault of the compiler instead of falling over it.
func tryBuild(source *Source, d *diagnostics) (p *program) {
	defer func() {
		if fault := recover(); fault != nil {
			p = nil
			d.add(nil, "OPA can't compile the policy, for a fault of its own (%v): simplify the rules changed last", fault)
		}
	}()
	return build(source, d)
}

// Broken returns a policy that binds its pools and fails every decision with NotLoaded, for
// what keeps it from being made, such as a ConfigMap that is gone.
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

// Ref names the policy, as Source.Ref.
func (p *Policy) Ref() string { return p.ref }

// Mode says what becomes of its answers.
func (p *Policy) Mode() v1alpha1.PolicyMode {
	return cmp.Or(p.source.Mode, v1alpha1.PolicyEnforce)
}

// Digest is a hash of modules, data, library and parameters.
func (p *Policy) Digest() string { return p.digest }

// Facts is what is known of its rules.
func (p *Policy) Facts() Facts { return p.facts }

// Decisions that it takes part in, sorted.
func (p *Policy) Decisions() []string { return slices.Clone(p.facts.Decisions) }

// isLoaded tells whether it can be asked.
func (p *Policy) isLoaded() bool { return len(p.diagnostics) == 0 }

// Diagnostics say what keeps it from being loaded.
func (p *Policy) Diagnostics() []v1alpha1.Diagnostic { return slices.Clone(p.diagnostics) }

// Quarantined lists the namespaces for whose pools it is asked only from time to time, as it took too much too often, sorted.
func (p *Policy) Quarantined() []string { return p.quarantine.namespaces() }

// Binds tells whether the policy is asked about the pool.
func (p *Policy) Binds(pool Pool) bool {
	return p.reaches(pool.Namespace) && (p.selector == nil || p.selector.Matches(labels.Set(pool.Labels)))
}

// reaches tells whether pools of the namespace can be bound.
func (p *Policy) reaches(namespace string) bool {
	if !p.isCluster() {
		return p.source.Namespace == namespace
	}
	return len(p.source.Namespaces) == 0 || slices.ContainsFunc(p.source.Namespaces, func(pattern string) bool {
		ok, err := path.Match(pattern, namespace)
		return ok || err != nil // what can't be read binds all
	})
}

func (p *Policy) isCluster() bool { return p.source.Kind == KindClusterRunnerPolicy }

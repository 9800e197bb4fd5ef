// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Policy is one policy object, loaded. It never changes, but for a count of its time-outs.
type Policy struct {
	source      Source
	diagnostics []v1alpha1.Diagnostic
	decisions   []string
}

// Load parses, checks and compiles a policy. With diagnostics it can't be asked: it binds
// its pools all the same, and fails with NotLoaded for every decision.
func Load(source Source) (*Policy, []v1alpha1.Diagnostic) {
	return &Policy{source: source}, nil
}

// Ref names the policy, as Source.Ref.
func (p *Policy) Ref() string { return p.source.Ref() }

// Mode says what becomes of its answers.
func (p *Policy) Mode() v1alpha1.PolicyMode {
	if p.source.Mode == "" {
		return v1alpha1.PolicyEnforce
	}
	return p.source.Mode
}

// Digest is a hash of modules, data, library and parameters.
func (p *Policy) Digest() string { return "" }

// Decisions that it takes part in, sorted.
func (p *Policy) Decisions() []string { return p.decisions }

// Diagnostics say what keeps it from being loaded.
func (p *Policy) Diagnostics() []v1alpha1.Diagnostic { return p.diagnostics }

// Binds tells whether the policy is asked about the pool.
func (p *Policy) Binds(Pool) bool { return false }

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// PolicyMode determines the effect of a policy's answers.
// +kubebuilder:validation:Enum=Enforce;Audit
type PolicyMode string

const (
	// PolicyEnforce lets the policy decide.
	PolicyEnforce PolicyMode = "Enforce"
	// PolicyAudit evaluates the policy and only reports what would change.
	PolicyAudit PolicyMode = "Audit"
)

// Limits of one policy's Rego.
const (
	// MaxPolicyModules is the maximum number of modules of one policy.
	MaxPolicyModules = 64
	// MaxPolicyBytes is the maximum size of its modules and data together. A loaded policy may use more than a hundred times
	// that memory.
	MaxPolicyBytes = 128 << 10
)

// PolicyRules contains the fields that both kinds of policies have: rules, and a selector of pools.
type PolicyRules struct {
	// mode is Enforce (default), or Audit to only report in the status what would change.
	// +optional
	// +kubebuilder:default=Enforce
	Mode PolicyMode `json:"mode,omitempty"`

	// selector of pools by their labels. Default: every pool that the policy can apply to.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// library enables rules of the built-in library.
	// +optional
	Library *PolicyLibrary `json:"library,omitempty"`

	// modules are Rego files by name (NAME.rego), in the packages corral.scaling, corral.template and corral.update, and in
	// packages that these use.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.endsWith('.rego'))",message="modules are named NAME.rego"
	Modules map[string]string `json:"modules,omitempty"`

	// data is a JSON object whose fields rules read as data.NAME.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XValidation:rule="!has(self.library) && !has(self.parameters)",message="data must not have the keys library and parameters: in rules, data.library is spec.library and data.parameters is spec.parameters"
	Data *runtime.RawExtension `json:"data,omitempty"`

	// parameters is a JSON object that the policy's own rules read as data.parameters.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

// RunnerPolicySpec is a policy for the pools of its namespace. It can restrict what they declare, and never extends it.
type RunnerPolicySpec struct {
	PolicyRules `json:",inline"`

	// modulesFrom names ConfigMaps of the namespace. Each key *.rego is a module, and the keys data.json and data.yaml are
	// data. Corral reads them every minute, and at once after a change if they have the label reconcile.fluxcd.io/watch:
	// Enabled.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(m, self.exists_one(n, n == m))",message="modulesFrom must not name a ConfigMap twice"
	// +listType=atomic
	ModulesFrom []ModulesSource `json:"modulesFrom,omitempty"`
}

// ModulesSource is an object that holds modules.
// +structType=atomic
type ModulesSource struct {
	// configMapRef names a ConfigMap.
	// +required
	ConfigMapRef LocalObjectReference `json:"configMapRef"`
}

// ClusterRunnerPolicySpec is a policy for pools of any namespace: a guard rail, which no RunnerPolicy can widen.
type ClusterRunnerPolicySpec struct {
	PolicyRules `json:",inline"`

	// namespaces whose pools the policy applies to, by name; * matches any characters. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$`
	Namespaces []string `json:"namespaces,omitempty"`

	// modulesFrom names ConfigMaps: each key *.rego is a module, the keys data.json and
	// data.yaml are data.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(m, self.exists_one(n, n == m))",message="modulesFrom must not name a ConfigMap twice"
	// +listType=atomic
	ModulesFrom []ClusterModulesSource `json:"modulesFrom,omitempty"`
}

// ClusterModulesSource is an object in any namespace that holds modules.
// +structType=atomic
type ClusterModulesSource struct {
	// configMapRef names a ConfigMap.
	// +required
	ConfigMapRef NamespacedObjectReference `json:"configMapRef"`
}

// NamespacedObjectReference names an object in any namespace.
type NamespacedObjectReference struct {
	// namespace of the referent.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
	// name of the referent.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RunnerPolicyStatus describes the loaded policy and its effects.
type RunnerPolicyStatus struct {
	// observedGeneration is the last reconciled generation.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, and Reconciling or Stalled while they apply.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// causes explain the conditions in machine-readable form, beginning with the causes of Ready.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Causes []Cause `json:"causes,omitempty"`

	// mode of the policy: spec.mode, or its default.
	// +optional
	Mode PolicyMode `json:"mode,omitempty"`

	// digest of the modules, data, library and parameters that are loaded.
	// +optional
	Digest string `json:"digest,omitempty"`

	// decisions for which it has rules: scaling, template, update.
	// +optional
	// +listType=set
	Decisions []string `json:"decisions,omitempty"`

	// pools is the number of pools to which it applies.
	// +optional
	Pools int32 `json:"pools"`

	// diagnostics are the first 20 errors that prevent the policy from being loaded.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Diagnostics []Diagnostic `json:"diagnostics,omitempty"`

	// wouldChange lists the first 20 decisions that would change if an audited policy were enforced.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	WouldChange []AuditFinding `json:"wouldChange,omitempty"`

	meta.ReconcileRequestStatus `json:",inline"`
}

// AuditFinding is one decision that an audited policy would change.
type AuditFinding struct {
	// pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// decision is scaling, template or update.
	Decision string `json:"decision"`
	// message describes the change and names the rule that would cause it.
	Message string `json:"message"`
}

// RunnerPolicy holds rules for the pools of its namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rpolicy,categories=corral
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Pools",type=integer,JSONPath=`.status.pools`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RunnerPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerPolicySpec `json:"spec"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status RunnerPolicyStatus `json:"status,omitzero"`
	Unread `json:"-"`
}

// GetConditions returns the status conditions.
func (p *RunnerPolicy) GetConditions() []metav1.Condition { return p.Status.Conditions }

// Causes returns the list of causes in its status.
func (p *RunnerPolicy) Causes() *[]Cause { return &p.Status.Causes }

// SetConditions replaces the status conditions.
func (p *RunnerPolicy) SetConditions(conditions []metav1.Condition) { p.Status.Conditions = conditions }

// SetObservedGeneration records the reconciled generation.
func (p *RunnerPolicy) SetObservedGeneration(generation int64) {
	p.Status.ObservedGeneration = generation
}

// GetRules returns the fields that both kinds of policies have.
func (p *RunnerPolicy) GetRules() *PolicyRules { return &p.Spec.PolicyRules }

// ConfigMaps returns the ConfigMaps that modulesFrom names.
func (p *RunnerPolicy) ConfigMaps() (names []types.NamespacedName) {
	for _, c := range p.Spec.ModulesFrom {
		names = append(names, types.NamespacedName{Namespace: p.Namespace, Name: c.ConfigMapRef.Name})
	}
	return names
}

// GetPolicyStatus returns the status.
func (p *RunnerPolicy) GetPolicyStatus() *RunnerPolicyStatus { return &p.Status }

// RunnerPolicyList is a list of RunnerPolicies.
// +kubebuilder:object:root=true
type RunnerPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunnerPolicy `json:"items"`
}

// ClusterRunnerPolicy holds rules for pools of any namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=crpolicy,categories=corral
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Pools",type=integer,JSONPath=`.status.pools`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterRunnerPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ClusterRunnerPolicySpec `json:"spec"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status RunnerPolicyStatus `json:"status,omitzero"`
	Unread `json:"-"`
}

// GetConditions returns the status conditions.
func (p *ClusterRunnerPolicy) GetConditions() []metav1.Condition { return p.Status.Conditions }

// Causes returns the list of causes in its status.
func (p *ClusterRunnerPolicy) Causes() *[]Cause { return &p.Status.Causes }

// SetConditions replaces the status conditions.
func (p *ClusterRunnerPolicy) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// SetObservedGeneration records the reconciled generation.
func (p *ClusterRunnerPolicy) SetObservedGeneration(generation int64) {
	p.Status.ObservedGeneration = generation
}

// GetRules returns the fields that both kinds of policies have.
func (p *ClusterRunnerPolicy) GetRules() *PolicyRules { return &p.Spec.PolicyRules }

// ConfigMaps returns the ConfigMaps that modulesFrom names.
func (p *ClusterRunnerPolicy) ConfigMaps() (names []types.NamespacedName) {
	for _, c := range p.Spec.ModulesFrom {
		names = append(names, types.NamespacedName{Namespace: c.ConfigMapRef.Namespace, Name: c.ConfigMapRef.Name})
	}
	return names
}

// GetPolicyStatus returns the status.
func (p *ClusterRunnerPolicy) GetPolicyStatus() *RunnerPolicyStatus { return &p.Status }

// ClusterRunnerPolicyList is a list of ClusterRunnerPolicies.
// +kubebuilder:object:root=true
type ClusterRunnerPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterRunnerPolicy `json:"items"`
}

// GetMode returns mode or its default.
func (r *PolicyRules) GetMode() PolicyMode { return cmp.Or(r.Mode, PolicyEnforce) }

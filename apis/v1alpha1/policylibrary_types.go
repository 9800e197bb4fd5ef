// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyLibrary switches on families of rules of the built-in library, by their
// parameters. Rules read them below data.library.
type PolicyLibrary struct {
	// images that runners' pods may use.
	// +optional
	Images *ImageRules `json:"images,omitempty"`

	// podSecurity is the Pod Security level that pods must keep, and the host access they may have.
	// +optional
	PodSecurity *PodSecurityRules `json:"podSecurity,omitempty"`

	// resources that containers must request, and the most that a pod may take.
	// +optional
	Resources *ResourceRules `json:"resources,omitempty"`

	// hours bound pools by the time of the week, and freeze them.
	// +optional
	Hours *HourRules `json:"hours,omitempty"`

	// ceilings are shared by groups of pools.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Ceilings []Ceiling `json:"ceilings,omitempty"`
}

// ImageRules say which images are allowed.
type ImageRules struct {
	// allowed are the images that may be used, as prefixes that end in / or with * for any
	// characters: ghcr.io/acme/*. Default: any.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Allowed []string `json:"allowed,omitempty"`

	// requireDigest refuses images that aren't named by their digest.
	// +optional
	RequireDigest bool `json:"requireDigest,omitempty"`
}

// PodSecurityLevel is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurityLevel string

// PodSecurityRules say which Pod Security level holds.
type PodSecurityRules struct {
	// level of pools whose trust isn't named below.
	// +required
	Level PodSecurityLevel `json:"level"`

	// byTrust is the level by the pool's spec.trust.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	ByTrust map[string]PodSecurityLevel `json:"byTrust,omitempty"`

	// hostPaths that pods may mount although their level forbids it, and what is below them.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	HostPaths []string `json:"hostPaths,omitempty"`
}

// ResourceRules say what containers must ask for and may have.
type ResourceRules struct {
	// requireRequests of every container, as cpu and memory.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	RequireRequests []corev1.ResourceName `json:"requireRequests,omitempty"`

	// requireLimits of every container.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	RequireLimits []corev1.ResourceName `json:"requireLimits,omitempty"`

	// maxPerPod is the most that a pod's containers may request, and have as limits, in total.
	// +optional
	MaxPerPod corev1.ResourceList `json:"maxPerPod,omitempty"`
}

// HourRules bound pools by time.
type HourRules struct {
	// zone of the times, as in the IANA database: Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Zone string `json:"zone,omitempty"`

	// open are the windows of the week outside of which the numbers below hold.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Open []WeeklyWindow `json:"open,omitempty"`

	// closed holds outside of the open windows.
	// +optional
	Closed *ClosedLimits `json:"closed,omitempty"`

	// freezes hold updates, and bound pools, for a time.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Freezes []Freeze `json:"freezes,omitempty"`
}

// WeeklyWindow is a time of the week. One that ends before it begins goes on past midnight.
type WeeklyWindow struct {
	// days on which it begins.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days"`

	// from is when it begins, HH:MM.
	// +required
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	From string `json:"from"`

	// to is when it ends, HH:MM; 24:00 is midnight.
	// +required
	// +kubebuilder:validation:Pattern=`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	To string `json:"to"`
}

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// ClosedLimits are upper bounds of a pool's numbers.
type ClosedLimits struct {
	// max runners.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Max *int32 `json:"max,omitempty"`
	// min runners.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Min *int32 `json:"min,omitempty"`
	// idle runners.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Idle *int32 `json:"idle,omitempty"`
}

// Freeze is a time in which pools aren't updated.
type Freeze struct {
	// name to call it by.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// from is when it begins.
	// +required
	From metav1.Time `json:"from"`
	// to is when it ends.
	// +required
	To metav1.Time `json:"to"`
	// limits that hold meanwhile.
	// +optional
	Limits *ClosedLimits `json:"limits,omitempty"`
}

// CeilingGroup says which pools share a ceiling.
// +kubebuilder:validation:Enum=All;Namespace;Connection;Label
type CeilingGroup string

// CeilingShare says how pools share a ceiling.
// +kubebuilder:validation:Enum=FirstCome;Fair
type CeilingShare string

// Ceiling is the most runners that a group of pools has together.
// +kubebuilder:validation:XValidation:rule="(self.by == 'Label') == has(self.label)",message="label must be set when by is Label, and only then"
type Ceiling struct {
	// name to call it by.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// by is what the pools of a group have in common: their Namespace, Connection or Label; All is one group.
	// +required
	By CeilingGroup `json:"by"`

	// label whose value the pools of a group have in common; pools without it aren't bound.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`

	// max runners of each group together.
	// +required
	// +kubebuilder:validation:Minimum=0
	Max int32 `json:"max"`

	// share is Fair (default): each pool that wants runners may have an equal part of them, and borrow
	// what others don't want. FirstCome: whoever asks first.
	// +optional
	Share CeilingShare `json:"share,omitempty"`

	// soft serves jobs that GitHub had assigned already, above the ceiling. Otherwise they wait.
	// +optional
	Soft bool `json:"soft,omitempty"`
}

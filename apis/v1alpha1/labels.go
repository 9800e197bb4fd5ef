// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// ownerLabelPrefix is the prefix of the label on GitHub that identifies the pool of a runner.
const ownerLabelPrefix = "corral-owner-"

// MaxStatusText is the maximum length of a text in a status, in bytes. Longer texts are cut.
const MaxStatusText = 8 << 10

// UnknownJob is the id of a job that GitHub has not named yet although a runner has it.
const UnknownJob = "unknown"

// systems and architectures are GitHub's own labels for the platform of a runner:
// https://docs.github.com/actions/hosting-your-own-runners/managing-self-hosted-runners/using-labels-with-self-hosted-runners
var (
	systems       = []string{"linux", "windows", "macos"}
	architectures = []string{"x64", "arm64", "arm", "x86"}
)

// OwnerLabel is the label on GitHub of the runners that a pool of this cluster registers with the
// REST API. It identifies both without revealing their names, so that Corral finds leftover runners.
func OwnerLabel(cluster, poolUID string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + poolUID))
	return ownerLabelPrefix + hex.EncodeToString(sum[:4])
}

// IsOwnerLabel reports whether a label on GitHub identifies the pool that owns a runner. Like GitHub, it ignores case.
func IsOwnerLabel(label string) bool {
	return strings.HasPrefix(strings.ToLower(label), ownerLabelPrefix)
}

// Mark returns the owner label of a runner, which is the last label of GetMarkedLabels; "" if it has none. A label that the
// pool declares is never an owner label.
func (r *RESTRegistration) Mark() string {
	if n := len(r.Labels); n > 0 && IsOwnerLabel(r.Labels[n-1]) {
		return r.Labels[n-1]
	}
	return ""
}

// GetRegisteredLabels returns the labels that a runner of the pool with registration REST has on
// GitHub, except for the owner label: the declared labels, self-hosted, and the labels of its system and
// architecture, which GitHub does not add to a runner that is registered in advance. Corral does not
// check a declared system or architecture.
func (p *RunnerPool) GetRegisteredLabels() []string {
	var labels []string
	add := func(label string) {
		if !slices.ContainsFunc(labels, func(l string) bool { return strings.EqualFold(l, label) }) {
			labels = append(labels, label)
		}
	}
	for _, label := range p.GetRunnerLabels() {
		add(label)
	}
	hasSystem, hasArchitecture := anyFold(labels, systems), anyFold(labels, architectures)
	add("self-hosted")
	if !hasSystem {
		add(systems[0])
	}
	if !hasArchitecture {
		add(p.architecture())
	}
	return labels
}

// GetMarkedLabels returns the registered labels and the owner label, which a cluster uses to find leftover runners.
func (p *RunnerPool) GetMarkedLabels(cluster string) []string {
	return append(p.GetRegisteredLabels(), OwnerLabel(cluster, string(p.UID)))
}

// architecture returns GitHub's name for the architecture of the nodes that the template selects.
func (p *RunnerPool) architecture() string {
	var template struct {
		Spec struct {
			NodeSelector map[string]string `json:"nodeSelector"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(p.Spec.Template.Raw, &template) // internal/podspec reports errors
	switch template.Spec.NodeSelector["kubernetes.io/arch"] {
	case "arm64":
		return "arm64"
	case "arm":
		return "arm"
	}
	return "x64"
}

func anyFold(labels, names []string) bool {
	return slices.ContainsFunc(labels, func(l string) bool {
		return slices.ContainsFunc(names, func(w string) bool { return strings.EqualFold(l, w) })
	})
}

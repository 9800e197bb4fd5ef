// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobmatch

import (
	"encoding/json"
	"slices"
	"strings"
)

// Labels that GitHub's runners have by themselves: https://docs.github.com/actions/hosting-your-own-runners/managing-self-hosted-runners/using-labels-with-self-hosted-runners
const (
	selfHosted = "self-hosted"
	linux      = "linux"
	x64        = "x64"
)

var (
	systems       = []string{linux, "windows", "macos"}
	architectures = []string{x64, "arm64", "arm"}
)

// Registered returns the labels that a runner bears so that GitHub gives it the jobs which match: the declared ones, self-hosted,
// and os and arch unless a declared one says another operating system or architecture. The declared ones come first, as they are written.
func Registered(declared []string, os, arch string) []string {
	labels := slices.Clone(declared)
	for _, own := range []struct {
		label string
		of    []string
	}{{selfHosted, []string{selfHosted}}, {os, systems}, {arch, architectures}} {
		if own.label != "" && !slices.ContainsFunc(declared, func(l string) bool { return isOne(own.of, l) }) {
			labels = append(labels, own.label)
		}
	}
	return labels
}

func isOne(of []string, label string) bool {
	return slices.ContainsFunc(of, func(one string) bool { return strings.EqualFold(one, label) })
}

// System returns the labels of the operating system and the architecture that a pod template asks its node to have:
// linux and x64 where it doesn't say.
func System(template []byte) (os, arch string) {
	var t struct {
		Spec struct {
			NodeSelector map[string]string `json:"nodeSelector"`
		} `json:"spec"`
	}
	os, arch = linux, x64
	if json.Unmarshal(template, &t) != nil {
		return os, arch // whoever builds the pod says what is wrong
	}
	if v := t.Spec.NodeSelector["kubernetes.io/os"]; v == "windows" {
		os = v
	}
	if v := t.Spec.NodeSelector["kubernetes.io/arch"]; v == "arm64" || v == "arm" {
		arch = v
	}
	return os, arch
}

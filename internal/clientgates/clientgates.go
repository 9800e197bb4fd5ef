// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package clientgates keeps the feature gates of client-go that are read from the environment (KUBE_FEATURE_…).
package clientgates

import "k8s.io/client-go/features" //nolint:depguard // it has gates and no client

// environment holds client-go's own gates. Go initializes packages that are ready in the order of their paths, so this one comes before
// k8s.io/kubernetes/pkg/features, which replaces the gates with those of a server, which ignore the environment.
var environment = features.FeatureGates()

// Restore makes client-go use its own gates again.
func Restore() { features.ReplaceFeatureGates(environment) }

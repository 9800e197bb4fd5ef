// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package clientgates keeps client-go's own feature gates, which users can set with environment variables (KUBE_FEATURE_…),
// in a program that imports k8s.io/kubernetes.
package clientgates

import "k8s.io/client-go/features" //nolint:depguard // imports the gates, not a client

// environment holds client-go's own gates. k8s.io/kubernetes/pkg/features replaces them with the gates of a server, which
// ignore the environment. Go initializes packages that do not depend on each other in the order of their import paths, so
// it initializes this variable before that package.
var environment = features.FeatureGates()

// Restore makes client-go use its own gates again. Call it after k8s.io/kubernetes/pkg/features was initialized, for
// example from the init function of a package that imports it.
func Restore() { features.ReplaceFeatureGates(environment) }

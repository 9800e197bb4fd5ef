// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package clientgates preserves client-go's feature gates that are set with environment variables (KUBE_FEATURE_…).
package clientgates

import "k8s.io/client-go/features" //nolint:depguard // imports the gates, not a client

// environment contains client-go's own gates. Go initializes independent packages in the order of their paths. This package
// therefore comes before k8s.io/kubernetes/pkg/features, which replaces the gates with a server's gates that ignore the
// environment.
var environment = features.FeatureGates()

// Restore makes client-go use its own gates again.
func Restore() { features.ReplaceFeatureGates(environment) }

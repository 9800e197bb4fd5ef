// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/corral-dev/corral/apis/v1alpha1"

// Causes of policies.
var (
	PolicyBroken      = define(Row{Code: "PolicyBroken", Reason: v1alpha1.PolicyInvalidReason, Stalls: true, Message: "{problems}"})
	LastDecisionHolds = define(Row{Code: "LastDecisionHolds", Role: Meanwhile, Message: "Its pools keep the last decision"})
)

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/corral-dev/corral/apis/v1alpha1"

// Causes of scalesets.
var (
	RunnersLeaving             = define(Row{Code: "RunnersLeaving", Reason: v1alpha1.DrainingReason, Volatile: []string{"progress"}, Message: "{progress}"})
	ScaleSetUnknown            = define(Row{Code: "ScaleSetUnknown", Reason: v1alpha1.DrainingReason, Message: "GitHub does not know scale set {id}; Corral asks again"})
	SessionNeeded              = define(Row{Code: "SessionNeeded", Reason: v1alpha1.DrainingReason, Message: "deleting needs the session: {state}"})
	DeletionNeedsConnection    = define(Row{Code: "DeletionNeedsConnection", Reason: v1alpha1.ConnectionNotReadyReason, Message: `deleting the scale set needs GitHubConnection "{connection}"`})
	PoolOfAnotherNamespace     = define(Row{Code: "PoolOfAnotherNamespace", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "spec.poolUID is that of a pool of another namespace"})
	ScaleSetOfAnotherNamespace = define(Row{Code: "ScaleSetOfAnotherNamespace", Reason: v1alpha1.OwnedElsewhereReason, Stalls: true, Message: `the scale set "{name}" is that of a RunnerPool of another namespace of this cluster; choose another spec.scaleSetName`})
	ScaleSetHeld               = define(Row{Code: "ScaleSetHeld", Reason: v1alpha1.OwnedElsewhereReason, Stalls: true, Message: `the scale set "{name}" is held by {owner}; choose another spec.scaleSetName or end the other`})
	ScaleSetHeldByTwin         = define(Row{Code: "ScaleSetHeldByTwin", Reason: v1alpha1.OwnedElsewhereReason, Stalls: true, Message: `the scale set "{name}" is held by another controller that calls itself as this one does; end it, or give a copied cluster another --cluster-id`})
	RunnerGroupMissing         = define(Row{Code: "RunnerGroupMissing", Reason: v1alpha1.RunnerGroupNotFoundReason, Stalls: true, Message: `runner group "{group}" is not there, or GitHubConnection "{connection}" may not see it: create it on GitHub, or correct spec.runnerGroup`})
	SessionOpening             = define(Row{Code: "SessionOpening", Reason: v1alpha1.ProgressingReason, Message: "opening a session"})
	SessionOfFormerPool        = define(Row{Code: "SessionOfFormerPool", Reason: v1alpha1.SessionRefusedReason, Message: "a session that this process doesn't know has not expired yet; no runner is started until it has, 92 s after its last poll as a rule"})
	SessionUnexpired           = define(Row{Code: "SessionUnexpired", Reason: v1alpha1.SessionRefusedReason, Message: "an earlier session of this pool has not expired yet; jobs are served meanwhile"})
	SessionClosedWithoutAccess = define(Row{Code: "SessionClosedWithoutAccess", Reason: v1alpha1.AccessDeniedReason, Message: "the session was closed"})
	SessionClosedForOwner      = define(Row{Code: "SessionClosedForOwner", Reason: v1alpha1.OwnedElsewhereReason, Message: "the session was closed"})
	GroupLabelsDropped         = define(Row{Code: "GroupLabelsDropped", Reason: v1alpha1.LabelsDroppedReason, Message: "GitHub kept {kept} of {wanted}: servers before 3.21 take one label; jobs find this pool by those only"})
	FormerLabelsKept           = define(Row{Code: "FormerLabelsKept", Reason: v1alpha1.LabelsKeptReason, Message: "GitHub keeps {kept} although {wanted} were asked for: jobs find this pool by the former only; delete the pool and declare it again, or let another name have the new ones"})
	Listening                  = define(Row{Code: "Listening", Role: Lead, Message: "listening"})
)

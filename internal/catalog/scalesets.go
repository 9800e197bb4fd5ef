// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/corral-dev/corral/apis/v1alpha1"

// Causes of RunnerScaleSets.
var (
	RunnersLeaving             = define(Row{Code: "RunnersLeaving", Reason: v1alpha1.DrainingReason, Volatile: []string{"progress"}, Message: "{progress}"})
	ScaleSetUnknown            = define(Row{Code: "ScaleSetUnknown", Reason: v1alpha1.DrainingReason, Message: "GitHub does not know scale set {id}; Corral retries", Remedy: "Wait. If this persists, check the controller's log."})
	SessionNeeded              = define(Row{Code: "SessionNeeded", Reason: v1alpha1.DrainingReason, Message: "the deletion requires the session: {state}", Remedy: "Wait: Corral deletes the scale set when it has the session. If this persists, check the controller's log."})
	DeletionNeedsConnection    = define(Row{Code: "DeletionNeedsConnection", Reason: v1alpha1.ConnectionNotReadyReason, Message: `the deletion of the scale set requires GitHubConnection "{connection}"`})
	PoolOfAnotherNamespace     = define(Row{Code: "PoolOfAnotherNamespace", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "spec.poolUID refers to a pool in another namespace"})
	ScaleSetOfAnotherNamespace = define(Row{Code: "ScaleSetOfAnotherNamespace", Reason: v1alpha1.OwnedElsewhereReason, Stalls: true, Message: `the scale set "{name}" belongs to a RunnerPool in another namespace of this cluster: use another spec.scaleSetName`})
	ScaleSetHeld               = define(Row{Code: "ScaleSetHeld", Reason: v1alpha1.OwnedElsewhereReason, Stalls: true, Message: `the scale set "{name}" is owned by {owner}: use another spec.scaleSetName or stop the owner`})
	ScaleSetHeldByTwin         = define(Row{Code: "ScaleSetHeldByTwin", Reason: v1alpha1.OwnedElsewhereReason, Stalls: true, Message: `the scale set "{name}" is owned by another controller with the same identity: stop it, or give a copied cluster another --cluster-id`})
	RunnerGroupMissing         = define(Row{Code: "RunnerGroupMissing", Reason: v1alpha1.RunnerGroupNotFoundReason, Stalls: true, Message: `runner group "{group}" not found, or GitHubConnection "{connection}" has no access to it: create it on GitHub, or correct spec.runnerGroup`})
	SessionOpening             = define(Row{Code: "SessionOpening", Reason: v1alpha1.ProgressingReason, Message: "opening a session"})
	SessionOfFormerPool        = define(Row{Code: "SessionOfFormerPool", Reason: v1alpha1.SessionRefusedReason, Message: "an earlier session with an unknown owner has not expired yet: Corral starts no runners until it expires, usually 92 s after its last poll"})
	SessionUnexpired           = define(Row{Code: "SessionUnexpired", Reason: v1alpha1.SessionRefusedReason, Message: "an earlier session of this pool has not expired yet; Corral serves jobs in the meantime"})
	SessionClosedWithoutAccess = define(Row{Code: "SessionClosedWithoutAccess", Reason: v1alpha1.AccessDeniedReason, Message: "the session was closed"})
	SessionClosedForOwner      = define(Row{Code: "SessionClosedForOwner", Reason: v1alpha1.OwnedElsewhereReason, Message: "the session was closed"})
	GroupLabelsDropped         = define(Row{Code: "GroupLabelsDropped", Reason: v1alpha1.LabelsDroppedReason, Message: "GitHub kept only {kept} of {wanted}, so jobs find this pool only by the labels that it kept: servers before 3.21 support one label"})
	FormerLabelsKept           = define(Row{Code: "FormerLabelsKept", Reason: v1alpha1.LabelsKeptReason, Message: "GitHub keeps {kept} instead of {wanted}, so jobs find this pool only by the previous labels: delete the pool and create it again, or use another scale set name for the new labels"})
	Listening                  = define(Row{Code: "Listening", Role: Lead, Message: "listening"})
)

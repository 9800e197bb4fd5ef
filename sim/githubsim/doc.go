// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package githubsim is a simulated GitHub for tests and experiments: the REST API and the Actions service for runner
// scale sets, the runners' side of both, and an admin API that adds jobs and faults and reports what happened.
//
// # Serving
//
// [Start] listens on a local port. To clients, its URL is a GitHub Enterprise Server with the REST API below /api/v3;
// the paths of api.github.com work too. Organizations, repositories, groups, tokens and Apps exist once they are added.
// Every token is checked: kind, lifetime, scope and permission.
//
//	REST        /orgs/…, /repos/…, /app/…, /actions/runner-registration
//	service     /_services/pipelines/{tenant}/_apis/…   scale sets, sessions, JIT, agents
//	queue       /_broker/scalesets/message              long polls, acknowledgements
//	runner      /_runner/…                              see package simrunner
//	admin       /_sim/…                                 not part of GitHub; no token
//
// # The life of a job
//
//	queued → [available →] assigned → (delivered) → running → completed
//
// A queued job goes to the first scale set that may have it: same repository, organization or enterprise, a group that
// sees the repository, all of the job's labels, and room below the capacity that the last poll announced. With
// [AutoAssign] it is assigned at once; with [Acquire] it is offered until it is acquired. Any free runner of the scale
// set gets the job; once the runner acknowledges it, the job runs. Runners are ephemeral: a runner that reports a
// result loses its registration. When a scale set is deleted, its jobs without a runner return to the queue.
//
// A runner that the REST API registered belongs to no scale set. While it waits, it gets the oldest queued job for its
// scope, group and labels. [Server.AddHook] adds a webhook that receives each step of a job. Deliveries are never
// repeated. [Server.AddDeliveryFault] loses, delays, doubles and reorders them, and the REST API lists them, as on
// github.com.
//
// The announced capacity lasts as long as the session. A session ends when it is deleted or was silent for
// [Options.SessionExpiry]. Jobs that were offered in it return to the queue; assigned jobs stay assigned.
//
// # The queue
//
// Pending events become messages, of up to fifty events each, when a client polls. A message belongs to the scale set:
// every poll with a lower cursor receives it, in this session or a later one, until it is deleted. Statistics are
// computed at the time of delivery. A poll is held for [Options.Hold] of real time.
//
// # Faults
//
// [Server.AddFault] makes calls to an endpoint fail, for one scale set or for all, always or randomly; see [Fault] and
// the Alter constants. [Server.FaultsHit] lists the affected calls. [Server.Excuse] marks a runner whose process a
// fault has affected, so that the client under test is not blamed. [Server.ForgetScaleSet], [Server.PurgeRunner],
// [Server.ExpireAdminTokens], [Server.ExpireQueueTokens], [Server.ExpireSession], [Server.StealSession] and
// [Server.RevokeToken] simulate actions of others without the client's knowledge.
//
// [Server.Invariants] lists broken invariants, [Server.Leftovers] what must not remain at the end, [Server.Report] the
// numbers. [Server.WaitIdle] and [Server.WaitUntil] wait without polling.
//
// # Implementation
//
// One mutex guards all state. It is never held while waiting: a held poll waits on its queue's channel, a runner on its
// own, and both check again under the lock. Expiry is a heap of deadlines with one timer; each call first runs the
// actions that are due by [Options.Clock].
//
// The REST API and webhooks return values of type object. Each has every field that GitHub requires: `make
// interop-github` checks them against GitHub's published schemas, and requires a call of each route.
package githubsim

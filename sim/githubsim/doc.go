// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package githubsim is a GitHub to test and to play against: the REST API and
// the Actions service that serve runner scale sets, the runners' side of both,
// and an admin API that brings jobs and faults and tells what happened.
//
// # Serving
//
// [Start] listens on a local port. Its URL is a GitHub Enterprise Server to
// clients, so that REST is below /api/v3; the paths of api.github.com work too.
// Organizations, repositories, groups, tokens and Apps exist once they are
// added. Every token is checked: kind, life, scope and permission.
//
//	REST        /orgs/…, /repos/…, /app/…, /actions/runner-registration
//	service     /_services/pipelines/{tenant}/_apis/…   scale sets, sessions, JIT, agents
//	queue       /_broker/scalesets/message              long polls, acknowledgements
//	runner      /_runner/…                              see package simrunner
//	admin       /_sim/…                                 never GitHub's own; no token
//
// # From a job to its end
//
//	queued → [available →] assigned → (delivered) → running → completed
//
// A queued job goes to the first scale set that may have it: same repository,
// organization or enterprise, a group that sees the repository, all of the job's
// labels, and room below the capacity that the last poll announced. With
// [AutoAssign] it is assigned at once; with [Acquire] it is offered until it is
// acquired. Any free runner of the scale set gets it; when that acknowledges,
// the job runs. A runner that reports a result loses its registration, as it is
// ephemeral. A deleted scale set gives jobs back that no runner has.
//
// A runner that the REST API registered belongs to no scale set. While it waits, it gets the
// oldest queued job of its scope, group and labels. [Server.AddHook] has each step of a
// job told to a webhook; deliveries are never repeated, [Server.AddDeliveryFault] loses,
// delays, doubles and reorders them, and the REST API lists them, as github.com does.
//
// Announced capacity lasts as long as the session. A session ends when it is
// deleted or was silent for [Options.SessionExpiry]; what was offered in it is
// queued again, what was assigned stays assigned.
//
// # The queue
//
// Events become messages when somebody polls, fifty at most in each. A message
// belongs to the scale set: it comes again to every poll with a lower cursor,
// in this session or a later one, until it is deleted. Statistics are those of
// the moment of delivery. A poll is held for [Options.Hold] of real time.
//
// # When things go wrong
//
// [Server.AddFault] spoils calls to an endpoint, of one scale set or of all,
// always or by chance; see [Fault] and the Alter constants. [Server.FaultsHit]
// tells what was spoiled. [Server.Excuse] tells what a fault did to a runner's
// process from what the client under test did to it. [Server.ForgetScaleSet], [Server.PurgeRunner],
// [Server.ExpireAdminTokens], [Server.ExpireQueueTokens],
// [Server.ExpireSession], [Server.StealSession] and [Server.RevokeToken] are what
// others may do behind a client's back.
//
// [Server.Invariants] lists what never may happen, [Server.Leftovers] what must
// not be left at the end, [Server.Report] the numbers. [Server.WaitIdle] and
// [Server.WaitUntil] wait without polling.
//
// # Inside
//
// One mutex guards all state. Nobody holds it while waiting: a held poll waits on
// its queue's channel, a runner on its own, and both look again under the lock.
// Expiry is a heap of deadlines with one timer; each call first lets happen what
// is due by [Options.Clock].
//
// What the REST API and webhooks show is an object. Each has every field that GitHub
// requires: `make interop-github` holds them against what GitHub publishes, and asks for
// a call of each route.
package githubsim

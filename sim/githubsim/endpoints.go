// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

// Endpoint names a call, for faults and for counting.
type Endpoint string

// The REST API.
const (
	EndpointApp                Endpoint = "app"
	EndpointInstallation       Endpoint = "installation"
	EndpointAccessToken        Endpoint = "access-token"
	EndpointUser               Endpoint = "user"
	EndpointMeta               Endpoint = "meta"
	EndpointOrg                Endpoint = "org"
	EndpointRepository         Endpoint = "repository"
	EndpointReleases           Endpoint = "releases"
	EndpointRunnerGroups       Endpoint = "runner-groups"
	EndpointRunnerGroup        Endpoint = "runner-group"
	EndpointRunners            Endpoint = "runners"
	EndpointRunner             Endpoint = "runner"
	EndpointDeleteRunner       Endpoint = "delete-runner"
	EndpointGenerateJITConfig  Endpoint = "rest-jit-config"
	EndpointRegistrationToken  Endpoint = "registration-token"
	EndpointRunnerRegistration Endpoint = "runner-registration"
	EndpointGroupRepositories  Endpoint = "group-repositories"
	EndpointOrgRepositories    Endpoint = "org-repositories"
	EndpointRepositories       Endpoint = "installation-repositories"
	EndpointRateLimit          Endpoint = "rate-limit"
	EndpointWorkflowRuns       Endpoint = "workflow-runs"
	EndpointWorkflowJobs       Endpoint = "workflow-jobs"
	EndpointWorkflowJob        Endpoint = "workflow-job"
	EndpointHook               Endpoint = "hook"
	EndpointDeliveries         Endpoint = "deliveries"
	EndpointDelivery           Endpoint = "delivery"
	EndpointRedeliver          Endpoint = "redeliver"
	EndpointCombinedStatus     Endpoint = "combined-status"
	EndpointCreateStatus       Endpoint = "create-status"
	EndpointCheckRuns          Endpoint = "check-runs"
	EndpointCreateCheckRun     Endpoint = "create-check-run"
	EndpointUpdateCheckRun     Endpoint = "update-check-run"
)

// The Actions service.
const (
	EndpointFindScaleSet   Endpoint = "find-scale-set"
	EndpointGetScaleSet    Endpoint = "get-scale-set"
	EndpointCreateScaleSet Endpoint = "create-scale-set"
	EndpointUpdateScaleSet Endpoint = "update-scale-set"
	EndpointDeleteScaleSet Endpoint = "delete-scale-set"
	EndpointFindGroup      Endpoint = "find-group"
	EndpointCreateSession  Endpoint = "create-session"
	EndpointRefreshSession Endpoint = "refresh-session"
	EndpointDeleteSession  Endpoint = "delete-session"
	EndpointGetMessage     Endpoint = "get-message"
	EndpointDeleteMessage  Endpoint = "delete-message"
	EndpointAcquireJobs    Endpoint = "acquire-jobs"
	EndpointAcquirableJobs Endpoint = "acquirable-jobs"
	EndpointJITConfig      Endpoint = "generate-jit-config"
	EndpointGetAgent       Endpoint = "get-agent"
	EndpointFindAgent      Endpoint = "find-agent"
	EndpointDeleteAgent    Endpoint = "delete-agent"
)

// The runner's side.
const (
	EndpointRunnerToken       Endpoint = "runner-token"
	EndpointRunnerRegister    Endpoint = "runner-register"
	EndpointRunnerSession     Endpoint = "runner-session"
	EndpointRunnerLeave       Endpoint = "runner-leave"
	EndpointRunnerMessage     Endpoint = "runner-message"
	EndpointRunnerAcknowledge Endpoint = "runner-acknowledge"
	EndpointRunnerRenew       Endpoint = "runner-renew"
	EndpointRunnerComplete    Endpoint = "runner-complete"
)

// EndpointUnknown is any path that GitHub does not have.
const EndpointUnknown Endpoint = "unknown"

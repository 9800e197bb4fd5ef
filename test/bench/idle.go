// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/corral-dev/corral/internal/githubsim"

// restEndpoints are those of the REST API, whose calls GitHub limits by the hour.
var restEndpoints = map[githubsim.Endpoint]bool{
	githubsim.EndpointApp: true, githubsim.EndpointInstallation: true, githubsim.EndpointAccessToken: true,
	githubsim.EndpointUser: true, githubsim.EndpointMeta: true, githubsim.EndpointOrg: true, githubsim.EndpointRepository: true,
	githubsim.EndpointRunnerGroups: true, githubsim.EndpointRunnerGroup: true, githubsim.EndpointRunners: true,
	githubsim.EndpointRunner: true, githubsim.EndpointDeleteRunner: true, githubsim.EndpointRegistrationToken: true,
	githubsim.EndpointRunnerRegistration: true,
}

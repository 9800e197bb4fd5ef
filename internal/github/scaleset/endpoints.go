// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"net/http"
	"path"
	"strings"

	"github.com/corral-dev/corral/internal/turns"
)

// endpoint is a class of requests. It is a metric label, and it decides what an error means.
type endpoint string

const (
	endpointAccessToken        endpoint = "access_token"
	endpointRegistrationToken  endpoint = "registration_token"
	endpointRunnerRegistration endpoint = "runner_registration"
	endpointScaleSetFind       endpoint = "scale_set_find"
	endpointScaleSetGet        endpoint = "scale_set_get"
	endpointScaleSetCreate     endpoint = "scale_set_create"
	endpointScaleSetUpdate     endpoint = "scale_set_update"
	endpointScaleSetDelete     endpoint = "scale_set_delete"
	endpointRunnerGroup        endpoint = "runner_group"
	endpointGenerateJIT        endpoint = "generate_jit"
	endpointRunnerFind         endpoint = "runner_find"
	endpointRunnerGet          endpoint = "runner_get"
	endpointRunnerDelete       endpoint = "runner_delete"
	endpointSessionCreate      endpoint = "session_create"
	endpointSessionRefresh     endpoint = "session_refresh"
	endpointSessionDelete      endpoint = "session_delete"
	endpointMessagePoll        endpoint = "message_poll"
	endpointMessageAck         endpoint = "message_ack"
	endpointAcquireJobs        endpoint = "acquire_jobs"
	endpointOther              endpoint = "other"
)

// isToken reports whether the endpoint returns a token that tokenSource caches.
func (e endpoint) isToken() bool {
	return e == endpointAccessToken || e == endpointRegistrationToken || e == endpointRunnerRegistration
}

// isList reports whether the endpoint returns a list. An empty list means that the object does not exist.
func (e endpoint) isList() bool {
	return e == endpointScaleSetFind || e == endpointRunnerFind || e == endpointRunnerGroup
}

// endpointOf classifies a request by its method and path. Any unknown request is "other", so that the number of metric
// labels is limited.
func endpointOf(req *http.Request) endpoint {
	name := req.URL.Path
	const service = "/_apis/"
	i := strings.LastIndex(name, service) // the last one, because the server chooses the beginning of the path
	if i >= 0 {
		return serviceEndpoint(req.Method, strings.Trim(name[i+len(service):], "/"))
	}
	switch {
	case req.Method != http.MethodPost:
		return endpointOther
	case strings.HasSuffix(name, "/access_tokens"):
		return endpointAccessToken
	case strings.HasSuffix(name, "/actions/runners/registration-token"):
		return endpointRegistrationToken
	case strings.HasSuffix(name, "/actions/runner-registration"):
		return endpointRunnerRegistration
	}
	return endpointOther
}

// route maps a method and a path below _apis to an endpoint. A * in the path matches one segment.
type route struct {
	method, path string
	endpoint     endpoint
}

// routes has the paths of the official client, github.com/actions/scaleset v0.4.0 (client.go and session_client.go).
var routes = []route{
	{http.MethodGet, "runtime/runnerscalesets", endpointScaleSetFind},
	{http.MethodPost, "runtime/runnerscalesets", endpointScaleSetCreate},
	{http.MethodGet, "runtime/runnerscalesets/*", endpointScaleSetGet},
	{http.MethodPatch, "runtime/runnerscalesets/*", endpointScaleSetUpdate},
	{http.MethodDelete, "runtime/runnerscalesets/*", endpointScaleSetDelete},
	{http.MethodPost, "runtime/runnerscalesets/*/generatejitconfig", endpointGenerateJIT},
	{http.MethodPost, "runtime/runnerscalesets/*/acquirejobs", endpointAcquireJobs},
	{http.MethodPost, "runtime/runnerscalesets/*/sessions", endpointSessionCreate},
	{http.MethodPatch, "runtime/runnerscalesets/*/sessions/*", endpointSessionRefresh},
	{http.MethodDelete, "runtime/runnerscalesets/*/sessions/*", endpointSessionDelete},
	{http.MethodGet, "runtime/runnergroups", endpointRunnerGroup},
	{http.MethodGet, "distributedtask/pools/*/agents", endpointRunnerFind},
	{http.MethodGet, "distributedtask/pools/*/agents/*", endpointRunnerGet},
	{http.MethodDelete, "distributedtask/pools/*/agents/*", endpointRunnerDelete},
}

func serviceEndpoint(method, name string) endpoint {
	for _, r := range routes {
		if fits, _ := path.Match(r.path, name); fits && r.method == method { // all patterns are valid
			return r.endpoint
		}
	}
	return endpointOther
}

// rank returns the priority of calls that wait for their turn.
func (e endpoint) rank() turns.Rank {
	switch e {
	case endpointRunnerDelete:
		return turns.Removing
	case endpointGenerateJIT:
		return turns.Registering
	case endpointSessionCreate, endpointScaleSetCreate, endpointScaleSetUpdate, endpointScaleSetDelete:
		return turns.Changing
	}
	return turns.Looking
}

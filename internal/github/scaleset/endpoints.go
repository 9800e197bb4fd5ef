// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"net/http"
	"path"
	"strings"

	"github.com/corral-dev/corral/internal/turns"
)

// endpoint is a class of requests: a metric label, and what an error's meaning depends on.
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

// isToken says whether the endpoint gives out a token that tokenSource keeps.
func (e endpoint) isToken() bool {
	return e == endpointAccessToken || e == endpointRegistrationToken || e == endpointRunnerRegistration
}

// isList reports whether the endpoint answers with a list: GitHub says that nothing is there by an empty list.
func (e endpoint) isList() bool {
	return e == endpointScaleSetFind || e == endpointRunnerFind || e == endpointRunnerGroup
}

// endpointOf classifies a request by its method and path. The number of classes is
// bounded: what is not known is "other".
func endpointOf(req *http.Request) endpoint {
	name := req.URL.Path
	if _, below, isService := strings.Cut(name, "/_apis/"); isService {
		return serviceEndpoint(req.Method, strings.Trim(below, "/"))
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

// route is one row of the Actions service: method, path below _apis, where * stands
// for one segment, and class.
type route struct {
	method, path string
	endpoint     endpoint
}

// Paths as in scaleset v0.4.0: client.go, session_client.go.
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
		if fits, _ := path.Match(r.path, name); fits && r.method == method { // each is a pattern
			return r.endpoint
		}
	}
	return endpointOther
}

// rank orders calls that wait for their turn.
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

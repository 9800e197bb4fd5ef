// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

// servicePrefix is the base path of the Actions service. Clients must preserve it, as with GitHub's tenants.
const servicePrefix = "/_services/pipelines"

// queuePath is the path of all message queues. The query identifies the queue.
const queuePath = "/_broker/scalesets/message"

// routes maps paths to handlers. REST paths are served with and without the prefix of GitHub Enterprise Server.
func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	s.restRoutes(api)
	mux := http.NewServeMux()
	s.serviceRoutes(mux)
	s.runnerRoutes(mux)
	s.adminRoutes(mux)
	mux.Handle("/api/v3/", http.StripPrefix("/api/v3", api))
	mux.Handle("/", api)
	return mux
}

// route serves a path of the REST API.
func (s *Server) route(mux *http.ServeMux, pattern string, name Endpoint, h handler) {
	s.patterns = append(s.patterns, pattern)
	mux.Handle(pattern, s.serve(name, h))
}

// Routes lists the served paths of the REST API, such as "GET /orgs/{org}", without the prefix of GitHub Enterprise
// Server.
func (s *Server) Routes() []string { return slices.Clone(s.patterns) }

func (s *Server) restRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /app", EndpointApp, s.getApp)
	s.route(mux, "GET /app/installations/{id}", EndpointInstallation, s.getInstallation)
	s.route(mux, "POST /app/installations/{id}/access_tokens", EndpointAccessToken, s.createAccessToken)
	s.route(mux, "GET /meta", EndpointMeta, s.getMeta)
	s.route(mux, "GET /user", EndpointUser, s.rest(s.getUser))
	s.route(mux, "GET /orgs/{org}", EndpointOrg, s.rest(s.getOrg))
	s.route(mux, "GET /repos/{owner}/{repo}", EndpointRepository, s.rest(s.getRepository))
	repo := "/repos/{owner}/{repo}/actions"
	s.route(mux, "GET "+repo+"/runs", EndpointWorkflowRuns, s.rest(s.listRuns))
	s.route(mux, "GET "+repo+"/runs/{run}/jobs", EndpointWorkflowJobs, s.rest(s.listRunJobs))
	s.route(mux, "GET "+repo+"/jobs/{job}", EndpointWorkflowJob, s.rest(s.getWorkflowJob))
	s.route(mux, "GET /repos/actions/runner/releases", EndpointReleases, s.rest(s.listReleases))
	s.route(mux, "GET /orgs/{org}/repos", EndpointOrgRepositories, s.rest(s.listOrgRepositories))
	s.route(mux, "GET /installation/repositories", EndpointRepositories, s.rest(s.listInstallationRepositories))
	s.route(mux, "GET /rate_limit", EndpointRateLimit, s.free(s.getRateLimit))
	s.route(mux, "GET /orgs/{org}/actions/runner-groups/{id}/repositories", EndpointGroupRepositories, s.rest(s.listGroupRepositories))
	s.hookRoutes(mux)
	s.commitRoutes(mux)
	s.route(mux, "POST /actions/runner-registration", EndpointRunnerRegistration, s.registerRunner)
	for _, prefix := range []string{"/orgs/{org}", "/enterprises/{enterprise}"} {
		s.route(mux, "GET "+prefix+"/actions/runner-groups", EndpointRunnerGroups, s.rest(s.listGroups))
		s.route(mux, "GET "+prefix+"/actions/runner-groups/{id}", EndpointRunnerGroup, s.rest(s.getGroup))
	}
	for _, prefix := range []string{"/orgs/{org}", "/repos/{owner}/{repo}", "/enterprises/{enterprise}"} {
		runners := prefix + "/actions/runners"
		s.route(mux, "POST "+runners+"/registration-token", EndpointRegistrationToken, s.rest(s.createRegistrationToken))
		s.route(mux, "POST "+runners+"/generate-jitconfig", EndpointGenerateJITConfig, s.rest(s.generateRESTConfig))
		s.route(mux, "GET "+runners, EndpointRunners, s.rest(s.listRunners))
		s.route(mux, "GET "+runners+"/{id}", EndpointRunner, s.rest(s.getRunner))
		s.route(mux, "DELETE "+runners+"/{id}", EndpointDeleteRunner, s.rest(s.deleteRunner))
	}
	mux.Handle("/", s.serve(EndpointUnknown, func(*http.Request) answer {
		return restError(http.StatusNotFound, "Not Found")
	}))
}

func (s *Server) serviceRoutes(mux *http.ServeMux) {
	runtime := servicePrefix + "/{tenant}/_apis/runtime/"
	sets := runtime + "runnerscalesets"
	agents := servicePrefix + "/{tenant}/_apis/distributedtask/pools/0/agents"
	for pattern, route := range map[string]struct {
		name Endpoint
		h    handler
	}{
		"GET " + sets:                              {EndpointFindScaleSet, s.admin(s.findScaleSet)},
		"POST " + sets:                             {EndpointCreateScaleSet, s.admin(s.createScaleSet)},
		"GET " + sets + "/{id}":                    {EndpointGetScaleSet, s.adminSet(s.getScaleSet)},
		"PATCH " + sets + "/{id}":                  {EndpointUpdateScaleSet, s.adminSet(s.updateScaleSet)},
		"DELETE " + sets + "/{id}":                 {EndpointDeleteScaleSet, s.adminSet(s.deleteScaleSet)},
		"GET " + runtime + "runnergroups/{$}":      {EndpointFindGroup, s.admin(s.findGroup)},
		"POST " + sets + "/{id}/sessions":          {EndpointCreateSession, s.adminSet(s.createSession)},
		"PATCH " + sets + "/{id}/sessions/{sid}":   {EndpointRefreshSession, s.adminSet(s.refreshSession)},
		"DELETE " + sets + "/{id}/sessions/{sid}":  {EndpointDeleteSession, s.adminSet(s.deleteSession)},
		"POST " + sets + "/{id}/acquirejobs":       {EndpointAcquireJobs, s.acquireJobs},
		"GET " + sets + "/{id}/acquirablejobs":     {EndpointAcquirableJobs, s.adminSet(s.acquirableJobs)},
		"POST " + sets + "/{id}/generatejitconfig": {EndpointJITConfig, s.adminSet(s.generateJITConfig)},
		"GET " + agents:                            {EndpointFindAgent, s.admin(s.findAgent)},
		"GET " + agents + "/{id}":                  {EndpointGetAgent, s.admin(s.getAgent)},
		"DELETE " + agents + "/{id}":               {EndpointDeleteAgent, s.admin(s.deleteAgent)},
		"GET " + queuePath:                         {EndpointGetMessage, s.getMessage},
		"DELETE " + queuePath + "/{message}":       {EndpointDeleteMessage, s.deleteMessage},
	} {
		mux.Handle(pattern, s.serve(route.name, route.h))
	}
}

func (s *Server) runnerRoutes(mux *http.ServeMux) {
	mux.Handle("POST "+runnerwire.PathToken, s.serve(EndpointRunnerToken, s.runnerToken))
	mux.Handle("POST "+runnerwire.PathRegister, s.serve(EndpointRunnerRegister, s.runnerRegisters))
	mux.Handle("POST "+runnerwire.PathSession, s.serve(EndpointRunnerSession, s.runnerJoins))
	mux.Handle("DELETE "+runnerwire.PathSession, s.serve(EndpointRunnerLeave, s.runnerLeaves))
	mux.Handle("GET "+runnerwire.PathMessage, s.serve(EndpointRunnerMessage, s.runnerPolls))
	mux.Handle("POST "+runnerwire.PathAcknowledge, s.serve(EndpointRunnerAcknowledge, s.runnerStarts))
	mux.Handle("POST "+runnerwire.PathRenew, s.serve(EndpointRunnerRenew, s.runnerRenews))
	mux.Handle("POST "+runnerwire.PathComplete, s.serve(EndpointRunnerComplete, s.runnerCompletes))
}

// serve counts the call, applies faults, and writes the answer with the ids that GitHub's support asks for.
func (s *Server) serve(name Endpoint, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault, requestID := s.admit(name, r)
		w.Header().Set("X-GitHub-Request-Id", strings.ToUpper(requestID[:18]))
		if strings.HasPrefix(r.URL.Path, servicePrefix) {
			w.Header().Set("ActivityId", requestID)
		}
		if s.opts.ServerVersion != "" {
			w.Header().Set("X-GitHub-Enterprise-Version", s.opts.ServerVersion)
		}
		if s.opts.Latency > 0 && !s.pause(r.Context(), s.opts.Latency) {
			return
		}
		if fault == nil {
			h(r).write(w)
			return
		}
		s.serveFault(fault, h, w, r)
	})
}

// admit counts a call and returns the matching fault.
func (s *Server) admit(name Endpoint, r *http.Request) (*Fault, string) {
	s.lock()
	defer s.unlock()
	s.requests[name]++
	return s.useFault(name, r), s.newID()
}

// rest calls h with the lock held, if the call has a valid token and is within the rate limit.
func (s *Server) rest(h func(r *http.Request, id *identity) answer) handler {
	return func(r *http.Request) answer {
		s.lock()
		defer s.unlock()
		id, refusal := s.caller(r)
		if id == nil {
			return refusal
		}
		a, within := s.limited(r, id)
		if within {
			a = unmodified(r, h(r, id))
		}
		if within && a.status != http.StatusNotModified {
			id.used++
		}
		for key, value := range s.limitHeaders(id) {
			a = a.with(key, value)
		}
		if id.classic {
			a = a.with("X-OAuth-Scopes", strings.Join(id.scopes, ", "))
		}
		if id.app == nil && !id.expires.IsZero() {
			a = a.with("GitHub-Authentication-Token-Expiration", id.expires.UTC().Format("2006-01-02 15:04:05 MST"))
		}
		return a
	}
}

// free is rest for calls that do not count towards the rate limit.
func (s *Server) free(h func(r *http.Request, id *identity) answer) handler {
	return func(r *http.Request) answer {
		s.lock()
		defer s.unlock()
		id, refusal := s.caller(r)
		if id == nil {
			return refusal
		}
		return h(r, id)
	}
}

// apiVersion is the version that the official client requests from the Actions service.
const apiVersion = "6.0-preview"

// versioned refuses a call without the version in the query or in the Accept header, because it could get another
// version.
func versioned(r *http.Request) (answer, bool) {
	version := r.URL.Query().Get("api-version")
	if version == "" {
		_, parameters, _ := mime.ParseMediaType(r.Header.Get("Accept")) // an invalid header contains no version
		version = parameters["api-version"]
	}
	switch version {
	case apiVersion:
		return answer{}, true
	case "":
		return serviceError(http.StatusBadRequest, "VssVersionNotSpecifiedException", "No api-version was supplied for the %s request.", r.Method), false
	}
	return serviceError(http.StatusBadRequest, "VssVersionOutOfRangeException", "The requested version %q is out of range.", version), false
}

// admin calls h with the lock held, if the call has the admin token of the tenant.
func (s *Server) admin(h func(r *http.Request, sc *scope) answer) handler {
	return func(r *http.Request) answer {
		s.lock()
		defer s.unlock()
		claims, valid := s.verify(r, adminAudience, s.identities.adminEpoch)
		if !valid || claims.Tenant != pathID(r, "tenant") {
			return serviceError(http.StatusUnauthorized, "InvalidTokenException", "The token is not valid or has expired.")
		}
		if refusal, named := versioned(r); !named {
			return refusal
		}
		return h(r, s.world.byTenant[claims.Tenant-1])
	}
}

// adminSet is admin for calls about one scale set.
func (s *Server) adminSet(h func(r *http.Request, ss *scaleSet) answer) handler {
	return s.admin(func(r *http.Request, sc *scope) answer {
		id := pathID(r, "id")
		ss := s.scaleSets.byID[id]
		if ss == nil || ss.scope != sc {
			return scaleSetNotFound(id)
		}
		return h(r, ss)
	})
}

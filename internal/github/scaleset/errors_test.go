// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/github"
)

func TestErrorKindFollowsTheAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		answer exchange
		want   github.Kind
	}{
		"no answer":                         {exchange{endpoint: endpointScaleSetGet}, github.KindUnavailable},
		"scale set gone":                    {exchange{endpoint: endpointScaleSetGet, status: 404}, github.KindNotFound},
		"queue gone":                        {exchange{endpoint: endpointMessagePoll, status: 404}, github.KindUnexpected},
		"queue gone with its scale set":     {exchange{endpoint: endpointMessagePoll, status: 404, typeName: "A.RunnerScaleSetNotFoundException, B"}, github.KindNotFound},
		"session gone":                      {exchange{endpoint: endpointSessionRefresh, status: 400, typeName: "RunnerScaleSetSessionExpiredException"}, github.KindUnexpected},
		"organization gone":                 {exchange{endpoint: endpointRegistrationToken, status: 404}, github.KindForbidden},
		"token revoked":                     {exchange{endpoint: endpointRegistrationToken, status: 401}, github.KindUnauthorized},
		"name taken":                        {exchange{endpoint: endpointScaleSetCreate, status: 409}, github.KindExists},
		"rename to a name that is taken":    {exchange{endpoint: endpointScaleSetUpdate, status: 409}, github.KindExists},
		"runner's name taken":               {exchange{endpoint: endpointGenerateJIT, status: 409, typeName: "AgentExistsException"}, github.KindRunnerExists},
		"runner busy":                       {exchange{endpoint: endpointRunnerDelete, status: 400, typeName: "X.JobStillRunningException, Y"}, github.KindJobStillRunning},
		"session taken":                     {exchange{endpoint: endpointSessionCreate, status: 409}, github.KindSessionConflict},
		"rate limit of REST, used up":       {exchange{endpoint: endpointRegistrationToken, status: 403, header: http.Header{"X-Ratelimit-Remaining": {"0"}}}, github.KindRateLimited},
		"rate limit of REST, secondary":     {exchange{endpoint: endpointAccessToken, status: 403, message: "You have exceeded a secondary rate limit"}, github.KindRateLimited},
		"rate limit of the Actions service": {exchange{endpoint: endpointGenerateJIT, status: 429}, github.KindRateLimited},
		"bad request":                       {exchange{endpoint: endpointScaleSetCreate, status: 400}, github.KindUnexpected},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify(&tc.answer, errors.New("official text")); got != tc.want {
				t.Errorf("got %s; want %s", got, tc.want)
			}
		})
	}
}

func TestASecondaryLimitIsLeftAloneForAMinute(t *testing.T) {
	for header, want := range map[string]time.Duration{"": time.Minute, "7": 7 * time.Second} {
		x := &exchange{endpoint: endpointGenerateJIT, status: 403, message: "You have exceeded a secondary rate limit", header: http.Header{"Retry-After": {header}}}
		if got := newError("registering", x, errors.New("official text"), time.Now()); got.Kind != github.KindRateLimited || got.RetryAfter != want {
			t.Errorf("%q: %s %s, want %s", header, got.Kind, got.RetryAfter, want)
		}
	}
}

func TestSessionOwnerIsReadFromTheText(t *testing.T) {
	for text, want := range map[string]string{
		"The runner scale set linux already has an active session for owner cluster/pool.": "cluster/pool",
		"The runner scale set for owner x already has an active session for owner a.b.":    "a.b",
		"Conflict": "",
		"":         "",
	} {
		if got := sessionOwner(text); got != want {
			t.Errorf("%q: got %q; want %q", text, got, want)
		}
	}
}

func TestEndpointsAreClassified(t *testing.T) {
	for call, want := range map[string]endpoint{
		"POST /app/installations/7/access_tokens":                                endpointAccessToken,
		"POST /api/v3/orgs/acme/actions/runners/registration-token":              endpointRegistrationToken,
		"POST /api/v3/actions/runner-registration":                               endpointRunnerRegistration,
		"GET /tenant/_apis/runtime/runnerscalesets":                              endpointScaleSetFind,
		"GET /tenant/_apis/runtime/runnerscalesets/1":                            endpointScaleSetGet,
		"PATCH /_apis/runtime/runnerscalesets/1":                                 endpointScaleSetUpdate,
		"POST /_apis/runtime/runnerscalesets/1/generatejitconfig":                endpointGenerateJIT,
		"PATCH /_apis/runtime/runnerscalesets/1/sessions/a-b":                    endpointSessionRefresh,
		"GET /_apis/runtime/runnergroups/":                                       endpointRunnerGroup,
		"DELETE /_apis/distributedtask/pools/0/agents/5":                         endpointRunnerDelete,
		"PUT /_apis/runtime/runnerscalesets/1":                                   endpointOther,
		"GET /orgs/acme/actions/runners/registration-token":                      endpointOther,
		"GET /scalesets/message":                                                 endpointOther,
		"POST /_apis/runtime/runnerscalesets/1/sessions/a/actions/access_tokens": endpointOther,
	} {
		method, path, _ := strings.Cut(call, " ")
		req := &http.Request{Method: method, URL: &url.URL{Path: path}}
		if got := endpointOf(req); got != want {
			t.Errorf("%s: got %s; want %s", call, got, want)
		}
	}
}

func TestCredentialsThatCannotWorkAreRefused(t *testing.T) {
	_, key := appKey()
	for name, creds := range map[string]github.Credentials{
		"nothing":         {ConfigURL: "https://github.com/acme"},
		"both":            {ConfigURL: "https://github.com/acme", Token: "t", App: &github.App{ID: "1", InstallationID: 2, PrivateKey: key}},
		"no id":           {ConfigURL: "https://github.com/acme", App: &github.App{InstallationID: 2, PrivateKey: key}},
		"no installation": {ConfigURL: "https://github.com/acme", App: &github.App{ID: "1", PrivateKey: key}},
		"bad key":         {ConfigURL: "https://github.com/acme", App: &github.App{ID: "1", InstallationID: 2, PrivateKey: []byte("key")}},
		"bad url":         {ConfigURL: "https://github.com/a/b/c", Token: "t"},
	} {
		if _, err := NewClient(creds, github.Options{Transport: http.DefaultTransport}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

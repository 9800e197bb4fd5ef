// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// If a server's answers name another server, for the Actions service or for a message queue, the client sends no
// request and no token there.
func TestNoAnswerLeadsToAnotherServer(t *testing.T) {
	const elsewhere = "http://10.0.0.1:6443"
	for name, fault := range map[string]githubsim.Fault{
		"message queue": {Endpoint: githubsim.EndpointCreateSession, Status: http.StatusOK, Body: `{"sessionId":"11111111-1111-1111-1111-111111111111",` +
			`"messageQueueAccessToken":"t","messageQueueUrl":"` + elsewhere + `/message"}`},
		"Actions service": {Endpoint: githubsim.EndpointRunnerRegistration, Status: http.StatusOK, Body: fmt.Sprintf(`{"url":%q,"token":"eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTl9.YQ"}`, elsewhere)},
	} {
		t.Run(name, func(t *testing.T) {
			sim := githubsim.New(githubsim.Options{})
			t.Cleanup(sim.Close)
			sim.AddOrg("acme")
			sim.AddToken("secret")
			network, asked := inMemory(sim), 0
			c, err := NewClient(github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}, github.Options{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.URL.Host != "github.test" {
					asked++
				}
				return network.RoundTrip(req)
			})})
			if err != nil {
				t.Fatal(err)
			}
			sim.AddFault(fault)
			s, _, err := c.OpenSession(testContext(t), 1, owner)
			if err == nil {
				err = errors.Join(s.Poll(testContext(t), patience), s.acknowledge(testContext(t), 1))
			}
			foreign, e := github.ForeignHost{}, new(github.Error)
			if asked != 0 || !errors.As(err, &foreign) || foreign != (github.ForeignHost{Host: "10.0.0.1:6443", Own: "github.test"}) {
				t.Errorf("%d requests were sent; %v", asked, err)
			}
			if !errors.As(err, &e) || e.Kind != github.KindUnavailable || e.Silent || strings.Contains(err.Error(), "no answer") {
				t.Errorf("%+v", e)
			}
		})
	}
}

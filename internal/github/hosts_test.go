// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func TestRequestsGoToTheConnectionsServersOnly(t *testing.T) {
	const cloud, tenant, server, plain = "https://github.com/acme", "https://acme.ghe.com/acme", "https://ghes.example.com/acme", "http://127.0.0.1:4242/acme"
	for _, tc := range []struct {
		own, to string
		want    bool
	}{
		{cloud, "https://api.github.com/orgs/acme", true},
		{cloud, "https://github.com/x", true},
		{"https://www.github.com/acme", "https://api.github.com/x", true},
		{cloud, "https://broker.actions.githubusercontent.com/rest", true},
		{cloud, "https://PipelinesGHUBeus1.Actions.GitHubUserContent.com/x", true},
		{cloud, "http://broker.actions.githubusercontent.com/rest", false},
		{cloud, "https://broker.actions.githubusercontent.com:8443/rest", false},
		{cloud, "https://actions.githubusercontent.com.example.com/", false},
		{cloud, "https://raw.githubusercontent.com/", false},
		{cloud, "https://evilgithub.com/", false},
		{cloud, "https://169.254.169.254/", false},
		{tenant, "https://api.acme.ghe.com/x", true},
		{tenant, "https://pipelines.actions.acme.ghe.com/x", true},
		{tenant, "https://x.actions.githubusercontent.com/x", true},
		{tenant, "https://api.other.ghe.com/x", false},
		{server, "https://ghes.example.com/_services/pipelines/x", true},
		{server, "https://GHES.example.com:443/api/v3/x", true},
		{server, "https://pipelines.ghes.example.com/x", true},
		{server, "http://ghes.example.com/x", false},
		{server, "https://ghes.example.com:6443/x", false},
		{server, "https://example.com/x", false},
		{server, "https://x.actions.githubusercontent.com/x", false},
		{server, "https://kubernetes.default.svc/api", false},
		{server, "https://user@kubernetes.default.svc/ghes.example.com", false},
		{server, "", false},
		{plain, "http://127.0.0.1:4242/x", true},
		{plain, "http://127.0.0.1:6443/x", false},
		{plain, "http://localhost:4242/x", false},
		{"", "https://github.com/x", false},
		{"%", "https://github.com/x", false},
	} {
		sent := 0
		network := transportFunc(func(*http.Request) (*http.Response, error) {
			sent++
			return httptest.NewRecorder().Result(), nil
		})
		u, err := url.Parse(tc.to)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := Options{Transport: network}.WithDefaults(1).For(Credentials{ConfigURL: tc.own}).Transport.RoundTrip(&http.Request{Method: http.MethodGet, URL: u})
		if err == nil {
			resp.Body.Close()
		}
		if foreign := new(ForeignHost); (err == nil) != tc.want || (sent == 1) != tc.want || err != nil && (!errors.As(err, foreign) || foreign.Host != u.Host) {
			t.Errorf("%s: a request to %s: %d were sent; %v", tc.own, tc.to, sent, err)
		}
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

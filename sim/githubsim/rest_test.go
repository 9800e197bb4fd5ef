// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/actions/scaleset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/corral-dev/corral/sim/githubsim"
)

// ask makes a REST call and decodes its answer.
func ask(t *testing.T, sim *githubsim.Running, method, path, token string) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), method, sim.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	body := map[string]any{}
	if len(content) > 0 {
		if err := json.Unmarshal(content, &body); err != nil {
			t.Fatalf("%s %s: %s", method, path, content)
		}
	}
	return resp.StatusCode, resp.Header, body
}

func TestRESTPathsTokensAndPermissions(t *testing.T) {
	sim := start(t, githubsim.Options{Mode: githubsim.Acquire})
	if err := sim.AddRepository(githubsim.Repository{FullName: "acme/app"}); err != nil {
		t.Fatal(err)
	}
	sim.AddEnterprise("corp", "acme")
	sim.AddToken("reader", "organization_self_hosted_runners:read")
	sim.AddToken("classic", "repo")
	sim.AddToken("orgadmin", "admin:org")
	sim.AddToken("old")
	sim.RevokeToken("old")
	const post, registration = http.MethodPost, "/actions/runners/registration-token"
	for name, tc := range map[string]struct {
		method, path, token string
		want                int
	}{
		"meta needs no token":              {"GET", "/meta", "", 200},
		"user":                             {"GET", "/user", "secret", 200},
		"user without a token":             {"GET", "/user", "", 401},
		"user with a wrong token":          {"GET", "/user", "wrong", 401},
		"user with a revoked token":        {"GET", "/user", "old", 401},
		"organization":                     {"GET", "/orgs/ACME", "secret", 200},
		"unknown organization":             {"GET", "/orgs/none", "secret", 404},
		"repository":                       {"GET", "/repos/acme/app", "secret", 200},
		"unknown repository":               {"GET", "/repos/acme/none", "secret", 404},
		"unknown path":                     {"GET", "/none", "secret", 404},
		"groups of an organization":        {"GET", "/orgs/acme/actions/runner-groups", "reader", 200},
		"a group of an organization":       {"GET", "/orgs/acme/actions/runner-groups/1", "reader", 200},
		"unknown group":                    {"GET", "/orgs/acme/actions/runner-groups/77", "reader", 404},
		"groups of an enterprise":          {"GET", "/enterprises/corp/actions/runner-groups", "secret", 200},
		"registration for an organization": {post, "/orgs/acme" + registration, "secret", 201},
		"registration for a repository":    {post, "/repos/acme/app" + registration, "classic", 201},
		"registration for an enterprise":   {post, "/enterprises/corp" + registration, "secret", 201},
		"registration with admin:org":      {post, "/orgs/acme" + registration, "orgadmin", 201},
		"read does not allow to register":  {post, "/orgs/acme" + registration, "reader", 403},
		"repo does not allow an org":       {post, "/orgs/acme" + registration, "classic", 403},
		"admin:org does not allow a repo":  {post, "/repos/acme/app" + registration, "orgadmin", 403},
		"registration for nothing":         {post, "/orgs/none" + registration, "secret", 404},
	} {
		t.Run(name, func(t *testing.T) {
			for _, prefix := range []string{"", "/api/v3"} {
				status, header, body := ask(t, sim, tc.method, prefix+tc.path, tc.token)
				if status != tc.want {
					t.Errorf("%s: %d %v, want %d", prefix+tc.path, status, body, tc.want)
				}
				if header.Get("X-GitHub-Request-Id") == "" {
					t.Error("no request id")
				}
			}
		})
	}
	if _, _, meta := ask(t, sim, "GET", "/api/v3/meta", ""); meta["installed_version"] != "3.21.0" {
		t.Errorf("meta: %v", meta)
	}
	if _, header, _ := ask(t, sim, "GET", "/user", "classic"); header.Get("X-OAuth-Scopes") != "repo" {
		t.Errorf("scopes of a classic token: %q", header.Get("X-OAuth-Scopes"))
	}
}

func TestRESTManagesRunners(t *testing.T) {
	sim := start(t, githubsim.Options{})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	for i := range 3 {
		setting := &scaleset.RunnerScaleSetJitRunnerSetting{Name: fmt.Sprintf("r%d", i)}
		if _, err := client.GenerateJitRunnerConfig(testContext(t), setting, set.ID); err != nil {
			t.Fatal(err)
		}
	}
	const runners = "/api/v3/orgs/acme/actions/runners"
	_, header, page := ask(t, sim, "GET", runners+"?per_page=2", "secret")
	if page["total_count"] != 3.0 || len(page["runners"].([]any)) != 2 || !strings.Contains(header.Get("Link"), runners+"?page=2&per_page=2") {
		t.Errorf("first page: %v, %q", page, header.Get("Link"))
	}
	_, header, page = ask(t, sim, "GET", runners+"?per_page=2&page=2", "secret")
	if len(page["runners"].([]any)) != 1 || header.Get("Link") != "" {
		t.Errorf("last page: %v, %q", page, header.Get("Link"))
	}
	if _, _, named := ask(t, sim, "GET", runners+"?name=r1", "secret"); named["total_count"] != 1.0 {
		t.Errorf("by name: %v", named)
	}
	for _, step := range []struct {
		method string
		want   int
	}{{"GET", 200}, {"DELETE", 204}, {"DELETE", 404}, {"GET", 404}} {
		if status, _, body := ask(t, sim, step.method, runners+"/1", "secret"); status != step.want {
			t.Errorf("%s: %d %v, want %d", step.method, status, body, step.want)
		}
	}
}

func TestGroupsVisibleToARepository(t *testing.T) {
	sim := start(t, githubsim.Options{})
	if err := sim.AddRepository(githubsim.Repository{FullName: "acme/app"}); err != nil {
		t.Fatal(err)
	}
	id := sim.AddRunnerGroup("acme", githubsim.Group{Name: "lib", Visibility: "selected", Repositories: []string{"acme/lib"}})
	const groups = "/orgs/acme/actions/runner-groups"
	if _, _, all := ask(t, sim, "GET", groups, "secret"); all["total_count"] != 2.0 {
		t.Errorf("all: %v", all)
	}
	if _, _, some := ask(t, sim, "GET", groups+"?visible_to_repository=app", "secret"); some["total_count"] != 1.0 {
		t.Errorf("visible: %v", some)
	}
	sim.AddEnterprise("corp", "acme", "other")
	sim.AddRunnerGroup("enterprises/corp", githubsim.Group{Name: "some", Visibility: "selected", Organizations: []string{"acme"}})
	for org, want := range map[string]float64{"acme": 2, "other": 1} {
		if _, _, in := ask(t, sim, "GET", "/enterprises/corp/actions/runner-groups?visible_to_organization="+org, "secret"); in["total_count"] != want {
			t.Errorf("visible to %s: %v", org, in)
		}
	}
	sim.RemoveRunnerGroup(id)
	if _, _, left := ask(t, sim, "GET", groups, "secret"); left["total_count"] != 1.0 {
		t.Errorf("after removal: %v", left)
	}
}

func TestRateLimit(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, RateLimit: 2})
	for i, want := range []struct {
		status    int
		remaining string
	}{{200, "1"}, {200, "0"}, {403, "0"}} {
		status, header, _ := ask(t, sim, "GET", "/user", "secret")
		if status != want.status || header.Get("x-ratelimit-remaining") != want.remaining {
			t.Errorf("call %d: %d with %q left, want %+v", i, status, header.Get("x-ratelimit-remaining"), want)
		}
	}
	clock.advance(time.Hour)
	if status, _, _ := ask(t, sim, "GET", "/user", "secret"); status != 200 {
		t.Errorf("an hour later: %d", status)
	}
}

func TestAppProvesItselfAndGetsATokenWithItsPermissions(t *testing.T) {
	sim := start(t, githubsim.Options{})
	sim.AddOrg("other")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	app := githubsim.App{
		ID: 7, ClientID: "Iv1", InstallationID: 42, PublicKey: &key.PublicKey, Account: "acme",
		Permissions: map[string]string{"organization_self_hosted_runners": "write", "metadata": "read"},
	}
	sim.AddApp(app)
	asApp := func(path, clientID string, id int64) error {
		client, err := scaleset.NewClientWithGitHubApp(scaleset.ClientWithGitHubAppConfig{
			GitHubConfigURL: sim.ConfigURL(path),
			GitHubAppAuth: scaleset.GitHubAppAuth{ClientID: clientID, InstallationID: id, PrivateKey: string(pem.EncodeToMemory(
				&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))},
		}, scaleset.WithRetryMax(0))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.GetRunnerScaleSet(testContext(t), 1, "pool")
		return err
	}
	for name, clientID := range map[string]string{"client id": "Iv1", "app id": "7"} {
		if err := asApp("acme", clientID, 42); err != nil {
			t.Errorf("with the %s: %v", name, err)
		}
	}
	wantError(t, asApp("other", "Iv1", 42), "404") // not installed there
	wantError(t, asApp("acme", "Iv1", 43), "404")
	wantError(t, asApp("acme", "Iv2", 42), "404")

	bearer, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: "Iv1", ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Minute)),
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	if status, _, body := ask(t, sim, "GET", "/app", bearer); status != 200 || body["client_id"] != "Iv1" {
		t.Errorf("GET /app: %d %v", status, body)
	}
	_, _, installation := ask(t, sim, "GET", "/app/installations/42", bearer)
	if got := installation["permissions"].(map[string]any); len(got) != 2 {
		t.Errorf("installation: %v", installation)
	}
	app.Suspended = true
	sim.AddApp(app)
	wantError(t, asApp("acme", "Iv1", 42), "403", "suspended")
	app.Suspended, app.Permissions = false, nil
	sim.AddApp(app)
	wantError(t, asApp("acme", "Iv1", 42), "403", "not accessible by integration")
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	app.PublicKey = &other.PublicKey
	sim.AddApp(app)
	wantError(t, asApp("acme", "Iv1", 42), "401", "could not be decoded")
}

// post sends JSON and decodes the answer, which may be empty.
func post(t *testing.T, url, authorization, body string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestRegistrationTokenIsForItsScopeAndTime(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, Mode: githubsim.Acquire})
	sim.AddOrg("other")
	var token, connection struct{ Token, URL string }
	post(t, sim.URL+"/orgs/acme/actions/runners/registration-token", "Bearer secret", "", &token)
	register := func(path, authorization string) int {
		body := fmt.Sprintf(`{"url":%q,"runner_event":"register"}`, sim.ConfigURL(path))
		return post(t, sim.URL+"/actions/runner-registration", authorization, body, &connection)
	}
	for name, tc := range map[string]struct {
		path, authorization string
		want                int
	}{
		"its scope":       {"acme", "RemoteAuth " + token.Token, 200},
		"another scope":   {"other", "RemoteAuth " + token.Token, 404},
		"a wrong scheme":  {"acme", "Bearer " + token.Token, 401},
		"a wrong token":   {"acme", "RemoteAuth secret", 401},
		"no such account": {"none", "RemoteAuth " + token.Token, 404},
	} {
		if got := register(tc.path, tc.authorization); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	register("acme", "RemoteAuth "+token.Token)
	p := newPool(t, sim)
	offered := func() int {
		path := fmt.Sprintf("%s_apis/runtime/runnerscalesets/%d/acquirablejobs?api-version=6.0-preview", strings.TrimPrefix(connection.URL, sim.URL), p.set.ID)
		_, _, body := ask(t, sim, "GET", path, connection.Token)
		count, _ := body["count"].(float64)
		return int(count)
	}
	before := offered()
	addJob(t, sim, githubsim.Job{})
	poll(t, p.session, 0, 1)
	if after := offered(); before != 0 || after != 1 {
		t.Errorf("acquirable jobs: %d, then %d; want 0, then 1", before, after)
	}
	clock.advance(2 * time.Hour)
	if got := register("acme", "RemoteAuth "+token.Token); got != 401 {
		t.Errorf("after its time: %d", got)
	}
}

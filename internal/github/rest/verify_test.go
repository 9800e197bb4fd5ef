// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var appKeys = sync.OnceValues(func() (*rsa.PublicKey, []byte) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return &key.PublicKey, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
})

// verify runs Verify against a simulated GitHub, which has the organization "acme" with the repository "acme/app", and
// the enterprise "big".
func verify(t *testing.T, path string, creds github.Credentials, options githubsim.Options, prepare func(*githubsim.Running)) (Identity, error) {
	t.Helper()
	sim, err := githubsim.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddEnterprise("big", "acme")
	if err := sim.AddRepository(githubsim.Repository{FullName: "acme/app"}); err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(sim)
	}
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	creds.ConfigURL = sim.ConfigURL(path)
	return Verify(t.Context(), creds, github.Options{Transport: network, Timeout: time.Minute})
}

func TestGoodCredentialsAreVerified(t *testing.T) {
	public, private := appKeys()
	installed := func(sim *githubsim.Running) {
		sim.AddApp(githubsim.App{ID: 7, InstallationID: 70, PublicKey: public, Account: "acme", Permissions: map[string]string{
			"organization_self_hosted_runners": "write", "administration": "write",
		}})
	}
	token := func(grants ...string) func(*githubsim.Running) {
		return func(sim *githubsim.Running) { sim.AddToken("secret", grants...) }
	}
	app := github.Credentials{App: &github.App{ID: "7", InstallationID: 70, PrivateKey: private}}
	pat := github.Credentials{Token: "secret"}
	for name, tc := range map[string]struct {
		path    string
		creds   github.Credentials
		options githubsim.Options
		prepare func(*githubsim.Running)
		want    Identity
	}{
		"classic token, organization":      {path: "acme", creds: pat, prepare: token("admin:org"), want: Identity{github.Organization, "octocat", "", time.Time{}}},
		"fine-grained token, organization": {path: "acme", creds: pat, prepare: token("organization_self_hosted_runners:write"), want: Identity{github.Organization, "octocat", "", time.Time{}}},
		"token that expires": {path: "acme", creds: pat, prepare: func(sim *githubsim.Running) {
			token("admin:org")(sim)
			sim.ExpireToken("secret", time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC))
		}, want: Identity{github.Organization, "octocat", "", time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC)}},
		"classic token, repository": {path: "acme/app", creds: pat, prepare: token("repo"), want: Identity{github.Repository, "octocat", "", time.Time{}}},
		"classic token, enterprise": {path: "enterprises/big", creds: pat, prepare: token("manage_runners:enterprise"), want: Identity{github.Enterprise, "octocat", "", time.Time{}}},
		"token of nobody": {path: "acme", creds: pat, prepare: func(sim *githubsim.Running) {
			token("admin:org")(sim)
			sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointUser, Status: 403})
		}, want: Identity{github.Organization, "token", "", time.Time{}}},
		"app, organization": {path: "ACME", creds: app, prepare: installed, want: Identity{github.Organization, "app/app-7", "", time.Time{}}},
		"app, repository":   {path: "acme/app", creds: app, prepare: installed, want: Identity{github.Repository, "app/app-7", "", time.Time{}}},
		"enterprise server": {
			path: "acme", creds: pat, prepare: token("admin:org"), options: githubsim.Options{Mode: githubsim.Acquire, ServerVersion: "3.20.1"},
			want: Identity{github.Organization, "octocat", "3.20.1", time.Time{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := verify(t, tc.path, tc.creds, tc.options, tc.prepare)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRefusedTokenTellsWhatIsMissing(t *testing.T) {
	fault := func(f githubsim.Fault) func(*githubsim.Running) {
		return func(sim *githubsim.Running) {
			sim.AddToken("secret")
			sim.AddFault(f)
		}
	}
	token := func(grants ...string) func(*githubsim.Running) {
		return func(sim *githubsim.Running) { sim.AddToken("secret", grants...) }
	}
	for name, tc := range map[string]struct {
		path    string
		prepare func(*githubsim.Running)
		reason  string
		says    []string
	}{
		"unknown token":           {path: "acme", reason: v1alpha1.CredentialsRefusedReason, says: []string{"github_token"}},
		"classic without scope":   {path: "acme", prepare: token("repo"), reason: v1alpha1.PermissionMissingReason, says: []string{"admin:org", "Self-hosted runners"}},
		"fine-grained, read only": {path: "acme", prepare: token("organization_self_hosted_runners:read"), reason: v1alpha1.PermissionMissingReason, says: []string{"Self-hosted runners: read and write"}},
		"repository":              {path: "acme/app", prepare: token("administration:read"), reason: v1alpha1.PermissionMissingReason, says: []string{"Administration: read and write", "repo"}},
		"enterprise":              {path: "enterprises/big", prepare: token("admin:org"), reason: v1alpha1.PermissionMissingReason, says: []string{"manage_runners:enterprise"}},
		"404 though it is there": {
			path: "acme", prepare: fault(githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: 404, Body: "{}"}),
			reason: v1alpha1.PermissionMissingReason, says: []string{"admin:org"},
		},
		"no such organization": {path: "absent", prepare: token(), reason: v1alpha1.ScopeNotFoundReason, says: []string{"organization absent"}},
		"no such repository":   {path: "acme/absent", prepare: token(), reason: v1alpha1.ScopeNotFoundReason, says: []string{"repository acme/absent"}},
		"no such enterprise":   {path: "enterprises/absent", prepare: token(), reason: v1alpha1.ScopeNotFoundReason, says: []string{"enterprise absent"}},
		"not a name":           {path: "a/b/c", prepare: token(), reason: v1alpha1.InvalidSpecReason, says: []string{"url"}},
		"server error":         {path: "acme", prepare: fault(githubsim.Fault{Endpoint: githubsim.EndpointUser, Status: 502}), reason: v1alpha1.GitHubUnavailableReason, says: []string{"GitHub answered 502"}},
		"no connection":        {path: "acme", prepare: fault(githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, DropAnswer: true}), reason: v1alpha1.GitHubUnavailableReason, says: []string{"GitHub didn't answer (no answer: EOF)"}},
		"revoked in between":   {path: "acme", prepare: fault(githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: 401}), reason: v1alpha1.CredentialsRefusedReason},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verify(t, tc.path, github.Credentials{Token: "secret"}, githubsim.Options{}, tc.prepare)
			checkRefusal(t, err, tc.reason, tc.says...)
		})
	}
}

func checkRefusal(t *testing.T, err error, reason string, says ...string) {
	t.Helper()
	e := new(Error)
	if !errors.As(err, &e) || e.Reason != reason {
		t.Fatalf("got %v; want reason %s", err, reason)
	}
	for _, word := range says {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("%q doesn't say %q", e, word)
		}
	}
}

func TestRefusedAppTellsWhatIsMissing(t *testing.T) {
	public, private := appKeys()
	runners := map[string]string{"organization_self_hosted_runners": "write"}
	for name, tc := range map[string]struct {
		path   string
		app    githubsim.App
		fault  githubsim.Fault
		id     string
		reason string
		says   []string
	}{
		"404 with the permission": {
			path: "acme", app: githubsim.App{Account: "acme", Permissions: runners}, fault: githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: 404, Body: "{}"},
			reason: v1alpha1.PermissionMissingReason, says: []string{"has the permission", "allow self-hosted runners in the settings of the organization or of its enterprise"},
		},
		"enterprise":           {path: "enterprises/big", app: githubsim.App{Account: "acme"}, reason: v1alpha1.InvalidSpecReason, says: []string{"enterprise", "classic token"}},
		"other App's id":       {path: "acme", id: "8", app: githubsim.App{Account: "acme"}, reason: v1alpha1.CredentialsRefusedReason, says: []string{"github_app_id", "github_app_private_key"}},
		"no such installation": {path: "acme", app: githubsim.App{Account: "acme", InstallationID: 71, Permissions: runners}, reason: v1alpha1.CredentialsRefusedReason, says: []string{"github_app_installation_id", "70"}},
		"suspended":            {path: "acme", app: githubsim.App{Account: "acme", Permissions: runners, Suspended: true}, reason: v1alpha1.PermissionMissingReason, says: []string{"suspended"}},
		"installed elsewhere":  {path: "acme", app: githubsim.App{Account: "other", Permissions: runners}, reason: v1alpha1.ScopeNotFoundReason, says: []string{"other", "acme"}},
		"no permission":        {path: "acme", app: githubsim.App{Account: "acme"}, reason: v1alpha1.PermissionMissingReason, says: []string{"app/app-7", "organization_self_hosted_runners"}},
		"read permission":      {path: "acme", app: githubsim.App{Account: "acme", Permissions: map[string]string{"organization_self_hosted_runners": "read"}}, reason: v1alpha1.PermissionMissingReason, says: []string{"Self-hosted runners: read and write"}},
		"repository":           {path: "acme/app", app: githubsim.App{Account: "acme", Permissions: runners}, reason: v1alpha1.PermissionMissingReason, says: []string{"administration"}},
		"unavailable": {
			path: "acme", app: githubsim.App{Account: "acme", Permissions: runners},
			fault: githubsim.Fault{Endpoint: githubsim.EndpointAccessToken, Status: 500}, reason: v1alpha1.GitHubUnavailableReason,
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := tc.id
			if id == "" {
				id = "7"
			}
			creds := github.Credentials{App: &github.App{ID: id, InstallationID: 70, PrivateKey: private}}
			_, err := verify(t, tc.path, creds, githubsim.Options{}, func(sim *githubsim.Running) {
				app := tc.app
				app.ID, app.PublicKey = 7, public
				if app.InstallationID == 0 {
					app.InstallationID = 70
				}
				sim.AddApp(app)
				if tc.fault.Endpoint != "" {
					sim.AddFault(tc.fault)
				}
			})
			checkRefusal(t, err, tc.reason, tc.says...)
		})
	}
}

func TestRateLimitsTellWhenToComeBack(t *testing.T) {
	for name, tc := range map[string]struct {
		options githubsim.Options
		fault   *githubsim.Fault
		least   time.Duration
	}{
		"used up": {options: githubsim.Options{RateLimit: 1}, least: 30 * time.Minute},
		"secondary": {
			fault: &githubsim.Fault{
				Endpoint: githubsim.EndpointUser, Status: 403, RetryAfter: 90 * time.Second,
				Body: `{"message":"You have exceeded a secondary rate limit.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`,
			},
			least: 90 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verify(t, "acme", github.Credentials{Token: "secret"}, tc.options, func(sim *githubsim.Running) {
				sim.AddToken("secret")
				if tc.fault != nil {
					sim.AddFault(*tc.fault)
				}
			})
			e := new(Error)
			if !errors.As(err, &e) || e.Reason != v1alpha1.GitHubUnavailableReason || e.RetryAfter < tc.least {
				t.Errorf("got %+v; want Unavailable for at least %s", e, tc.least)
			}
		})
	}
}

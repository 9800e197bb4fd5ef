// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
)

// Identity describes GitHub's view of the credentials.
type Identity struct {
	// Scope is organization, repository or enterprise.
	Scope github.Scope
	// Login is app/SLUG, or the login of the token's user; "token" if GitHub does not return one.
	Login string
	// ServerVersion is the version of GitHub Enterprise Server; empty for github.com.
	ServerVersion string
	// Expires is the token's expiry; the zero time for an App and for a token without one.
	Expires time.Time
}

// Verify checks whether the credentials can register runners. It creates a registration token, which it does not use.
// Every error is an *Error whose reason is a condition's reason. Verify can take twice the timeout of a call.
func Verify(ctx context.Context, creds github.Credentials, options github.Options) (Identity, error) {
	options = options.WithDefaults(turns.First).For(creds)
	target, err := github.ParseURL(creds.ConfigURL)
	if err != nil {
		return Identity{}, newError(v1alpha1.InvalidSpecReason, err, "url %q can't be used", creds.ConfigURL)
	}
	if err := creds.Validate(); err != nil {
		return Identity{}, newError(v1alpha1.InvalidSpecReason, err, "the credentials can't be used")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*options.Timeout)
	defer cancel()
	v := &verification{options: options, target: target}
	if creds.App != nil {
		return v.app(ctx, *creds.App)
	}
	return v.token(ctx, creds.Token)
}

// verifying is a transport that counts the requests of verifications.
type verifying struct{ options github.Options }

// RoundTrip sends a request.
func (v verifying) RoundTrip(req *http.Request) (*http.Response, error) {
	return meter.Send(v.options, req, "verify", verifyBounds)
}

type verification struct {
	options github.Options
	target  github.Target
}

func (v *verification) client(bearer string) (*gogithub.Client, error) {
	client, err := gogithub.NewClient(
		gogithub.WithTransport(verifying{v.options}), gogithub.WithURLs(&v.target.API, nil),
		gogithub.WithUserAgent("corral/"+v.options.Version), gogithub.WithAuthToken(bearer))
	if err != nil {
		return nil, newError(v1alpha1.InvalidSpecReason, err, "url can't be used")
	}
	return client, nil
}

// token verifies a personal access token.
func (v *verification) token(ctx context.Context, token string) (Identity, error) {
	client, err := v.client(token)
	if err != nil {
		return Identity{}, err
	}
	login := "token"
	user, resp, err := client.Users.Get(ctx, "")
	switch {
	case err == nil:
		login = user.GetLogin()
	case statusOf(resp) == http.StatusUnauthorized:
		return Identity{}, newError(v1alpha1.CredentialsRefusedReason, nil, "%s is wrong, expired or revoked: GitHub answered 401", v1alpha1.TokenKey)
	default:
		if e := unavailable(resp, err, v.options.Theirs()); e != nil {
			return Identity{}, e
		}
		// A token without a user, such as an App's token, may still be able to register runners.
	}
	identity, err := v.register(ctx, client, login, tokenNeeds(v.target))
	if err == nil && resp != nil {
		identity.Expires = resp.TokenExpiration.UTC()
	}
	return identity, err
}

// tokenNeeds returns the permissions that a token needs, for both kinds of tokens.
func tokenNeeds(t github.Target) string {
	switch t.Scope {
	case github.Organization:
		return `a fine-grained token needs the organization permission "Self-hosted runners: read and write", a classic one the scope admin:org`
	case github.Repository:
		return `a fine-grained token needs the repository permission "Administration: read and write", a classic one the scope repo`
	}
	return "a classic token needs the scope manage_runners:enterprise; fine-grained ones can't"
}

// app verifies a GitHub App. It first reads the App and its installation, so that an error is specific, and then
// creates a registration token.
func (v *verification) app(ctx context.Context, app github.App) (Identity, error) {
	if v.target.Scope == github.Enterprise {
		return Identity{}, newError(v1alpha1.InvalidSpecReason, nil, "an App can't register runners for an enterprise: use a classic token with the scope manage_runners:enterprise")
	}
	assertion, err := app.Assertion(v.options.Theirs())
	if err != nil {
		return Identity{}, newError(v1alpha1.InvalidSpecReason, err, "%s can't be used", v1alpha1.AppPrivateKeyKey)
	}
	asApp, err := v.client(assertion)
	if err != nil {
		return Identity{}, err
	}
	self, resp, err := asApp.Apps.Get(ctx, "")
	if err != nil {
		return Identity{}, v.refused(resp, err, "%s and %s don't belong together", v1alpha1.AppIDKey, v1alpha1.AppPrivateKeyKey)
	}
	login := "app/" + self.GetSlug()
	if err := v.installed(ctx, asApp, app.InstallationID, login); err != nil {
		return Identity{}, err
	}
	token, resp, err := asApp.Apps.CreateInstallationToken(ctx, app.InstallationID, &gogithub.InstallationTokenOptions{})
	if err != nil {
		return Identity{}, v.refused(resp, err, "%s gets no token for installation %d", login, app.InstallationID)
	}
	asInstallation, err := v.client(token.GetToken())
	if err != nil {
		return Identity{}, err
	}
	return v.register(ctx, asInstallation, login, appLacks(v.target, login))
}

// installed checks that the installation exists, is on the right account, and has the permission.
func (v *verification) installed(ctx context.Context, asApp *gogithub.Client, id int64, login string) error {
	installation, resp, err := asApp.Apps.GetInstallation(ctx, id)
	if err != nil {
		return v.refused(resp, err, "%s has no installation %d (%s)", login, id, v1alpha1.AppInstallationIDKey)
	}
	if installation.SuspendedAt != nil {
		return newError(v1alpha1.PermissionMissingReason, nil, "installation %d of %s is suspended", id, login)
	}
	if account := installation.GetAccount().GetLogin(); !strings.EqualFold(account, v.target.Owner) {
		return newError(v1alpha1.ScopeNotFoundReason, nil, "installation %d of %s is on %s, not on %s", id, login, account, v.target.Owner)
	}
	granted := installation.GetPermissions().GetOrganizationSelfHostedRunners()
	if v.target.Scope == github.Repository {
		granted = installation.GetPermissions().GetAdministration()
	}
	if granted != "write" {
		return newError(v1alpha1.PermissionMissingReason, nil, "%s", appNeeds(v.target, login))
	}
	return nil
}

func appNeeds(t github.Target, login string) string {
	if t.Scope == github.Repository {
		return login + ` needs the repository permission "Administration: read and write" (administration), accepted by the installation`
	}
	return login + ` needs the organization permission "Self-hosted runners: read and write" (organization_self_hosted_runners), accepted by the installation`
}

// appLacks describes what may still be missing if an App has the permission.
func appLacks(t github.Target, login string) string {
	if t.Scope == github.Repository {
		return login + ` has the permission "Administration: read and write", but GitHub refuses to register a runner: include the repository in the installation, and allow self-hosted runners in the settings of its organization`
	}
	return login + ` has the permission "Self-hosted runners: read and write", but GitHub refuses to register a runner: allow self-hosted runners in the settings of the organization or of its enterprise`
}

// register creates a registration token. This is the actual test, because it needs the same permission as registering a
// runner.
func (v *verification) register(ctx context.Context, client *gogithub.Client, login, needs string) (Identity, error) {
	_, resp, err := v.registrationToken(ctx, client)
	if err != nil {
		return Identity{}, v.explain(ctx, client, resp, err, needs)
	}
	return Identity{Scope: v.target.Scope, Login: login, ServerVersion: v.serverVersion(ctx, client)}, nil
}

func (v *verification) registrationToken(ctx context.Context, client *gogithub.Client) (*gogithub.RegistrationToken, *gogithub.Response, error) {
	switch v.target.Scope {
	case github.Organization:
		return client.Actions.CreateOrganizationRegistrationToken(ctx, v.target.Owner)
	case github.Repository:
		return client.Actions.CreateRegistrationToken(ctx, v.target.Owner, v.target.Name)
	}
	return client.Enterprise.CreateRegistrationToken(ctx, v.target.Name)
}

// explain distinguishes a missing permission from a missing organization or repository: GitHub answers 404 for both.
func (v *verification) explain(ctx context.Context, client *gogithub.Client, resp *gogithub.Response, err error, needs string) error {
	if e := unavailable(resp, err, v.options.Theirs()); e != nil {
		return e
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return newError(v1alpha1.CredentialsRefusedReason, err, "the credentials are wrong, expired or revoked")
	case http.StatusForbidden:
		if resp.Header.Get("X-GitHub-SSO") != "" {
			needs = "the token must be authorized for the organization's single sign-on"
		}
		return newError(v1alpha1.PermissionMissingReason, err, "%s", needs)
	case http.StatusNotFound:
		if v.visible(ctx, client) {
			return newError(v1alpha1.PermissionMissingReason, err, "%s", needs)
		}
		return newError(v1alpha1.ScopeNotFoundReason, err, "%s not found, or not visible to these credentials (%s)", v.target, needs)
	}
	e := newError(v1alpha1.GitHubUnavailableReason, err, "GitHub answered %d, which Corral does not understand", resp.StatusCode)
	e.Code = resp.StatusCode
	return e
}

func (v *verification) visible(ctx context.Context, client *gogithub.Client) bool {
	switch v.target.Scope {
	case github.Organization:
		_, _, err := client.Organizations.Get(ctx, v.target.Owner)
		return err == nil
	case github.Repository:
		_, _, err := client.Repositories.Get(ctx, v.target.Owner, v.target.Name)
		return err == nil
	}
	return false
}

// refused returns the error for calls that fail only if the App's own data is wrong.
func (v *verification) refused(resp *gogithub.Response, err error, format string, args ...any) error {
	if e := unavailable(resp, err, v.options.Theirs()); e != nil {
		return e
	}
	return newError(v1alpha1.CredentialsRefusedReason, err, format, args...)
}

// serverVersion returns the version of a GitHub Enterprise Server; "" if it does not return one.
func (v *verification) serverVersion(ctx context.Context, client *gogithub.Client) string {
	if !v.target.Server {
		return ""
	}
	var meta struct {
		InstalledVersion string `json:"installed_version"`
	}
	req, err := client.NewRequest(ctx, http.MethodGet, "meta", nil)
	if err == nil {
		_, err = client.Do(req, &meta)
	}
	if err != nil {
		return ""
	}
	return meta.InstalledVersion
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"crypto/rsa"
	"net/http"
	"slices"
	"strings"
	"time"
)

// App is a GitHub App, installed once.
type App struct {
	ID             int64
	ClientID       string
	InstallationID int64
	PublicKey      *rsa.PublicKey
	// Account is the organization or user that it is installed on.
	Account string
	// Permissions as GitHub names them, for example
	// {"organization_self_hosted_runners": "write"}.
	Permissions map[string]string
	// Suspended installations get no access token.
	Suspended bool
}

// userLogin is of the one user, whose the personal tokens are.
const userLogin = "octocat"

// identity is who a bearer token stands for.
type identity struct {
	login   string
	app     *App            // nil for a personal token
	scopes  []string        // of a classic token
	classic bool            // scopes decide
	granted map[string]bool // "permission:level"; nil with classic false: everything
	expires time.Time       // zero: never

	used       int
	windowEnds time.Time
	points     int // of the secondary limit
	minuteEnds time.Time
}

type identities struct {
	byToken map[string]*identity
	apps    map[int64]*App // by installation
	// registration tokens and the scope they are for
	registrations map[string]registration
	adminEpoch    int
	queueEpoch    int
}

type registration struct {
	scope   *scope
	expires time.Time
}

func newIdentities() identities {
	return identities{
		byToken: map[string]*identity{}, apps: map[int64]*App{}, registrations: map[string]registration{},
	}
}

// AddToken makes a personal access token. With no grants it may do everything.
// A grant "permission:level" (as "administration:write") makes it fine-grained,
// one without a level (as "repo" or "admin:org") makes it a classic token with
// these scopes.
func (s *Server) AddToken(token string, grants ...string) {
	s.lock()
	defer s.unlock()
	id := &identity{login: userLogin}
	for _, grant := range grants {
		_, level, _ := strings.Cut(grant, ":")
		if level == "read" || level == "write" {
			if id.granted == nil {
				id.granted = map[string]bool{}
			}
			id.granted[grant] = true
			continue
		}
		id.classic = true
		id.scopes = append(id.scopes, grant)
	}
	s.identities.byToken[token] = id
}

// RevokeToken makes a token of any kind worthless: personal, installation or registration.
func (s *Server) RevokeToken(token string) {
	s.lock()
	defer s.unlock()
	delete(s.identities.byToken, token)
	delete(s.identities.registrations, token)
}

// ExpireToken gives a personal access token an end, which GitHub tells with each answer of its REST API.
func (s *Server) ExpireToken(token string, at time.Time) {
	s.lock()
	defer s.unlock()
	if id := s.identities.byToken[token]; id != nil {
		id.expires = at
	}
}

// AddApp makes or replaces an App by its installation id. Tokens that the
// installation has got keep the permissions they were made with.
func (s *Server) AddApp(app App) {
	s.lock()
	defer s.unlock()
	s.identities.apps[app.InstallationID] = &app
}

// ExpireAdminTokens ends all admin tokens of the Actions service before their time.
func (s *Server) ExpireAdminTokens() {
	s.lock()
	defer s.unlock()
	s.identities.adminEpoch++
}

// ExpireQueueTokens ends all message queue tokens before their time.
func (s *Server) ExpireQueueTokens() {
	s.lock()
	defer s.unlock()
	s.identities.queueEpoch++
}

// allowed says whether the identity has the permission at the level, "read" or "write".
func (id *identity) allowed(permission, level string) bool {
	if id.classic {
		return slices.ContainsFunc(classicScopes[permission], func(sc string) bool { return slices.Contains(id.scopes, sc) })
	}
	if id.granted == nil && id.app == nil {
		return true
	}
	return id.granted[permission+":write"] || level == "read" && id.granted[permission+":read"]
}

// classicScopes are the scopes of a classic token that stand for a permission.
var classicScopes = map[string][]string{
	permRepoAdmin:         {"repo"},
	permOrgRunners:        {"admin:org", "manage_runners:org"},
	permEnterpriseRunners: {"admin:enterprise", "manage_runners:enterprise"},
	permActions:           {"repo"},
	permOrgHooks:          {"admin:org_hook"},
	permRepoHooks:         {"admin:repo_hook", "repo"},
	permStatuses:          {"repo:status", "repo"},
}

// Permissions by GitHub's names.
const (
	permRepoAdmin         = "administration"
	permOrgRunners        = "organization_self_hosted_runners"
	permEnterpriseRunners = "enterprise_self_hosted_runners"
	permActions           = "actions"
	permOrgHooks          = "organization_hooks"
	permRepoHooks         = "repository_hooks"
)

func runnersPermission(kind scopeKind) string {
	switch kind {
	case repoScope:
		return permRepoAdmin
	case enterpriseScope:
		return permEnterpriseRunners
	default:
		return permOrgRunners
	}
}

// reaches says whether the identity sees the scope at all.
func (id *identity) reaches(sc *scope) bool {
	return id.app == nil || strings.EqualFold(id.app.Account, sc.owner())
}

// require gives the answer for an identity that may not do what it asks for.
func (id *identity) require(sc *scope, level string) (answer, bool) {
	if sc == nil || !id.reaches(sc) {
		return restError(http.StatusNotFound, "Not Found"), false
	}
	return id.permitted(sc, runnersPermission(sc.kind), level)
}

// permitted is require for another permission than that for runners.
func (id *identity) permitted(sc *scope, permission, level string) (answer, bool) {
	if sc == nil || !id.reaches(sc) {
		return restError(http.StatusNotFound, "Not Found"), false
	}
	if id.allowed(permission, level) {
		return answer{}, true
	}
	return id.forbidden(sc).with("X-Accepted-GitHub-Permissions", permission+"="+level).
		with("X-Accepted-OAuth-Scopes", strings.Join(classicScopes[permission], ", ")), false
}

func (id *identity) forbidden(sc *scope) answer {
	switch {
	case id.app != nil:
		return restError(http.StatusForbidden, "Resource not accessible by integration")
	case !id.classic:
		return restError(http.StatusForbidden, "Resource not accessible by personal access token")
	case sc.kind == repoScope:
		return restError(http.StatusForbidden, "Must have admin rights to Repository.")
	default:
		return restError(http.StatusForbidden, "You must have the manage_runners or admin scope of the "+string(sc.kind)+" to do this.")
	}
}

// credential takes the token out of "SCHEME T"; it is empty if the scheme is none of those.
func credential(r *http.Request, schemes ...string) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !slices.ContainsFunc(schemes, func(s string) bool { return strings.EqualFold(s, scheme) }) {
		return ""
	}
	return token
}

func bearer(r *http.Request) string { return credential(r, "Bearer") }

// restCredential is a personal token or that of an installation, which may come by either scheme.
func restCredential(r *http.Request) string { return credential(r, "Bearer", "token") }

// caller finds who calls the REST API, or the answer to give instead.
func (s *Server) caller(r *http.Request) (*identity, answer) {
	token := restCredential(r)
	id := s.identities.byToken[token]
	switch {
	case token == "":
		return nil, restError(http.StatusUnauthorized, "Requires authentication")
	case id == nil:
		return nil, restError(http.StatusUnauthorized, "Bad credentials")
	case !id.expires.IsZero() && !id.expires.After(s.now()):
		delete(s.identities.byToken, token)
		return nil, restError(http.StatusUnauthorized, "Bad credentials")
	}
	return id, answer{}
}

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

// App is a GitHub App with one installation.
type App struct {
	ID             int64
	ClientID       string
	InstallationID int64
	PublicKey      *rsa.PublicKey
	// Account is the organization or user on which it is installed.
	Account string
	// Permissions by GitHub's names, for example {"organization_self_hosted_runners": "write"}.
	Permissions map[string]string
	// Suspended installations get no access token.
	Suspended bool
}

// userLogin is the only user, who owns all personal tokens.
const userLogin = "octocat"

// identity is the account of a bearer token.
type identity struct {
	login   string
	app     *App            // nil for a personal token
	scopes  []string        // of a classic token
	classic bool            // its scopes apply
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
	// registration tokens and their scope
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

// AddToken adds a personal access token. Without grants it may do everything. A grant "permission:level" (such as
// "administration:write") makes it fine-grained, and one without a level (such as "repo" or "admin:org") makes it a
// classic token with these scopes.
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

// RevokeToken revokes a token of any kind: personal, installation or registration.
func (s *Server) RevokeToken(token string) {
	s.lock()
	defer s.unlock()
	delete(s.identities.byToken, token)
	delete(s.identities.registrations, token)
}

// ExpireToken sets the expiry of a personal access token, which each answer of the REST API contains.
func (s *Server) ExpireToken(token string, at time.Time) {
	s.lock()
	defer s.unlock()
	if id := s.identities.byToken[token]; id != nil {
		id.expires = at
	}
}

// AddApp adds or replaces an App by its installation id. Existing installation tokens keep their permissions.
func (s *Server) AddApp(app App) {
	s.lock()
	defer s.unlock()
	s.identities.apps[app.InstallationID] = &app
}

// ExpireAdminTokens expires all admin tokens of the Actions service.
func (s *Server) ExpireAdminTokens() {
	s.lock()
	defer s.unlock()
	s.identities.adminEpoch++
}

// ExpireQueueTokens expires all message queue tokens.
func (s *Server) ExpireQueueTokens() {
	s.lock()
	defer s.unlock()
	s.identities.queueEpoch++
}

// allowed reports whether the identity has the permission at the level "read" or "write".
func (id *identity) allowed(permission, level string) bool {
	if id.classic {
		return slices.ContainsFunc(classicScopes[permission], func(sc string) bool { return slices.Contains(id.scopes, sc) })
	}
	if id.granted == nil && id.app == nil {
		return true
	}
	return id.granted[permission+":write"] || level == "read" && id.granted[permission+":read"]
}

// classicScopes are the scopes of a classic token that include a permission.
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

// reaches reports whether the identity can see the scope at all.
func (id *identity) reaches(sc *scope) bool {
	return id.app == nil || strings.EqualFold(id.app.Account, sc.owner())
}

// require returns a refusal if the identity does not have the permission for runners.
func (id *identity) require(sc *scope, level string) (answer, bool) {
	if sc == nil || !id.reaches(sc) {
		return restError(http.StatusNotFound, "Not Found"), false
	}
	return id.permitted(sc, runnersPermission(sc.kind), level)
}

// permitted is require for another permission.
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

// credential returns the token from "SCHEME TOKEN"; empty for any other scheme.
func credential(r *http.Request, schemes ...string) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !slices.ContainsFunc(schemes, func(s string) bool { return strings.EqualFold(s, scheme) }) {
		return ""
	}
	return token
}

func bearer(r *http.Request) string { return credential(r, "Bearer") }

// restCredential returns a personal or installation token, which may use either scheme.
func restCredential(r *http.Request) string { return credential(r, "Bearer", "token") }

// caller returns the identity of a REST call, or the refusal.
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

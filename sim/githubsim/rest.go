// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
)

func (s *Server) getApp(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	app, refusal := s.verifyApp(r)
	if app == nil {
		return refusal
	}
	return ok(s.restApp(app))
}

// installation returns the installation in the path, if it belongs to the calling App.
func (s *Server) installation(r *http.Request) (*App, answer) {
	app, refusal := s.verifyApp(r)
	if app == nil {
		return nil, refusal
	}
	id := int64(pathID(r, "id"))
	installed := s.identities.apps[id]
	if installed == nil || installed.ID != app.ID || installed.ClientID != app.ClientID {
		return nil, restError(http.StatusNotFound, "Not Found")
	}
	return installed, answer{}
}

func (s *Server) getInstallation(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	app, refusal := s.installation(r)
	if app == nil {
		return refusal
	}
	account, tokens := s.account(app.Account), s.api("/app/installations/%d/access_tokens", app.InstallationID)
	body := s.stamped().with(object{
		"id": app.InstallationID, "app_id": app.ID, "app_slug": app.slug(), "account": account, "target_id": account["id"], "target_type": account["type"],
		"repository_selection": "all", "permissions": app.permissions(), "events": []string{}, "single_file_name": nil,
		"access_tokens_url": tokens, "repositories_url": s.api("/installation/repositories"),
		"html_url":     s.home() + "/organizations/" + app.Account + "/settings/installations/" + strconv.FormatInt(app.InstallationID, 10),
		"suspended_by": nil, "suspended_at": nil,
	})
	if app.Suspended {
		body["suspended_by"], body["suspended_at"] = s.account(userLogin), stamp(s.now())
	}
	return ok(body)
}

func (s *Server) createAccessToken(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	app, refusal := s.installation(r)
	if app == nil {
		return refusal
	}
	if app.Suspended {
		return restError(http.StatusForbidden, "This installation has been suspended")
	}
	id := &identity{
		login: app.slug() + "[bot]", app: app, granted: map[string]bool{},
		expires: s.now().Add(s.opts.RegistrationTokenTTL),
	}
	for permission, level := range app.Permissions {
		id.granted[permission+":"+level] = true
	}
	token := "ghs_" + s.secret(18)
	s.forgetExpired()
	s.identities.byToken[token] = id
	return created(map[string]any{
		"token": token, "expires_at": stamp(id.expires), "permissions": app.permissions(), "repository_selection": "all",
	})
}

// forgetExpired removes expired tokens, so that the tables do not grow without limit.
func (s *Server) forgetExpired() {
	now := s.now()
	maps.DeleteFunc(s.identities.byToken, func(_ string, id *identity) bool {
		return !id.expires.IsZero() && !id.expires.After(now)
	})
	maps.DeleteFunc(s.identities.registrations, func(_ string, reg registration) bool {
		return !reg.expires.After(now)
	})
}

func (s *Server) getMeta(*http.Request) answer {
	body := map[string]any{"verifiable_password_authentication": false}
	if s.opts.ServerVersion != "" {
		body["installed_version"] = s.opts.ServerVersion
	}
	return ok(body)
}

func (s *Server) getUser(_ *http.Request, id *identity) answer {
	if id.app != nil {
		return restError(http.StatusForbidden, "Resource not accessible by integration")
	}
	return ok(s.account(id.login).with(s.stamped()).with(object{
		"user_view_type": "private", "name": nil, "bio": nil, "blog": nil, "company": nil, "email": nil, "hireable": nil, "location": nil,
		"followers": 0, "following": 0, "public_gists": 0, "public_repos": 0, "private_gists": 0, "total_private_repos": 0, "owned_private_repos": 0,
		"collaborators": 0, "disk_usage": 0, "two_factor_authentication": true,
	}))
}

func (s *Server) getOrg(r *http.Request, _ *identity) answer {
	sc := s.world.scopes[scopeKey(orgScope, r.PathValue("org"))]
	if sc == nil {
		return restError(http.StatusNotFound, "Not Found")
	}
	return ok(s.organization(sc.name).with(s.stamped()).with(object{
		"type": "Organization", "html_url": s.home() + "/" + sc.name, "archived_at": nil, "has_organization_projects": false,
		"has_repository_projects": false, "public_repos": 0, "public_gists": 0, "followers": 0, "following": 0,
	}))
}

func (s *Server) getRepository(r *http.Request, id *identity) answer {
	repo := s.repositoryOf(r)
	if repo == nil || !repo.Public && id.app != nil && !strings.EqualFold(id.app.Account, repo.owner) {
		return restError(http.StatusNotFound, "Not Found")
	}
	admin := id.allowed(permRepoAdmin, "write")
	return ok(s.repository(repo).with(object{
		"permissions":   map[string]bool{"admin": admin, "maintain": admin, "push": admin, "triage": admin, "pull": true},
		"network_count": 0, "subscribers_count": 0,
	}))
}

// repositoryOf returns the repository in a REST path.
func (s *Server) repositoryOf(r *http.Request) *repository {
	return s.world.repos[strings.ToLower(r.PathValue("owner")+"/"+r.PathValue("repo"))]
}

// restScope returns the scope in a REST path.
func (s *Server) restScope(r *http.Request) *scope {
	switch {
	case r.PathValue("org") != "":
		return s.world.scopes[scopeKey(orgScope, r.PathValue("org"))]
	case r.PathValue("enterprise") != "":
		return s.world.scopes[scopeKey(enterpriseScope, r.PathValue("enterprise"))]
	default:
		return s.world.scopes[scopeKey(repoScope, r.PathValue("owner")+"/"+r.PathValue("repo"))]
	}
}

func (s *Server) createRegistrationToken(r *http.Request, id *identity) answer {
	sc := s.restScope(r)
	if refusal, granted := id.require(sc, "write"); !granted {
		return refusal
	}
	s.forgetExpired()
	token := "A" + strings.ToUpper(s.secret(14))
	reg := registration{scope: sc, expires: s.now().Add(s.opts.RegistrationTokenTTL)}
	s.identities.registrations[token] = reg
	return created(map[string]any{"token": token, "expires_at": stamp(reg.expires)})
}

// registerRunner exchanges a registration token for the admin token of the Actions service.
func (s *Server) registerRunner(r *http.Request) answer {
	var body struct {
		URL   string `json:"url"`
		Event string `json:"runner_event"`
	}
	if err := decode(r, &body); err != nil {
		return restError(http.StatusBadRequest, "Problems parsing JSON")
	}
	s.lock()
	defer s.unlock()
	reg, known := s.identities.registrations[credential(r, "RemoteAuth")]
	if !known || !reg.expires.After(s.now()) {
		return restError(http.StatusUnauthorized, "Bad credentials")
	}
	if s.world.scopeOfURL(body.URL) != reg.scope || body.Event != "register" {
		return restError(http.StatusNotFound, "Not Found")
	}
	tenant := strconv.Itoa(reg.scope.tenant)
	return ok(map[string]any{
		"url": s.baseURL(r) + servicePrefix + "/" + tenant + "/",
		"token": s.sign(adminAudience, s.opts.AdminTokenTTL, serviceClaims{
			Tenant: reg.scope.tenant, Epoch: s.identities.adminEpoch,
		}),
	})
}

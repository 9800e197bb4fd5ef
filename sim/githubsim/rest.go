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
	return ok(map[string]any{
		"id": app.ID, "client_id": app.ClientID, "slug": "app-" + strconv.FormatInt(app.ID, 10),
		"name": "app-" + strconv.FormatInt(app.ID, 10), "owner": account(app.Account),
		"permissions": app.Permissions, "events": []string{},
	})
}

func account(login string) map[string]any {
	return map[string]any{"login": login, "type": "Organization"}
}

// installation finds the installation that the path names, for its own App.
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
	body := map[string]any{
		"id": app.InstallationID, "app_id": app.ID, "account": account(app.Account), "target_type": "Organization",
		"repository_selection": "all", "permissions": app.Permissions, "suspended_at": nil,
	}
	if app.Suspended {
		body["suspended_at"] = stamp(s.now())
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
		login: "app-" + strconv.FormatInt(app.ID, 10) + "[bot]", app: app, granted: map[string]bool{},
		expires: s.now().Add(s.opts.RegistrationTokenTTL),
	}
	for permission, level := range app.Permissions {
		id.granted[permission+":"+level] = true
	}
	token := "ghs_" + s.secret(18)
	s.forgetExpired()
	s.identities.byToken[token] = id
	return created(map[string]any{
		"token": token, "expires_at": stamp(id.expires), "permissions": app.Permissions, "repository_selection": "all",
	})
}

// forgetExpired keeps the tables of tokens from growing without end.
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
	return ok(map[string]any{"id": 1, "login": id.login, "type": "User"})
}

func (s *Server) getOrg(r *http.Request, _ *identity) answer {
	sc := s.world.scopes[scopeKey(orgScope, r.PathValue("org"))]
	if sc == nil {
		return restError(http.StatusNotFound, "Not Found")
	}
	return ok(map[string]any{"id": sc.tenant, "login": sc.name, "type": "Organization"})
}

func (s *Server) getRepository(r *http.Request, id *identity) answer {
	repo := s.world.repos[strings.ToLower(r.PathValue("owner")+"/"+r.PathValue("repo"))]
	if repo == nil || !repo.Public && id.app != nil && !strings.EqualFold(id.app.Account, repo.owner) {
		return restError(http.StatusNotFound, "Not Found")
	}
	visibility := "private"
	if repo.Public {
		visibility = "public"
	}
	return ok(map[string]any{
		"id": repo.id, "name": repo.name, "full_name": repo.FullName, "private": !repo.Public, "visibility": visibility,
		"owner": account(repo.owner), "permissions": map[string]bool{"admin": id.allowed(permRepoAdmin, "write")},
	})
}

// restScope finds the scope that a REST path names.
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

// registerRunner trades a registration token for the admin token of the
// Actions service.
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
	reg, known := s.identities.registrations[bearer(r)]
	if !known || !strings.HasPrefix(r.Header.Get("Authorization"), "RemoteAuth ") || !reg.expires.After(s.now()) {
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

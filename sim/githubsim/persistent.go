// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"net/http"
	"slices"
	"strings"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

// runnerRegisters registers a persistent runner with a registration token.
func (s *Server) runnerRegisters(r *http.Request) answer {
	var body runnerwire.Registration
	if err := decode(r, &body); err != nil || body.Name == "" || len(body.Labels) == 0 || len(body.Labels) > maxLabels {
		return restError(http.StatusBadRequest, "Problems parsing JSON")
	}
	s.lock()
	defer s.unlock()
	sc, g, refusal := s.registering(r, body)
	if g == nil {
		return refusal
	}
	former := s.runners.byName[runnerKey(sc, body.Name)]
	if former != nil {
		if !body.Replace || former.job != nil {
			return restError(http.StatusConflict, "A runner exists with the same name "+body.Name+".")
		}
		s.removeRunner(former)
	}
	rn := s.registerSolo(sc, g, body.Name, body.Labels)
	rn.persistent = true
	if former != nil { // it keeps that runner's id
		delete(s.runners.byID, rn.id)
		rn.id = former.id
		s.runners.byID[rn.id] = rn
	}
	return created(runnerwire.Registered{Config: s.encodedJITConfig(r, rn, "")})
}

// registering returns the scope of the registration token, and the group.
func (s *Server) registering(r *http.Request, body runnerwire.Registration) (*scope, *group, answer) {
	reg, known := s.identities.registrations[credential(r, "RemoteAuth")]
	if !known || !reg.expires.After(s.now()) {
		return nil, nil, restError(http.StatusUnauthorized, "Bad credentials")
	}
	sc := reg.scope
	at := slices.IndexFunc(sc.groups, func(g *group) bool { return strings.EqualFold(g.Name, body.Group) || body.Group == "" && g.id == 1 })
	if s.world.scopeOfURL(body.URL) != sc || at < 0 {
		return nil, nil, restError(http.StatusNotFound, "Not Found")
	}
	return sc, sc.groups[at], answer{}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// hookHandler answers a call about a webhook.
type hookHandler func(r *http.Request, h *hook) answer

// ownedHook serves calls about a webhook of an organization or a repository.
func (s *Server) ownedHook(level string, do hookHandler) handler {
	return s.rest(func(r *http.Request, id *identity) answer {
		h, refusal := s.hookOf(r, id, level)
		if h == nil {
			return refusal
		}
		return do(r, h)
	})
}

// ownAppHook serves calls about an App's webhook, which require the App's own token.
func (s *Server) ownAppHook(do hookHandler) handler {
	return func(r *http.Request) answer {
		s.lock()
		defer s.unlock()
		h, refusal := s.appHook(r)
		if h == nil {
			return refusal
		}
		return do(r, h)
	}
}

func (s *Server) hookRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /app/hook/config", EndpointHook, s.ownAppHook(getHookConfig))
	s.route(mux, "GET /app/hook/deliveries", EndpointDeliveries, s.ownAppHook(s.listDeliveries))
	s.route(mux, "GET /app/hook/deliveries/{delivery}", EndpointDelivery, s.ownAppHook(s.getDelivery))
	s.route(mux, "POST /app/hook/deliveries/{delivery}/attempts", EndpointRedeliver, s.ownAppHook(s.postAttempt))
	for _, prefix := range []string{"/orgs/{org}", "/repos/{owner}/{repo}"} {
		one := prefix + "/hooks/{hook}"
		s.route(mux, "GET "+one, EndpointHook, s.ownedHook("read", s.getHook))
		s.route(mux, "GET "+one+"/deliveries", EndpointDeliveries, s.ownedHook("read", s.listDeliveries))
		s.route(mux, "GET "+one+"/deliveries/{delivery}", EndpointDelivery, s.ownedHook("read", s.getDelivery))
		s.route(mux, "POST "+one+"/deliveries/{delivery}/attempts", EndpointRedeliver, s.ownedHook("write", s.postAttempt))
	}
}

func (h *hook) config() map[string]any {
	config := map[string]any{"url": h.URL, "content_type": "json", "insecure_ssl": "0"}
	if h.Form {
		config["content_type"] = "form"
	}
	if h.InsecureSSL {
		config["insecure_ssl"] = "1"
	}
	if h.Secret != "" {
		config["secret"] = "********"
	}
	return config
}

func getHookConfig(_ *http.Request, h *hook) answer { return ok(h.config()) }

func (s *Server) getHook(_ *http.Request, h *hook) answer { return ok(s.restHook(h)) }

// restHook returns a webhook.
func (s *Server) restHook(h *hook) object {
	kinds := map[scopeKind]string{orgScope: "Organization", repoScope: "Repository", enterpriseScope: "Business", appScope: "App"}
	events := h.Events
	if len(events) == 0 {
		events = []string{"*"}
	}
	o := linked(s.api("/%s/%s/hooks/%d", h.kind, h.name, h.id), "ping=pings deliveries").with(object{
		"id": h.id, "type": kinds[h.kind], "name": "web", "active": true, "events": events, "config": h.config(),
		"created_at": stamp(h.created), "updated_at": stamp(h.created),
	})
	if h.kind == repoScope {
		o["test_url"], o["last_response"] = s.api("/repos/%s/hooks/%d/test", h.name, h.id), object{"code": nil, "status": "unused", "message": nil}
	}
	return o
}

// restDelivery is an attempt in the format of the REST API's lists.
type restDelivery struct {
	ID             int64   `json:"id"`
	GUID           string  `json:"guid"`
	DeliveredAt    string  `json:"delivered_at"`
	Redelivery     bool    `json:"redelivery"`
	Duration       float64 `json:"duration"`
	Status         string  `json:"status"`
	StatusCode     int     `json:"status_code"`
	Event          string  `json:"event"`
	Action         *string `json:"action"`
	InstallationID *int64  `json:"installation_id"`
	RepositoryID   *int    `json:"repository_id"`
}

func (d *delivery) rest() restDelivery {
	out := restDelivery{
		ID: d.id, GUID: d.guid, DeliveredAt: d.at.UTC().Format("2006-01-02T15:04:05.000Z"), Redelivery: d.redelivery,
		Duration: d.took.Seconds(), Status: d.status, StatusCode: d.code, Event: d.event,
	}
	if d.action != "" {
		out.Action = &d.action
	}
	if d.installation != 0 {
		out.InstallationID = &d.installation
	}
	if d.repositoryID != 0 {
		out.RepositoryID = &d.repositoryID
	}
	return out
}

// listDeliveries returns the newest first; a page begins after the cursor.
func (s *Server) listDeliveries(r *http.Request, h *hook) answer {
	query := r.URL.Query()
	size := 30
	if n, err := strconv.Atoi(query.Get("per_page")); err == nil && n > 0 {
		size = min(n, 100)
	}
	before := int64(1) << 62
	if cursor := query.Get("cursor"); cursor != "" {
		id, err := strconv.ParseInt(strings.TrimPrefix(cursor, "v1_"), 10, 64)
		if err != nil {
			return restError(http.StatusUnprocessableEntity, "Invalid cursor")
		}
		before = id
	}
	page, more := []restDelivery{}, false
	for at := len(h.log) - 1; at >= 0; at-- {
		d := h.log[at]
		if failed := d.code >= http.StatusBadRequest; d.id >= before ||
			query.Get("status") == "failure" && !failed || query.Get("status") == "success" && failed {
			continue
		}
		if len(page) == size {
			more = true
			break
		}
		page = append(page, d.rest())
	}
	a := ok(page)
	if more {
		query.Set("cursor", fmt.Sprintf("v1_%d", page[size-1].ID))
		path, _, _ := strings.Cut(r.RequestURI, "?")
		a = a.with("Link", fmt.Sprintf("<http://%s%s?%s>; rel=\"next\"", r.Host, path, query.Encode()))
	}
	return a
}

func deliveryOf(r *http.Request, h *hook) (*delivery, answer) {
	d := h.find(int64(pathID(r, "delivery")))
	if d == nil {
		return nil, restError(http.StatusNotFound, "Not Found")
	}
	return d, answer{}
}

func (s *Server) getDelivery(r *http.Request, h *hook) answer {
	d, refusal := deliveryOf(r, h)
	if d == nil {
		return refusal
	}
	payload := json.RawMessage(d.payload)
	if !json.Valid(payload) {
		payload = json.RawMessage("{}")
	}
	return ok(struct {
		restDelivery
		URL      string         `json:"url"`
		Request  map[string]any `json:"request"`
		Response map[string]any `json:"response"`
	}{
		d.rest(), h.URL,
		map[string]any{"headers": flat(d.sent), "payload": payload},
		map[string]any{"headers": flat(d.received), "payload": d.answer},
	})
}

func flat(header http.Header) map[string]string {
	out := map[string]string{}
	for key := range header {
		out[key] = header.Get(key)
	}
	return out
}

func (s *Server) postAttempt(r *http.Request, h *hook) answer {
	d, refusal := deliveryOf(r, h)
	if d == nil {
		return refusal
	}
	s.redeliver(h, d)
	return answer{status: http.StatusAccepted, body: map[string]any{}}
}

// hookOf finds the webhook in the path, if the identity may access it.
func (s *Server) hookOf(r *http.Request, id *identity, level string) (*hook, answer) {
	sc := s.restScope(r)
	permission := permOrgHooks
	if sc != nil && sc.kind == repoScope {
		permission = permRepoHooks
	}
	if refusal, granted := id.permitted(sc, permission, level); !granted {
		return nil, refusal
	}
	h := s.hooks.find(int64(pathID(r, "hook")))
	if h == nil || h.kind != sc.kind || !strings.EqualFold(h.name, sc.name) {
		return nil, restError(http.StatusNotFound, "Not Found")
	}
	return h, answer{}
}

// appHook finds the webhook of the calling App.
func (s *Server) appHook(r *http.Request) (*hook, answer) {
	app, refusal := s.verifyApp(r)
	if app == nil {
		return nil, refusal
	}
	for _, h := range s.hooks.list {
		if h.kind == appScope && h.name == strconv.FormatInt(app.ID, 10) {
			return h, answer{}
		}
	}
	return nil, restError(http.StatusNotFound, "Not Found")
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// maxWait is the maximum duration of a call to /_sim/wait-idle.
const maxWait = 10 * time.Minute

// adminRoutes serves the admin API: the methods of [Server] for other processes. It requires no token.
func (s *Server) adminRoutes(mux *http.ServeMux) {
	for pattern, h := range map[string]handler{
		"GET /_sim/report":                  func(*http.Request) answer { return ok(s.Report()) },
		"GET /_sim/jobs":                    func(*http.Request) answer { return ok(s.Jobs()) },
		"GET /_sim/invariants":              func(*http.Request) answer { return ok(notNil(s.Invariants())) },
		"GET /_sim/leftovers":               func(*http.Request) answer { return ok(notNil(s.Leftovers())) },
		"GET /_sim/wait-idle":               s.simWait(s.WaitIdle, "jobs are not finished"),
		"POST /_sim/jobs":                   s.simAddJobs,
		"DELETE /_sim/jobs/{job}":           s.simCancelJob,
		"POST /_sim/jobs/{job}/approve":     s.simApproveJob,
		"POST /_sim/hooks":                  s.simAddHook,
		"POST /_sim/hooks/{id}":             s.simChangeHook,
		"DELETE /_sim/hooks/{id}":           s.simRemoveHook,
		"POST /_sim/events":                 s.simSend,
		"GET /_sim/deliveries":              s.simDeliveries,
		"GET /_sim/wait-delivered":          s.simWait(s.WaitDelivered, "deliveries are on their way"),
		"POST /_sim/deliveries/{id}/again":  byID(func(id int) bool { return s.Redeliver(int64(id)) }),
		"POST /_sim/delivery-faults":        s.simAddDeliveryFault,
		"DELETE /_sim/delivery-faults":      done(s.ClearDeliveryFaults),
		"POST /_sim/faults":                 s.simAddFault,
		"DELETE /_sim/faults":               done(s.ClearFaults),
		"POST /_sim/reset-counters":         done(s.ResetCounters),
		"POST /_sim/expire-admin-tokens":    done(s.ExpireAdminTokens),
		"POST /_sim/expire-queue-tokens":    done(s.ExpireQueueTokens),
		"POST /_sim/tokens":                 s.simAddToken,
		"DELETE /_sim/tokens/{token}":       s.simRevokeToken,
		"POST /_sim/orgs":                   s.simAddOrg,
		"POST /_sim/repositories":           s.simAddRepository,
		"POST /_sim/groups":                 s.simAddGroup,
		"POST /_sim/scale-sets/{id}/forget": byID(s.ForgetScaleSet),
		"POST /_sim/scale-sets/{id}/expire": byID(s.ExpireSession),
		"POST /_sim/scale-sets/{id}/steal":  s.simStealSession,
		"POST /_sim/runners/{id}/purge":     byID(s.PurgeRunner),
		"/_sim/":                            func(*http.Request) answer { return simError(http.StatusNotFound, "no such admin call") },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h(r).write(w) })
	}
}

func simError(status int, message string) answer {
	return answer{status: status, body: map[string]string{"error": message}}
}

func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func done(do func()) handler {
	return func(*http.Request) answer {
		do()
		return noContent()
	}
}

// byID serves a method that reports whether it found the given id.
func byID(do func(id int) bool) handler {
	return func(r *http.Request) answer {
		if !do(pathID(r, "id")) {
			return simError(http.StatusNotFound, "nothing with id "+r.PathValue("id"))
		}
		return noContent()
	}
}

// simDuration is a duration in JSON, such as "1.5s".
type simDuration time.Duration

func (d *simDuration) UnmarshalJSON(b []byte) error {
	text, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("a duration is a string as %q: %w", "1.5s", err)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("reading a duration: %w", err)
	}
	*d = simDuration(parsed)
	return nil
}

// simAddJobs accepts a list of jobs, each with "duration" in addition to the fields of [Job] and "count" for several
// equal jobs, and answers with their ids.
func (s *Server) simAddJobs(r *http.Request) answer {
	var jobs []struct {
		Job
		Duration simDuration `json:"duration"`
		Count    int         `json:"count"`
	}
	if err := decode(r, &jobs); err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	ids := []string{}
	for _, j := range jobs {
		j.Job.Duration = time.Duration(j.Duration)
		for range min(max(j.Count, 1), 100_000) {
			id, err := s.AddJob(j.Job)
			if err != nil {
				return simError(http.StatusBadRequest, err.Error())
			}
			ids = append(ids, id)
		}
	}
	return created(map[string][]string{"ids": ids})
}

func (s *Server) simCancelJob(r *http.Request) answer {
	if !s.CancelJob(r.PathValue("job")) {
		return simError(http.StatusNotFound, "no unfinished job of that id")
	}
	return noContent()
}

// simAddFault accepts a [Fault] with "delay" and "retryAfter" as durations.
func (s *Server) simAddFault(r *http.Request) answer {
	var f struct {
		Fault
		Delay      simDuration `json:"delay"`
		RetryAfter simDuration `json:"retryAfter"`
	}
	if err := decode(r, &f); err != nil || f.Endpoint == "" {
		return simError(http.StatusBadRequest, "the body is not a fault with an endpoint")
	}
	f.Fault.Delay, f.Fault.RetryAfter = time.Duration(f.Delay), time.Duration(f.RetryAfter)
	_ = s.AddFault(f.Fault) // DELETE removes all
	return noContent()
}

func (s *Server) simAddToken(r *http.Request) answer {
	var body struct {
		Token  string   `json:"token"`
		Grants []string `json:"grants"`
	}
	if err := decode(r, &body); err != nil || body.Token == "" {
		return simError(http.StatusBadRequest, "the body has no token")
	}
	s.AddToken(body.Token, body.Grants...)
	return noContent()
}

func (s *Server) simRevokeToken(r *http.Request) answer {
	s.RevokeToken(r.PathValue("token"))
	return noContent()
}

func (s *Server) simAddOrg(r *http.Request) answer {
	var body struct {
		Name string `json:"name"`
	}
	if err := decode(r, &body); err != nil || body.Name == "" {
		return simError(http.StatusBadRequest, "the body has no name")
	}
	s.AddOrg(body.Name)
	return noContent()
}

func (s *Server) simAddRepository(r *http.Request) answer {
	var body Repository
	if err := decode(r, &body); err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	if err := s.AddRepository(body); err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	return noContent()
}

func (s *Server) simAddGroup(r *http.Request) answer {
	var body struct {
		Group
		Owner string `json:"owner"`
	}
	if err := decode(r, &body); err != nil || body.Owner == "" || body.Name == "" {
		return simError(http.StatusBadRequest, "the body has no owner or no name")
	}
	return created(map[string]int{"id": s.AddRunnerGroup(body.Owner, body.Group)})
}

func (s *Server) simStealSession(r *http.Request) answer {
	var body struct {
		Owner string `json:"owner"`
	}
	if err := decode(r, &body); err != nil || body.Owner == "" {
		return simError(http.StatusBadRequest, "the body has no owner")
	}
	return byID(func(id int) bool { return s.StealSession(id, body.Owner) })(r)
}

// simWait is held until the condition is met, but no longer than "timeout".
func (s *Server) simWait(until func(context.Context) error, otherwise string) handler {
	return func(r *http.Request) answer {
		timeout := maxWait
		if asked, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil {
			timeout = min(asked, maxWait)
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		if until(ctx) != nil {
			return simError(http.StatusRequestTimeout, otherwise)
		}
		return noContent()
	}
}

func (s *Server) simApproveJob(r *http.Request) answer {
	if !s.ApproveJob(r.PathValue("job")) {
		return simError(http.StatusNotFound, "no job of that id waits")
	}
	return noContent()
}

func (s *Server) simAddHook(r *http.Request) answer {
	var h Hook
	if err := decode(r, &h); err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	id, err := s.AddHook(h)
	if err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	return created(map[string]int64{"id": id})
}

// simChangeHook changes "url" and "secret", if present.
func (s *Server) simChangeHook(r *http.Request) answer {
	var body struct{ URL, Secret *string }
	if err := decode(r, &body); err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	return byID(func(id int) bool {
		return s.ChangeHook(int64(id), func(h *Hook) {
			if body.URL != nil {
				h.URL = *body.URL
			}
			if body.Secret != nil {
				h.Secret = *body.Secret
			}
		})
	})(r)
}

func (s *Server) simRemoveHook(r *http.Request) answer {
	s.RemoveHook(int64(pathID(r, "id")))
	return noContent()
}

func (s *Server) simSend(r *http.Request) answer {
	var e Event
	if err := decode(r, &e); err != nil || e.Event == "" {
		return simError(http.StatusBadRequest, "the body is not an event")
	}
	if err := s.Send(e); err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	return noContent()
}

// simDeliveries returns the deliveries of the hook in "hook", or of all hooks.
func (s *Server) simDeliveries(r *http.Request) answer {
	hookID, _ := strconv.ParseInt(r.URL.Query().Get("hook"), 10, 64) // 0 is all
	deliveries := s.Deliveries(hookID)
	if deliveries == nil {
		deliveries = []DeliveryReport{}
	}
	return ok(deliveries)
}

// simAddDeliveryFault accepts a [DeliveryFault] with "delay" as a duration.
func (s *Server) simAddDeliveryFault(r *http.Request) answer {
	var f struct {
		DeliveryFault
		Delay simDuration `json:"delay"`
	}
	if err := decode(r, &f); err != nil {
		return simError(http.StatusBadRequest, err.Error())
	}
	f.DeliveryFault.Delay = time.Duration(f.Delay)
	_ = s.AddDeliveryFault(f.DeliveryFault) // DELETE removes all
	return noContent()
}

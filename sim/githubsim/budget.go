// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Points of github.com's secondary limit for a call.
const (
	readPoints  = 1
	writePoints = 5
)

// budget returns the state of the identity's current hour.
func (s *Server) budget(id *identity) (limit, used int, resets time.Time) {
	if now := s.now(); !id.windowEnds.After(now) {
		id.used, id.windowEnds = 0, now.Add(time.Hour)
	}
	return s.opts.RateLimit, id.used, id.windowEnds
}

// limited returns the refusal if the identity has no call left in the hour or in the minute.
func (s *Server) limited(r *http.Request, id *identity) (answer, bool) {
	if limit, used, _ := s.budget(id); used >= limit {
		return restError(http.StatusForbidden, "API rate limit exceeded for "+id.login+"."), false
	}
	if s.opts.SecondaryPoints == 0 {
		return answer{}, true
	}
	now := s.now()
	if !id.minuteEnds.After(now) {
		id.points, id.minuteEnds = 0, now.Add(time.Minute)
	}
	points := writePoints
	if r.Method == http.MethodGet {
		points = readPoints
	}
	if id.points+points > s.opts.SecondaryPoints {
		seconds := int(id.minuteEnds.Sub(now).Seconds()) + 1
		return restError(http.StatusForbidden, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.").
			with("Retry-After", strconv.Itoa(seconds)), false
	}
	id.points += points
	return answer{}, true
}

// limitHeaders returns the rate limit headers.
func (s *Server) limitHeaders(id *identity) map[string]string {
	limit, used, resets := s.budget(id)
	return map[string]string{
		"x-ratelimit-limit":     strconv.Itoa(limit),
		"x-ratelimit-remaining": strconv.Itoa(limit - used),
		"x-ratelimit-used":      strconv.Itoa(used),
		"x-ratelimit-reset":     strconv.FormatInt(resets.Unix(), 10),
		"x-ratelimit-resource":  "core",
	}
}

// unmodified adds an ETag to an answer, or replaces it by 304 if the client has that ETag. As on GitHub, the ETag
// depends on the token, so a new token of the same App gets new ETags.
func unmodified(r *http.Request, a answer) answer {
	if r.Method != http.MethodGet || a.status != http.StatusOK {
		return a
	}
	encoded, err := json.Marshal(a.body)
	if err != nil {
		return a
	}
	sum := sha256.New()
	sum.Write([]byte(restCredential(r) + "\n" + a.header["Link"] + "\n"))
	sum.Write(encoded)
	tag := fmt.Sprintf(`"%x"`, sum.Sum(nil))
	for known := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(known), "W/") == tag {
			a.status, a.body = http.StatusNotModified, nil
			break
		}
	}
	return a.with("ETag", "W/"+tag)
}

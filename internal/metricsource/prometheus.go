// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package metricsource reads single numbers from Prometheus servers that the administrator allows, and from the
// cluster's external metrics API. It does not trust the servers: it limits the time and the size of an answer, follows
// no redirect, and accepts only one fresh number.
package metricsource

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/neterr"
)

const (
	// Timeout limits a query, from the connection to the last byte of the answer.
	Timeout = 10 * time.Second
	// mostAnswer limits an answer, in bytes. One number takes a few hundred.
	mostAnswer = 256 << 10
	// mostHeader limits the header of an answer, in bytes.
	mostHeader = 32 << 10
	// maxQuoted limits the quoted part of a server's message, in bytes.
	maxQuoted = 160
)

// Servers are the allowed Prometheus servers by name.
type Servers struct {
	urls   map[string]*url.URL
	client *http.Client
	now    func() time.Time
}

// ServersOptions are options for NewServers. All are optional.
type ServersOptions struct {
	// Transport of the requests. Default: a new one with the proxies of the environment.
	Transport http.RoundTripper
	// Timeout of a query. Default: Timeout.
	Timeout time.Duration
	// Now is the clock.
	Now func() time.Time
}

// NewServers returns the servers for flags of the form NAME=URL. The URL may have a path, which is the parent of the
// API's /api/v1.
func NewServers(flags []string, o ServersOptions) (*Servers, error) {
	s := &Servers{urls: map[string]*url.URL{}, now: o.Now}
	for i, f := range flags {
		name, raw, ok := strings.Cut(f, "=")
		if !ok || len(validation.IsDNS1123Label(name)) > 0 {
			// The text is not shown, because it may contain a password or a token at any place.
			return nil, fmt.Errorf("reading Prometheus server number %d: write NAME=URL, where NAME has lower-case letters, digits and dashes", i+1)
		}
		if s.urls[name] != nil {
			return nil, fmt.Errorf("reading the Prometheus server %q: there are two of this name", name)
		}
		u, err := parseServer(raw)
		if err != nil {
			return nil, fmt.Errorf("reading the Prometheus server %q: %w", name, err)
		}
		s.urls[name] = u
	}
	if s.now == nil {
		s.now = time.Now
	}
	transport := o.Transport
	if transport == nil {
		transport = newTransport()
	}
	o.Timeout = cmp.Or(o.Timeout, Timeout)
	s.client = &http.Client{Transport: unredirected{transport}, Timeout: o.Timeout}
	return s, nil
}

func parseServer(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("it isn't a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, errors.New("the URL must begin with http:// or https:// and a host")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("the URL must have no user, query or fragment")
	}
	return u.JoinPath("api/v1/query"), nil
}

// unredirected removes the address of a redirect from answers, so that a client returns the answer as it is. Otherwise a
// server could redirect the controller to hosts that only the controller can reach, and the error about an address that
// cannot be parsed would quote it with its tokens.
type unredirected struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (u unredirected) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := u.next.RoundTrip(req)
	if err == nil {
		resp.Header.Del("Location")
	}
	return resp, err
}

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = mostHeader
	t.MaxConnsPerHost = 32
	t.MaxIdleConnsPerHost = 4
	return t
}

// Names returns the names of the servers, sorted.
func (s *Servers) Names() []string {
	return slices.Sorted(maps.Keys(s.urls))
}

// Query returns the current value of a query. It returns an error if the answer is not one number, or if the number is
// more than maxAge away from now. The error is a *demand.NoSignal if the server is not allowed, or if it answered the
// query with a result that cannot be used. A server that supports lookback_delta, as Prometheus does, ignores samples
// older than maxAge. A server that supports partial_response, as Thanos does, fails if a part of the data is missing.
//
// The protocol is https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries.
func (s *Servers) Query(ctx context.Context, server, query string, maxAge time.Duration) (float64, error) {
	u := s.urls[server]
	if u == nil {
		return 0, &demand.NoSignal{Reason: fmt.Sprintf("there is no Prometheus server %q: the administrator allows %s", server, s.allowed())}
	}
	form := url.Values{
		"query":            {query},
		"timeout":          {seconds(s.client.Timeout)},
		"lookback_delta":   {seconds(maxAge)},
		"partial_response": {"false"},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return 0, fmt.Errorf("asking Prometheus %q: %w", server, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var a *answer
	status, body, err := send(s.client, req)
	if err == nil {
		a, err = parseAnswer(status, body)
	}
	if err != nil {
		return 0, fmt.Errorf("asking Prometheus %q: %w", server, err)
	}
	return a.number(s.now(), maxAge)
}

func (s *Servers) allowed() string {
	if len(s.urls) == 0 {
		return "none (--prometheus-server)"
	}
	return strings.Join(s.Names(), ", ")
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(math.Max(1, d.Seconds()), 'f', -1, 64)
}

// plain returns a network error without the URL, which a pool's status should not show, and without the parts that
// differ between attempts.
func plain(err error) error {
	e := net.Error(nil)
	switch {
	case !errors.As(err, &e):
		return err
	case e.Timeout():
		return errors.New("it took too long")
	}
	return errors.New(neterr.Describe(err))
}

// send makes a request and reads the answer. It returns an error if the answer is larger than mostAnswer.
func send(client *http.Client, req *http.Request) (status int, body []byte, err error) {
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		body, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	}
	if err != nil {
		return 0, nil, plain(err)
	}
	if len(body) > mostAnswer {
		return 0, nil, &demand.NoSignal{Reason: fmt.Sprintf("the answer has more than %d kB: the query must give one number", mostAnswer>>10)}
	}
	return resp.StatusCode, body, nil
}

// answer is the answer of a Prometheus server.
type answer struct {
	Status   string   `json:"status"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Data     struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

func parseAnswer(status int, raw []byte) (*answer, error) {
	if status >= 300 && status < 400 {
		return nil, fmt.Errorf("it answered %d, and Corral does not follow redirects", status)
	}
	a := &answer{}
	err := json.Unmarshal(raw, a)
	switch {
	case err == nil && a.Status == "error":
		return nil, fmt.Errorf("it answered %d: %s", status, quote(a.Error))
	case status != http.StatusOK:
		return nil, fmt.Errorf("it answered %d", status)
	case err != nil || a.Status != "success":
		return nil, errors.New("the response is not from Prometheus")
	}
	return a, nil
}

// quote returns a server's message without control characters and truncated to maxQuoted bytes.
func quote(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	for i := range s {
		if i >= maxQuoted {
			return s[:i] + "…"
		}
	}
	return s
}

// sample is a Unix time in seconds, and a number as text.
type sample [2]json.RawMessage

// number returns the only number of the answer.
func (a *answer) number(now time.Time, maxAge time.Duration) (float64, error) {
	if len(a.Warnings) > 0 {
		return 0, &demand.NoSignal{Reason: "Prometheus warns: " + quote(a.Warnings[0])}
	}
	s, err := a.sample()
	if err != nil {
		return 0, err
	}
	value, at, err := s.parse()
	if err != nil {
		return 0, err
	}
	if age := now.Sub(at); age > maxAge || age < -maxAge {
		return 0, &demand.NoSignal{Reason: fmt.Sprintf("the value is of %s, more than %s from now", at.UTC().Format(time.RFC3339), maxAge)}
	}
	return value, nil
}

// sample returns the only sample of the answer.
func (a *answer) sample() (sample, error) {
	var s sample
	switch a.Data.Type {
	case "scalar":
		if err := json.Unmarshal(a.Data.Result, &s); err != nil {
			return s, &demand.NoSignal{Reason: "the query's result can't be read"}
		}
		return s, nil
	case "vector":
		var series []struct {
			Value sample `json:"value"`
		}
		if err := json.Unmarshal(a.Data.Result, &series); err != nil {
			return s, &demand.NoSignal{Reason: "the query's result can't be read"}
		}
		switch len(series) {
		case 0:
			return s, &demand.NoSignal{Reason: "the query has no result"}
		case 1:
			return series[0].Value, nil
		}
		return s, &demand.NoSignal{Reason: fmt.Sprintf("the query has %d results: add them up, as with sum()", len(series))}
	}
	return s, &demand.NoSignal{Reason: fmt.Sprintf("the query's result is a %s, not one number", quote(a.Data.Type))}
}

func (s sample) parse() (float64, time.Time, error) {
	var at float64
	var text string
	if json.Unmarshal(s[0], &at) != nil || json.Unmarshal(s[1], &text) != nil || math.Abs(at) > 1e11 {
		return 0, time.Time{}, &demand.NoSignal{Reason: "the query's result isn't one number"}
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, time.Time{}, &demand.NoSignal{Reason: fmt.Sprintf("the query's result is %s, not a number", quote(text))}
	}
	return value, time.UnixMilli(int64(at * 1000)), nil
}

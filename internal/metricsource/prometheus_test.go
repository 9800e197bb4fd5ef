// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package metricsource_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/metricsource"
)

// now is the time of all clocks here, and at is that time in an answer.
var (
	now = time.Unix(1_770_000_000, 0)
	at  = "1770000000.25"
)

func vector(samples ...string) string {
	series := make([]string, 0, len(samples))
	for _, s := range samples {
		series = append(series, fmt.Sprintf(`{"metric":{"a":"b"},"value":%s}`, s))
	}
	return fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(series, ","))
}

// ask sends a query to a server with the handler.
func ask(t *testing.T, handler http.HandlerFunc, o metricsource.ServersOptions) (float64, error) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	o.Now = func() time.Time { return now }
	o.Transport = s.Client().Transport
	servers, err := metricsource.NewServers([]string{"main=" + s.URL + "/base"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return servers.Query(t.Context(), "main", "sum(queue_length)", 2*time.Minute)
}

func TestQuery(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		answer string
		want   float64
		err    string
		silent bool // the server answered without a usable number
	}{
		"one series":           {answer: vector(`[` + at + `,"12.5"]`), want: 12.5},
		"a scalar":             {answer: `{"status":"success","data":{"resultType":"scalar","result":[` + at + `,"3"]}}`, want: 3},
		"without end":          {answer: vector(`[` + at + `,"+Inf"]`), want: math.Inf(1)}, // demand.FromValue interprets it
		"none":                 {answer: vector(), err: "the query has no result", silent: true},
		"several":              {answer: vector(`[`+at+`,"1"]`, `[`+at+`,"2"]`), err: "the query has 2 results: add them up, as with sum()", silent: true},
		"stale":                {answer: vector(`[1769999800,"1"]`), err: "the value is of 2026-02-02T02:36:40Z, more than 2m0s from now", silent: true},
		"of the future":        {answer: vector(`[1770000200,"1"]`), err: "the value is of 2026-02-02T02:43:20Z, more than 2m0s from now", silent: true},
		"of no time":           {answer: vector(`[1e300,"1"]`), err: "the query's result isn't one number", silent: true},
		"no sample":            {answer: vector(`{}`), err: "the query's result can't be read", silent: true},
		"an empty sample":      {answer: vector(`[]`), err: "the query's result isn't one number", silent: true},
		"a word":               {answer: vector(`[` + at + `,"many"]`), err: "the query's result is many, not a number", silent: true},
		"a matrix":             {answer: `{"status":"success","data":{"resultType":"matrix","result":[]}}`, err: "the query's result is a matrix, not one number", silent: true},
		"part of the data":     {answer: `{"status":"success","warnings":["store eu is down"],"data":{"resultType":"scalar","result":[` + at + `,"3"]}}`, err: "Prometheus warns: store eu is down", silent: true},
		"too much":             {answer: vector(`[`+at+`,"1"]`) + strings.Repeat(" ", 300<<10), err: `asking Prometheus "main": the answer has more than 256 kB: the query must give one number`, silent: true},
		"a bad query":          {status: 400, answer: `{"status":"error","errorType":"bad_data","error":"parse error\n\u001b[31m: x` + strings.Repeat("!", 300) + `"}`, err: `asking Prometheus "main": it answered 400: parse error  [31m: x` + strings.Repeat("!", 140) + "…"},
		"an error as success":  {answer: `{"status":"error","error":"no"}`, err: `asking Prometheus "main": it answered 200: no`},
		"a page of a proxy":    {answer: "<html>", err: `asking Prometheus "main": the response is not from Prometheus`},
		"refused":              {status: 403, answer: "<html>", err: `asking Prometheus "main": it answered 403`},
		"down":                 {status: 503, answer: "", err: `asking Prometheus "main": it answered 503`},
		"success with a fault": {status: 500, answer: vector(`[` + at + `,"1"]`), err: `asking Prometheus "main": it answered 500`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ask(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				io.WriteString(w, tc.answer)
			}, metricsource.ServersOptions{})
			if tc.err == "" {
				if err != nil || got != tc.want {
					t.Fatalf("got %v, %v; want %v", got, err, tc.want)
				}
				return
			}
			if err == nil || err.Error() != tc.err {
				t.Errorf("error %v\n want %s", err, tc.err)
			}
			if silent := (*demand.NoSignal)(nil); errors.As(err, &silent) != tc.silent {
				t.Errorf("no signal: %v, want %v", !tc.silent, tc.silent)
			}
		})
	}
}

func TestQueryAsksAsPrometheusWantsIt(t *testing.T) {
	t.Parallel()
	var path, method string
	var form url.Values
	_, err := ask(t, func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		path, method, form = r.URL.Path, r.Method, r.PostForm
		io.WriteString(w, vector(`[`+at+`,"1"]`))
	}, metricsource.ServersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{"query": {"sum(queue_length)"}, "timeout": {"10"}, "lookback_delta": {"120"}, "partial_response": {"false"}}
	if diff := cmp.Diff(want, form); diff != "" || path != "/base/api/v1/query" || method != http.MethodPost {
		t.Errorf("%s %s (-want +got):\n%s", method, path, diff)
	}
}

// Redirects are not followed, because the controller may be able to reach hosts that others cannot.
func TestQueryFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached = true
		io.WriteString(w, vector(`[`+at+`,"1000"]`))
	}))
	t.Cleanup(elsewhere.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		_, err := ask(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, code) }, metricsource.ServersOptions{})
		if want := fmt.Sprintf(`asking Prometheus "main": it answered %d, and Corral does not follow redirects`, code); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if reached {
		t.Error("the controller went elsewhere")
	}
}

// The address of a redirect may contain a token. net/http quotes an address that it cannot parse in its error.
func TestQueryQuotesNoRedirect(t *testing.T) {
	t.Parallel()
	_, err := ask(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "https://login:x?token=secret")
		w.WriteHeader(http.StatusFound)
	}, metricsource.ServersOptions{})
	if want := `asking Prometheus "main": it answered 302, and Corral does not follow redirects`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// A server that does not answer, or never ends its answer, takes no longer than the timeout.
func TestQueryIsBoundedInTime(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no end": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"status":`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ask(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // so that the server notices when the client leaves
				handler(w, r)
			}, metricsource.ServersOptions{Timeout: 50 * time.Millisecond})
			if want := `asking Prometheus "main": it took too long`; err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

func TestQueryAsksNobodyElse(t *testing.T) {
	t.Parallel()
	servers, err := metricsource.NewServers([]string{"b=https://b.test", "a=http://a.test:9090/"}, metricsource.ServersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = servers.Query(t.Context(), "http://169.254.169.254", "up", time.Minute)
	if want := `there is no Prometheus server "http://169.254.169.254": the administrator allows a, b`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	none, err := metricsource.NewServers(nil, metricsource.ServersOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = none.Query(t.Context(), "main", "up", time.Minute)
	if want := `there is no Prometheus server "main": the administrator allows none (--prometheus-server)`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestNewServersRefuses(t *testing.T) {
	t.Parallel()
	const form = "reading Prometheus server number 1: write NAME=URL, where NAME has lower-case letters, digits and dashes"
	for name, tc := range map[string]struct {
		flags []string
		want  string
	}{
		"no name":         {[]string{"http://prometheus"}, form},
		"a bad name":      {[]string{"Main=http://prometheus"}, form},
		"a told password": {[]string{"https://me:secret@prometheus"}, form},
		"one with an @":   {[]string{"https://me:s@cret@prometheus"}, form},
		"without scheme":  {[]string{"Main=me:secret@prometheus"}, form},
		"a told token":    {[]string{"https://prometheus?token=secret"}, form},
		"twice":           {[]string{"a=http://b", "a=http://c"}, `reading the Prometheus server "a": there are two of this name`},
		"no URL":          {[]string{"a=http://b:x"}, `reading the Prometheus server "a": it isn't a URL`},
		"no host":         {[]string{"a=prometheus:9090"}, `reading the Prometheus server "a": the URL must begin with http:// or https:// and a host`},
		"a file":          {[]string{"a=file:///etc/passwd"}, `reading the Prometheus server "a": the URL must begin with http:// or https:// and a host`},
		"a password":      {[]string{"a=http://me:secret@b"}, `reading the Prometheus server "a": the URL must have no user, query or fragment`},
		"a query":         {[]string{"a=http://b?x=y"}, `reading the Prometheus server "a": the URL must have no user, query or fragment`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := metricsource.NewServers(tc.flags, metricsource.ServersOptions{}); err == nil || err.Error() != tc.want {
				t.Errorf("error %v\n want %s", err, tc.want)
			}
		})
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/internal/github"
)

// calls that a hostile server answers, by their subject.
var calls = map[string]func(context.Context, *Client) error{
	"runners":        func(ctx context.Context, c *Client) error { _, err := c.Runners(ctx, 0); return err },
	"runner by name": func(ctx context.Context, c *Client) error { _, err := c.RunnerByName(ctx, "none"); return err },
	"runner":         func(ctx context.Context, c *Client) error { _, err := c.Runner(ctx, 1); return err },
	"runner_groups":  func(ctx context.Context, c *Client) error { _, err := c.Groups(ctx); return err },
	"visible groups": func(ctx context.Context, c *Client) error { _, err := c.Visible(ctx, "gpu", "acme/app"); return err },
	"workflow_runs":  func(ctx context.Context, c *Client) error { _, err := c.Jobs(ctx, "acme/app", 0); return err },
	"jobs": func(ctx context.Context, c *Client) error {
		_, err := c.jobsOfRun(ctx, "acme", "app", 1, &room{})
		return err
	},
	"job":          func(ctx context.Context, c *Client) error { _, err := c.Job(ctx, "acme/app", 1); return err },
	"repositories": func(ctx context.Context, c *Client) error { _, err := c.Repositories(ctx, []string{"*"}); return err },
	"releases":     func(ctx context.Context, c *Client) error { _, err := c.Releases(ctx); return err },
	"deliveries":   func(ctx context.Context, c *Client) error { _, _, err := c.Deliveries(ctx, 1, ""); return err },
	"delivery":     func(ctx context.Context, c *Client) error { _, _, err := c.Payload(ctx, 1, 2); return err },
	"a registration": func(ctx context.Context, c *Client) error {
		_, err := c.GenerateJIT(ctx, Registration{Name: "x"})
		return err
	},
	"a token":   func(ctx context.Context, c *Client) error { _, err := c.RegistrationToken(ctx); return err },
	"a removal": func(ctx context.Context, c *Client) error { return c.RemoveRunner(ctx, 1) },
	"commit's reports": func(ctx context.Context, c *Client) error {
		return c.ReportCommit(ctx, "acme/app", "abc", CommitReport{Name: "x"})
	},
}

// Whatever a server answers, the client uses little memory, and the error names the part that is too large.
func TestAHostileServerTakesLittleMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		begin, again string
		n            int
		want         github.TooLarge
	}{
		"877,777 elements": {"{%s:[", `{"id":1,"name":"r","status":"online","busy":false},`, 877_777, github.TooLarge{Field: "LIST", Most: 100, Unit: "elements"}},
		"the root's":       {"[", `{"id":1,"name":"r","tag_name":"v1"},`, 877_777, github.TooLarge{Most: 100, Unit: "elements"}},
		"a text of a MB":   {`{"name":"`, "xxxxxxxx", 1 << 17, github.TooLarge{Field: "name", Most: 256 << 10, Unit: "bytes"}},
		"10,000 levels":    {`{"x":`, "[", 10_000, github.TooLarge{Most: 32, Unit: "levels"}},
		"many labels":      {`{"id":1,"labels":[{"name":"x"},[`, `{"name":"x"},`, 5_000, github.TooLarge{Field: "labels", Most: 1000, Unit: "elements"}},
		"many members":     {`{"x":{`, `"a":{},`, 500_000, github.TooLarge{Field: "x", Most: 1000, Unit: "elements"}},
	} {
		for what, call := range calls {
			if what == "a removal" { // its answer is not read
				continue
			}
			t.Run(name+", "+what, func(t *testing.T) {
				c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
					begin := strings.Replace(tc.begin, "%s", `"`+what+`"`, 1)
					_, _ = io.WriteString(w, begin) // the client disconnects
					for range tc.n / 100 {
						if _, err := io.WriteString(w, strings.Repeat(tc.again, 100)); err != nil {
							return
						}
					}
				})
				want := tc.want
				if want.Field == "LIST" {
					want.Field = what
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := call(t.Context(), c)
				runtime.ReadMemStats(&after)
				large := github.TooLarge{}
				switch {
				case what == "delivery" && err != nil: // payloads have higher bounds
				case !errors.As(err, &large) || large != want || github.KindOf(err) != github.KindUnexpected && !strings.Contains(err.Error(), "the credentials may not"):
					t.Errorf("got %v, want %v", err, want)
				}
				if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 24 {
					t.Errorf("it took %d MiB", took)
				}
			})
		}
	}
}

// Names have GitHub's maximum sizes wherever they are decoded; free text is truncated.
func TestNamesInAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 257)
	runner := func(more string) string { return `{"id":1,"status":"online","busy":false,` + more + `}` }
	for name, tc := range map[string]struct{ what, answer string }{
		"a runner's name":    {"runner", runner(`"name":"` + long + `"`)},
		"a runner's label":   {"runner", runner(`"name":"x","labels":[{"name":"` + long + `"}]`)},
		"a listed runner":    {"runners", `{"runners":[` + runner(`"name":"`+long+`"`) + `]}`},
		"one by name":        {"runner by name", `{"runners":[` + runner(`"name":"`+long+`"`) + `]}`},
		"a group":            {"runner_groups", `{"runner_groups":[{"id":1,"name":"` + long + `"}]}`},
		"a visible group":    {"visible groups", `{"runner_groups":[{"id":1,"name":"` + long + `"}]}`},
		"a job's runner":     {"job", `{"id":1,"runner_name":"` + long + `"}`},
		"a job's label":      {"jobs", `{"jobs":[{"id":1,"labels":["` + long + `"]}]}`},
		"a repository":       {"repositories", `[{"name":"` + long + `"}]`},
		"a release":          {"releases", `[{"tag_name":"` + long + `"}]`},
		"a delivery's event": {"deliveries", `[{"id":1,"event":"` + long + `"}]`},
	} {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.answer) })
		large := github.TooLarge{}
		if err := calls[tc.what](t.Context(), c); !errors.As(err, &large) || large.Most > 256 || github.KindOf(err) != github.KindUnexpected {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"id":1,"name":%q,"workflow_name":%q}`, strings.Repeat("é", 1000), long)
	})
	job, err := c.Job(t.Context(), "acme/app", 1)
	if err != nil || job.Name != strings.Repeat("é", 512) || job.Workflow != long {
		t.Errorf("%+v, %v", job, err)
	}
}

// A listing ends even if the server always names another page.
func TestAListingHasAnEnd(t *testing.T) {
	var pages atomic.Int64
	page := func(w http.ResponseWriter, r *http.Request, list, element string, n int) {
		w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?page=%d>; rel="next"`, r.Host, r.URL.Path, pages.Add(1)+1))
		text := strings.TrimSuffix(strings.Repeat(element+",", n), ",")
		_, _ = io.WriteString(w, strings.Replace(list, "%s", text, 1))
	}
	large := github.TooLarge{}

	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		page(w, r, `{"runners":[%s]}`, `{"id":1,"name":"r","status":"online","busy":false}`, 1)
	})
	if _, err := c.Runners(t.Context(), 0); !errors.As(err, &large) || large != (github.TooLarge{Most: mostPages, Unit: "pages"}) || pages.Load() != mostPages {
		t.Errorf("%d pages: %v", pages.Load(), err)
	}

	pages.Store(0)
	labels := strings.TrimSuffix(strings.Repeat(`{"name":"`+strings.Repeat("x", 250)+`"},`, 40), ",")
	c = answering(t, func(w http.ResponseWriter, r *http.Request) {
		page(w, r, `{"runners":[%s]}`, `{"id":1,"name":"r","status":"online","busy":false,"labels":[`+labels+`]}`, 100)
	})
	if _, err := c.Runners(t.Context(), 0); !errors.As(err, &large) || large != (github.TooLarge{Most: mostListed, Unit: "bytes"}) || pages.Load() > 10 {
		t.Errorf("%d pages: %v", pages.Load(), err)
	}

	pages.Store(0)
	names := strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("x", 250)+`",`, 90), ",")
	c = answering(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/runs") {
			_, _ = io.WriteString(w, `{"workflow_runs":[{"id":1},{"id":2},{"id":3}]}`)
			return
		}
		page(w, r, `{"jobs":[%s]}`, `{"id":1,"status":"queued","labels":[`+names+`]}`, 100)
	})
	list, err := c.Jobs(t.Context(), "acme/app", 0)
	if size, _ := github.Fit(&list); err != nil || list.Complete || len(list.Jobs) == 0 || size > 2*mostListed || pages.Load() > 20 {
		t.Errorf("%d pages: %d jobs of %d bytes, complete: %t, %v", pages.Load(), len(list.Jobs), size, list.Complete, err)
	}
}

func TestWhatIsSharedIsBoundedByItsSize(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := shared[[]string]{options: github.Options{}.WithDefaults(1).For(github.Credentials{})}
	value := []string{strings.Repeat("x", github.KeptMemory/16)}
	there := func() (n int) {
		for i := range 7 {
			if _, ok := s.fresh(fmt.Sprint(i), now, time.Minute); ok {
				n++
			}
		}
		return n
	}
	for i := range 20 {
		s.put(fmt.Sprint(i%7), value, now)
		if n := there(); n > 4 || n == 0 {
			t.Fatalf("%d lists are kept", n)
		}
	}
	s.put("later", nil, now.Add(sharedLife+time.Second))
	if len(s.kept) != 1 {
		t.Errorf("%d lists are kept after their time", len(s.kept))
	}
}

// Decoding takes several times the size of an answer, and a server can send many at once.
func TestAnswersCountUntilTheyAreDecoded(t *testing.T) {
	const size, most = 1 << 20, github.AnswerMemory / 4 / (3 << 20) // each counts three times
	for name, changes := range map[string]bool{"new answers": true, "answers that did not change": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var canceled atomic.Int32
				server := roundTrip(func(req *http.Request) (*http.Response, error) {
					context.AfterFunc(req.Context(), func() { canceled.Add(1) })
					header := http.Header{"Etag": {`"1"`}}
					if req.Header.Get("If-None-Match") != "" && !changes {
						return &http.Response{StatusCode: http.StatusNotModified, Header: header, Body: http.NoBody}, nil
					}
					return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader("[" + strings.Repeat(" ", size-2) + "]"))}, nil
				})
				o := github.Options{Transport: server}.WithDefaults(1).For(github.Credentials{ConfigURL: "https://github.com/acme"})
				sender := &transport{options: o, budget: newBudget(time.Now, false, "test")}
				ask := func() io.Closer {
					ctx := context.WithValue(t.Context(), exchangeKey{}, exchange{kind: kindRunners})
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.github.com/orgs/acme/actions/runners", http.NoBody)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := sender.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					if text, err := io.ReadAll(resp.Body); err != nil || len(text) != size {
						t.Fatalf("%d bytes arrive: %v", len(text), err)
					}
					return resp.Body
				}
				for range most + 1 { // one after the other
					if err := ask().Close(); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if n := canceled.Load(); n != most+1 {
					t.Errorf("%d answers are closed", n)
				}
				var open []io.Closer
				for range most + 1 { // at once
					open = append(open, ask())
				}
				synctest.Wait()
				if n := canceled.Load(); n != most+2 {
					t.Errorf("%d of %d answers make room", n-most-1, len(open))
				}
				for _, body := range open {
					body.Close()
				}
			})
		})
	}
}

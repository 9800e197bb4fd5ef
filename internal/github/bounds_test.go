// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/corral-dev/corral/internal/meter"
)

func TestWhatIsTooLargeIsNamed(t *testing.T) {
	b := Bounds{Bytes: 5000, List: 3, Inner: 4, Values: 12, Text: 10}
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"nothing":                       {``, nil},
		"within":                        {` {"total": 3, "runners": [{"id": 1, "labels": [1, 2, 3, 4]}, {"id": 2}, {"id": 3}]} `, nil},
		"a list":                        {`[1, 2, 3]`, nil},
		"a longer list":                 {`[1, 2, 3, 4]`, TooLarge{"", 3, unitElements}},
		"a longer list of objects":      {`{"runners": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}`, TooLarge{"runners", 3, unitElements}},
		"a list within":                 {`{"runners": [{"labels": [1, 2, 3, 4, 5]}]}`, TooLarge{"labels", 4, unitElements}},
		"a list in a list":              {`{"runners": [{"x": "y"}, [[1, 2, 3, 4, 5]]]}`, TooLarge{"runners", 4, unitElements}},
		"members":                       {`{"a": 1, "b": {"c": 1, "d": 2, "e": 3, "f": 4, "g": 5}}`, TooLarge{"b", 4, unitElements}},
		"values":                        {`{"a": [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]}`, TooLarge{"", 12, unitValues}},
		"objects":                       {`{"a": [` + strings.Repeat(`{"b": {"c": {"d": {"e": {}}}}},`, 3) + `]}`, TooLarge{"", 12, unitValues}},
		"a text":                        {`{"name": "0123456789", "other": "0123456789a"}`, TooLarge{"other", 10, unitBytes}},
		"a text in a list":              {`{"labels": ["0123456789a"]}`, TooLarge{"labels", 10, unitBytes}},
		"commas and brackets in a text": {`["[[[[{,,,", "\"],],\\", ",,,,,,"]`, nil},
		"an escaped end":                {`["\\", "\\\"", "[,,,,,,]"]`, nil},
		"bytes":                         {`[` + strings.Repeat(" ", 5000) + `]`, TooLarge{"", 5000, unitBytes}},
		"a byte order mark":             {"\xef\xbb\xbf[1, 2, 3, 4]", TooLarge{"", 3, unitElements}},
		"no JSON":                       {`<html>{"a": [1,2,3,4,5]}`, nil},
		"ends without beginnings":       {`[]]]}},,,`, nil},
		"no closing quote":              {`["0123456789a`, TooLarge{"", 10, unitBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := b.Check([]byte(tc.text)); err != tc.want { //nolint:errorlint // it is not wrapped
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	deep := Bounds{Bytes: 1 << 20, List: 100, Values: 100_000}
	if err := deep.Check([]byte(strings.Repeat("[", 10_000))); err != error(TooLarge{"", maxDepth, unitLevels}) { //nolint:errorlint // it is not wrapped
		t.Errorf("10,000 levels: %v", err)
	}
	if err := deep.Check([]byte(strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth))); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
}

// endless is a body that never ends. It counts the bytes that are read.
type endless struct {
	begin, again string
	read         int
	closed       bool
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.begin)
	if e.begin = e.begin[n:]; e.begin == "" {
		e.begin = e.again
	}
	e.read += n
	return n, nil
}

func (e *endless) Close() error {
	e.closed = true
	return nil
}

type network func(*http.Request) (*http.Response, error)

func (f network) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The check runs while the answer is read, so the bytes read and the memory used do not depend on how much the server
// sends.
func TestAnAnswerIsReadUpToItsBounds(t *testing.T) {
	bounds := Bounds{Bytes: 8 << 20, List: 100, Values: 10_000}
	for name, tc := range map[string]struct {
		body endless
		most int // bytes that are read
		want TooLarge
	}{
		"elements": {endless{begin: `{"runners":[`, again: `{"id":1},`}, 64 << 10, TooLarge{"runners", 100, unitElements}},
		"levels":   {endless{begin: `{"x":`, again: `[`}, 64 << 10, TooLarge{"", maxDepth, unitLevels}},
		"a text":   {endless{begin: `{"name":"`, again: strings.Repeat("x", 1000)}, 1 << 20, TooLarge{"name", maxText, unitBytes}},
		"values":   {endless{begin: `{"x":[[0,`, again: strings.Repeat("0,", 500) + "0],["}, 1 << 20, TooLarge{"", 10_000, unitValues}},
		"bytes":    {endless{begin: `{"x":`, again: `                `}, 9 << 20, TooLarge{"", 8 << 20, unitBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			connections := NewConnections(time.Now)
			options := connections.Watch(Options{Transport: network(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: &tc.body, ContentLength: -1}, nil
			})}, "ns/main")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://github.test/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			m := Meter{Requests: meter.Counters("requests", "", "class", "code"), Latencies: meter.Histograms("latency", "", nil, "class")}
			resp, err := m.Send(options, req, "list", bounds)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var into any
			err = json.NewDecoder(resp.Body).Decode(&into)
			runtime.ReadMemStats(&after)
			large := TooLarge{}
			if !errors.As(err, &large) || large != tc.want {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if again, err := resp.Body.Read(make([]byte, 10)); again != 0 || !errors.As(err, &large) {
				t.Errorf("reads on: %d, %v", again, err)
			}
			if resp.Body.Close(); !tc.body.closed || tc.body.read > tc.most {
				t.Errorf("read %d bytes, want at most %d; closed: %t", tc.body.read, tc.most, tc.body.closed)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(5*tc.most) {
				t.Errorf("it took %d bytes to read %d", took, tc.body.read)
			}
		})
	}
}

func TestLookingAtATextTakesNoMemory(t *testing.T) {
	text := []byte(`{"runners":[` + strings.TrimSuffix(strings.Repeat(`{"id":1,"name":"linux-1","labels":[{"name":"x"},{"name":"y"}]},`, 100), ",") + `]}`)
	b := Bounds{Bytes: 1 << 20, List: 100, Values: 1000}
	if allocations := testing.AllocsPerRun(10, func() {
		if err := b.Check(text); err != nil {
			t.Error(err)
		}
	}); allocations > 1 { // the scanner
		t.Errorf("%v allocations", allocations)
	}
}

// Normal answers end the trouble of a server whose answers were too large.
func TestAnswersThatAreTooLargeAreTrouble(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := NewConnections(func() time.Time { return now })
	o := c.Watch(Options{}, "ns/main")
	large := TooLarge{"runners", 100, unitElements}
	for i := range troubleCalls {
		if trouble, yes := c.Trouble("ns/main"); yes {
			t.Errorf("trouble after %d calls: %+v", i, trouble)
		}
		now = now.Add(troubleTime)
		o.Note(t.Context(), "runners", &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil)
		o.NoteSize("runners", http.StatusOK, large)
	}
	o.NoteSize("runners", http.StatusBadGateway, nil)
	if trouble, yes := c.Trouble("ns/main"); !yes || trouble.Code != http.StatusOK || trouble.Fault != error(large) || trouble.Next != now.Add(troubleRetry) { //nolint:errorlint // it is not wrapped
		t.Errorf("%t, %+v", yes, trouble)
	}
	o.NoteSize("runners", http.StatusOK, nil)
	if trouble, yes := c.Trouble("ns/main"); yes {
		t.Errorf("trouble that doesn't end: %+v", trouble)
	}
	if at := c.Accepted("ns/main"); at != now {
		t.Errorf("accepted at %v", at)
	}
	Options{}.NoteSize("runners", http.StatusOK, large)
}

func TestTextsFitOrAreCutOrRefused(t *testing.T) {
	type inner struct {
		Labels []string `most:"5"`
		Plain  string
	}
	type value struct {
		Repository string `most:"10"`
		Job        string `cut:"6"`
		Inner      *inner
		List       []inner
		At         time.Time
	}
	long := strings.Repeat("x", maxName+1)
	for name, tc := range map[string]struct {
		value value
		want  error
		job   string
	}{
		"nothing":         {},
		"within":          {value{Repository: "0123456789", Job: "abcdef", Inner: &inner{Labels: []string{"12345"}, Plain: long[1:]}}, nil, "abcdef"},
		"cut":             {value{Job: "abcde\u00e9f"}, nil, "abcde"},
		"a long name":     {value{Repository: "0123456789a"}, TooLarge{"Repository", 10, unitBytes}, ""},
		"a long label":    {value{Inner: &inner{Labels: []string{"1", "123456"}}}, TooLarge{"Labels", 5, unitBytes}, ""},
		"a long one more": {value{List: []inner{{}, {Plain: long}}}, TooLarge{"Plain", maxName, unitBytes}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Fit(&tc.value); err != tc.want || tc.value.Job != tc.job { //nolint:errorlint // it is not wrapped
				t.Errorf("%v, %+v", err, tc.value)
			}
		})
	}
	small, err1 := Fit(&value{List: make([]inner, 10)})
	large, err2 := Fit(&value{List: make([]inner, 1000), Repository: "0123456789"})
	if err1 != nil || err2 != nil || small < 10*64 || large < 1000*64 || large-small != 990*64+10 {
		t.Errorf("sizes are %d and %d: %v, %v", small, large, err1, err2)
	}
}

// The rest of a truncated text must not stay in memory: it may be thousands of times as large.
func TestWhatIsCutOffIsNotKept(t *testing.T) {
	value := struct {
		Job string `cut:"6"`
	}{strings.Repeat("x", 256<<10)}
	whole := unsafe.StringData(value.Job)
	if _, err := Fit(&value); err != nil || value.Job != "xxxxxx" {
		t.Fatal(value.Job, err)
	}
	if unsafe.StringData(value.Job) == whole {
		t.Error("six bytes keep 256 KiB in memory")
	}
}

var _ io.ReadCloser = (*endless)(nil)

func ExampleTooLarge() {
	fmt.Println(TooLarge{"runners", 100, unitElements})
	fmt.Println(TooLarge{"", 32, unitLevels})
	// Output:
	// "runners" has more than 100 elements
	// the JSON has more than 32 levels
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// unending is an answer that never ends, even after its client has left.
type unending struct {
	io.Reader
	req  *http.Request
	open *atomic.Int32
}

func (e *unending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if n > 0 || err == nil {
		return n, nil
	}
	e.open.Add(1)
	defer e.open.Add(-1)
	<-e.req.Context().Done()
	return 0, e.req.Context().Err()
}

func (*unending) Close() error { return nil }

// Endless answers use a limited number of bytes, however many there are and in however many namespaces, and another
// namespace's answers can still be read.
func TestAnswersThatDoNotEndTakeLittleMemory(t *testing.T) {
	const size, times = 1 << 16, 64
	m := Meter{Requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a"}, []string{"class", "code"}), Latencies: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "b"}, []string{"class"})}
	for _, namespaces := range []int{1, 3, 8, 40} {
		synctest.Test(t, func(t *testing.T) {
			var open, crowded atomic.Int32
			network := transportFunc(func(req *http.Request) (*http.Response, error) {
				if strings.HasSuffix(req.URL.Path, "short") {
					w := httptest.NewRecorder()
					_, _ = w.Write(make([]byte, size))
					return w.Result(), nil
				}
				return &http.Response{StatusCode: http.StatusOK, Body: &unending{bytes.NewReader(make([]byte, size)), req, &open}, ContentLength: -1, Request: req}, nil
			})
			connections := NewConnections(time.Now)
			read := func(key, path string) error {
				o := connections.Watch(Options{Transport: network}.WithDefaults(1), key).For(Credentials{ConfigURL: "https://github.com/acme"})
				req := httptest.NewRequest(http.MethodGet, "https://api.github.com/"+path, http.NoBody).WithContext(t.Context())
				resp, err := m.Send(o, req, "poll", Bounds{Bytes: 2 * size, List: 1, Values: 1, Times: times})
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				_, err = io.Copy(io.Discard, resp.Body)
				return err
			}
			for i := range 400 {
				go func() {
					if err := read(fmt.Sprintf("greedy-%d/c%d", i%namespaces, i), "long"); errors.Is(err, ErrCrowded) {
						crowded.Add(1)
					}
				}()
			}
			synctest.Wait()
			const most = AnswerMemory / size / times
			if n := int(open.Load()); n > most || n > namespaces*most/4 || n < min(most, namespaces*most/4)-namespaces || n+int(crowded.Load()) != 400 {
				t.Errorf("%d namespaces: %d answers are held, and %d made room", namespaces, n, crowded.Load())
			}
			for range 10 {
				if err := read("late/main", "short"); err != nil {
					t.Errorf("%d namespaces: another one's answer isn't read: %v", namespaces, err)
				}
			}
		})
	}
}

// Decoded answers that wait to be recorded are limited per namespace, and are never dropped.
func TestDecodedAnswersThatWaitAreBounded(t *testing.T) {
	c := NewConnections(time.Now)
	options := func(key string) Options { return c.Watch(Options{}, key).For(Credentials{}) }
	var holds []interface{ Leave() }
	for {
		h, ok := options(fmt.Sprint("greedy/", len(holds))).Retain(1 << 20)
		if !ok {
			break
		}
		holds = append(holds, h)
	}
	if len(holds) != AnswerMemory/8>>20 {
		t.Errorf("%d MiB of one namespace wait", len(holds))
	}
	h, ok := options("other/main").Retain(1 << 20)
	if !ok {
		t.Error("another namespace has no room")
	}
	h.Leave()
	for _, h := range holds {
		h.Leave()
	}
	if _, ok := options("greedy/1").Retain(1 << 20); !ok {
		t.Error("there is no room again")
	}
}

// The cached answers of a dropped client use no memory.
func TestWhatIsNoLongerUsedIsNotKept(t *testing.T) {
	o := NewConnections(time.Now).Watch(Options{}, "ci/main").For(Credentials{})
	first := Keep(o, "first", KeptMemory/8)
	for range 3 {
		Keep(o, "forgotten", KeptMemory/16)
		for range 3 {
			runtime.GC()
		}
		for o.memory.kept.Open() > 1 {
			runtime.Gosched()
		}
	}
	if value, ok := first.Get(); !ok || value != "first" {
		t.Error("it made room for nothing")
	}
}

// A server may answer a thousand polls at once. Only the part of an answer that was read counts.
func TestWhatIsNotReadYetTakesLittleMemory(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			n, err := w.Write(make([]byte, 16<<10))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	transport := NewTransport()
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil || response.ProtoMajor != 2 {
		t.Fatalf("%v, %v", response, err)
	}
	defer response.Body.Close()
	for before := int64(-1); before < sent.Load(); time.Sleep(200 * time.Millisecond) {
		before = sent.Load()
	}
	if sent.Load() > 4*maxUnread {
		t.Errorf("the server has sent %d bytes of an answer that nothing reads", sent.Load())
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
)

// entry is a line of the event log.
type entry struct {
	at   time.Time
	pool string // empty if the entry concerns all pools
	kind string
	text string
}

// eventLog collects the events of a storm from all of its components.
type eventLog struct {
	storm       *storm
	controllers []string // paths of the controllers' log files

	mu      sync.Mutex
	entries []entry
}

func newEventLog(s *storm) *eventLog { return &eventLog{storm: s} }

func (l *eventLog) add(pool, kind, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry{at: time.Now(), pool: pool, kind: kind, text: fmt.Sprintf(format, args...)})
}

// watch records changes of the namespace's Runners until the test ends.
func (l *eventLog) watch() {
	c, err := client.NewWithWatch(w.Cluster.Config, client.Options{Scheme: kube.Scheme()})
	harness.Must(l.storm.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		seen := map[string]string{}
		for ctx.Err() == nil {
			follow, err := c.Watch(ctx, &v1alpha1.RunnerList{}, client.InNamespace(l.storm.namespace))
			if err != nil {
				continue
			}
			for event := range follow.ResultChan() {
				if r, ok := event.Object.(*v1alpha1.Runner); ok {
					l.runner(seen, string(event.Type), r)
					l.storm.attempts.see(r, event.Type == watch.Deleted, time.Now())
				}
			}
		}
	})
	l.storm.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// runner records a Runner whose state changed.
func (l *eventLog) runner(seen map[string]string, event string, r *v1alpha1.Runner) {
	text := fmt.Sprintf("%s id=%d %s: %s", r.Name, r.Status.RunnerID, r.Status.State, r.Status.Reason)
	if r.Status.Job != nil {
		text += " job=" + r.Status.Job.ID
	}
	if !r.DeletionTimestamp.IsZero() {
		text += " (ending)"
	}
	if event == "DELETED" {
		text = r.Name + " is gone"
	}
	if seen[r.Name] != text {
		seen[r.Name] = text
		l.add(r.Spec.PoolRef.Name, "runner", "%s", text)
	}
}

// tell logs a summary of the storm. If the storm failed, it also writes the schedule and the event log to a file
// and shows the end of both.
func (l *eventLog) tell() {
	s := l.storm
	struck, hits := 0, l.gather()
	for _, e := range l.entries {
		if e.kind == "pod" {
			struck++
		}
	}
	s.Logf("seed %d: %d jobs, %v; %d calls to GitHub spoiled, %d pods struck", s.seed, len(s.schedule.arrivals), s.github.Report().Results, hits, struck)
	if !s.Failed() && os.Getenv(keepVariable) == "" {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Seed %d: %s=%d go test ./test/chaos -run TestStorm\n\n# Schedule\n\n", s.seed, seedsVariable, s.seed)
	for _, x := range s.schedule.steps {
		fmt.Fprintf(&b, "%8s  %s\n", x.at, x.what)
	}
	b.WriteString("\n# What happened: time, pool, who, what\n\n")
	for _, e := range l.entries {
		fmt.Fprintf(&b, "%s\t%-8s\t%-10s\t%s\n", e.at.Format("15:04:05.000"), e.pool, e.kind, e.text)
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("corral-chaos-seed-%d.log", s.seed))
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		s.Log(err)
		return
	}
	text := b.String()
	if !s.Failed() {
		text = ""
	}
	s.Logf("the schedule of faults and the log of events of seed %d are in %s\n%s", s.seed, path, text[max(0, len(text)-4000):])
}

// gather adds the events that GitHub and the controllers recorded, and returns how many calls to GitHub were
// disturbed.
func (l *eventLog) gather() (spoiled int) {
	hits := l.storm.github.FaultsHit()
	for _, h := range hits {
		l.entries = append(l.entries, entry{at: h.At, pool: h.ScaleSet, kind: "github", text: h.Fault})
	}
	for _, j := range l.storm.github.Jobs() {
		l.job(j)
	}
	for i, path := range l.controllers {
		l.controller(fmt.Sprintf("corral-%d", i+1), path)
	}
	slices.SortStableFunc(l.entries, func(a, b entry) int { return a.at.Compare(b.at) })
	return len(hits)
}

func (l *eventLog) job(j githubsim.JobTimeline) {
	for _, x := range []struct {
		at   time.Time
		text string
	}{
		{j.Queued, "queued"}, {j.Assigned, fmt.Sprintf("assigned to %s (%d), %d attempts", j.ScaleSet, j.ScaleSetID, j.Attempts)},
		{j.Started, "started by " + j.Runner}, {j.Finished, "finished: " + j.Result},
	} {
		if !x.at.IsZero() {
			l.entries = append(l.entries, entry{at: x.at, pool: j.Labels[0], kind: "job", text: fmt.Sprintf("%s %s %s", j.Name, j.ID, x.text)})
		}
	}
}

// controller adds the entries of a controller's log.
func (l *eventLog) controller(name, path string) {
	file, err := os.Open(path)
	if err != nil {
		l.storm.Log(err)
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		stamp, _ := line["ts"].(string)
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			continue
		}
		l.entries = append(l.entries, entry{at: at.Local(), pool: poolIn(lines.Text()), kind: name, text: short(line)})
	}
}

// failures returns the runner failures that the controllers logged.
func (l *eventLog) failures() (all []failed) {
	for _, path := range l.controllers {
		text, err := os.ReadFile(path)
		harness.Must(l.storm.T, err)
		for line := range bytes.Lines(text) {
			var f failed
			if json.Unmarshal(line, &f) == nil && f.Message == "Runner failed" {
				all = append(all, f)
			}
		}
	}
	return all
}

// poolIn returns the pool name in a line.
func poolIn(line string) string {
	at := strings.Index(line, `"pool-`)
	if at < 0 || len(line) < at+8 {
		return ""
	}
	return line[at+1 : at+8]
}

// short formats a log entry without the fields that are the same in all entries.
func short(line map[string]any) string {
	text := fmt.Sprintf("%v: %v", line["level"], line["msg"])
	for _, key := range []string{"ts", "level", "msg", "version", "logger", "controller", "controllerGroup", "reconcileID", "namespace", "caller"} {
		delete(line, key)
	}
	rest, err := json.Marshal(line)
	if err != nil {
		return text
	}
	return text + " " + string(rest)
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

// life is the true history of a job.
type life struct {
	id                int64
	repository, label string
	past              []string // actions
	on                string   // runner, once in progress
}

func (j *life) now() string { return j.past[len(j.past)-1] }

func (j *life) event(action string) webhook.Delivery {
	d := job(j.id, action, j.label)
	d.Repository.FullName = j.repository
	if action == "in_progress" || action == "completed" && j.on != "" {
		d.Job.RunnerName, d.Job.RunnerID = j.on, 1000+j.id
	}
	return d
}

func lives(r *rand.Rand, n int) []life {
	paths := [][]string{{"queued"}, {"waiting"}, {"waiting", "queued"}, {"queued", "in_progress"}, {"queued", "in_progress", "completed"}, {"queued", "completed"}}
	runners := []string{"gpu", "cpu", "vm"}
	all := make([]life, n)
	for i := range all {
		j := life{id: int64(i + 1), repository: fmt.Sprintf("acme/r%d", r.IntN(8)), label: []string{"gpu", "cpu"}[r.IntN(2)], past: paths[r.IntN(len(paths))]}
		if len(j.past) > 1 && j.past[1] == "in_progress" {
			j.on = fmt.Sprint(runners[r.IntN(len(runners))], "-", j.id)
		}
		all[i] = j
	}
	return all
}

// truly returns the true content of the pools' ledgers.
func truly(all []life) map[string]map[int64]reservation.State {
	want := map[string]map[int64]reservation.State{"gpu": {}, "cpu": {}}
	for _, j := range all {
		switch {
		case j.now() == "queued":
			want[j.label][j.id] = reservation.Queued
		case j.now() == "waiting":
			want[j.label][j.id] = reservation.Waiting
		case j.now() == "in_progress" && !strings.HasPrefix(j.on, "vm"):
			want[j.on[:3]][j.id] = reservation.Running
		}
	}
	return want
}

func (x *place) held() map[string]map[int64]reservation.State {
	x.space().mu.Lock()
	defer x.space().mu.Unlock()
	all := map[string]map[int64]reservation.State{}
	for _, name := range []string{"gpu", "cpu"} {
		all[name] = map[int64]reservation.State{}
		x.space().members[name].ledger.All(func(id int64, s reservation.State) bool {
			if s != reservation.Done && s != reservation.Elsewhere {
				all[name][id] = s
			}
			return true
		})
	}
	return all
}

func lists(all []life) map[string][]rest.Job {
	jobs := map[string][]rest.Job{}
	for _, j := range all {
		list := jobs[j.repository]
		if j.now() != "completed" {
			list = append(list, rest.Job{ID: j.id, Status: j.now(), Labels: []string{j.label}, RunnerName: j.event(j.now()).Job.RunnerName, RunnerID: 1000 + j.id})
		}
		jobs[j.repository] = list
	}
	return jobs
}

// After any order, duplication and loss of deliveries, with processes that stop or are killed in between, one comparison
// with GitHub's lists restores exactly the true reservations. In the meantime no pool's count is below the number of jobs
// that are known to wait for it.
func TestAnyDeliveriesEndInTheTruth(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 11))
				all := lives(r, 1000)
				objects := []client.Object{connOf("acme", "acme"), poolOf("gpu"), poolOf("cpu")}
				for _, j := range all {
					if j.on != "" && !strings.HasPrefix(j.on, "vm") {
						objects = append(objects, runnerOf(j.on, j.on[:3]))
					}
				}
				x := newPlace(t, objects...)
				x.gh.edit(func() {
					x.gh.fails = github.NewError(github.KindForbidden, "listing", 403, 0, "not before the end", nil)
				})
				x.lead()
				type delivery struct {
					of     *life
					action string
				}
				var deliveries []delivery
				for i := range all {
					for _, action := range all[i].past {
						for range r.IntN(3) { // 0 is a loss, 2 a duplicate
							deliveries = append(deliveries, delivery{&all[i], action})
						}
					}
				}
				r.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })
				waiting := map[string]map[int64]bool{"gpu": {}, "cpu": {}}
				for _, d := range deliveries {
					x.accept(d.of.event(d.action))
					if d.action == "queued" && d.of.now() == "queued" {
						waiting[d.of.label][d.of.id] = true
					}
					for name, known := range waiting {
						if got := x.jobs(name); int(got) < len(known) {
							t.Fatalf("pool %s counts %d jobs, and %d are known to wait", name, got, len(known))
						}
					}
					switch r.IntN(300) {
					case 0:
						x.end()
						x.lead()
					case 1:
						wait(2 * time.Second) // accepted events are stored
						x.kill()
						x.lead()
					case 2:
						wait(time.Second)
					}
				}
				wait(time.Minute)
				for repository, jobs := range lists(all) {
					x.tracker.reconcile(t.Context(), x.connection(), repository, rest.JobList{Jobs: jobs, Complete: true, At: time.Now()})
				}
				if diff := cmp.Diff(truly(all), x.held()); diff != "" {
					t.Errorf("reservations (-true +held):\n%s", diff)
				}
				x.end()
				x.lead()
				if diff := cmp.Diff(truly(all), x.held()); diff != "" {
					t.Errorf("reservations after a restart (-true +held):\n%s", diff)
				}
				x.end()
			})
		})
	}
}

// The size of ten thousand waiting jobs of one pool stays far below etcd's limit.
func TestTenThousandWaitingJobsAreSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		r := rand.New(rand.NewPCG(1, 1))
		for id, i := int64(40_000_000_000), 0; i < 10_000; i++ {
			id += 1 + r.Int64N(10_000)
			d := job(id, "queued", "gpu")
			d.Repository.FullName = fmt.Sprintf("acme/service-%d", r.IntN(500))
			x.accept(d)
		}
		wait(5 * time.Second)
		config := x.config("gpu-jobs")
		if size := config.Size(); size > 256<<10 {
			t.Errorf("it takes %d bytes", size)
		} else {
			t.Logf("it takes %d bytes", size)
		}
	})
}

func BenchmarkAccept(b *testing.B) {
	t := &testing.T{}
	objects := []*v1alpha1.RunnerPool{}
	x := newPlace(t, connOf("acme", "acme"))
	x.tracker = NewJobTracker(Config{Client: x.api, Now: time.Now})
	x.tracker.setConnection(connOf("acme", "acme"))
	for i := range 50 {
		p := poolOf(fmt.Sprint("p", i))
		objects = append(objects, p)
		x.setPool(p)
	}
	x.tracker.leading = true
	id := int64(0)
	for b.Loop() {
		id++
		if err := x.tracker.Accept(b.Context(), job(id%100_000, "queued", objects[id%50].Name)); err != nil {
			b.Fatal(err)
		}
	}
}

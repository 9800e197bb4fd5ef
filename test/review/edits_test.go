// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// author generates a pull request.
type author struct {
	*rand.Rand
	*fleet
	touched map[int]bool
	texts   []string // extra texts that the review must contain
}

// pick returns a matching pool that no edit has touched yet, or a pool outside the fleet if there is none.
func (a *author) pick(is func(*pool) bool) *pool {
	start := a.IntN(len(a.pools))
	for i := range a.pools {
		if p := a.pools[(start+i)%len(a.pools)]; !a.touched[p.id] && is(p) {
			a.touched[p.id] = true
			return p
		}
	}
	return &pool{id: -1, labels: []string{"linux", "none"}, windows: make([]window, 1)}
}

func anyPool(*pool) bool { return true }

// alone reports whether a pool has its own block of CUE and is valid.
func alone(p *pool) bool {
	return !p.table && !p.rest && !p.suspended && p.mem <= 16 && p.id < firstGuest
}

func scheduled(p *pool) bool { return alone(p) && len(p.windows) > 0 }

func plain(p *pool) bool { return alone(p) && len(p.windows) == 0 && p.node == "" && p.tier == "" }

func (a *author) remove(ps ...*pool) {
	a.pools = slices.DeleteFunc(a.pools, func(p *pool) bool { return slices.Contains(ps, p) })
}

func (a *author) add(p pool) *pool {
	p.id = 100 + len(a.touched)
	a.touched[p.id] = true
	if p.group, p.connection = "default", "acme"; p.ns == "" {
		p.ns = a.own
	}
	p.labels = []string{"linux", p.name}
	a.pools = append(a.pools, &p)
	return &p
}

// lonely lists the edits that hide the effect of other edits.
var lonely = []string{"half of the fleet is deleted", "broken CUE", "no prices"}

// edits are the changes that a pull request can contain. A pull request may combine several.
var edits = []struct {
	name string
	make func(a *author)
}{
	{"more runners", func(a *author) { p := a.pick(alone); p.scale.Max += 1 + a.IntN(9) }},
	{"fewer runners", func(a *author) { p := a.pick(alone); p.scale.Max = max(p.scale.Min, p.scale.Idle, p.scale.Max/2) }},
	{"a row of the table", func(a *author) {
		p := a.pick(func(p *pool) bool { return p.table })
		p.scale = numbers{1, p.scale.Max + 1 - 2*a.IntN(2), 1}
	}},
	{"min and idle", func(a *author) {
		p := a.pick(func(p *pool) bool { return alone(p) && p.scale.Max > 4 })
		p.scale.Min, p.scale.Idle = p.scale.Min+1, p.scale.Idle+2
	}},
	{"no max any more", func(a *author) {
		a.pick(func(p *pool) bool { return plain(p) && p.team == "free" }).scale.Max = unbounded
	}},
	{"the image of all", func(a *author) { a.image = "ghcr.io/acme/runner:2.330.0" }},
	{"the image of one", func(a *author) { a.pick(alone).image = "ghcr.io/acme/runner:latest" }},
	{"resources", func(a *author) { p := a.pick(alone); p.cpu++; p.mem += 2 }},
	{"resources in the table", func(a *author) { a.pick(func(p *pool) bool { return p.table }).mem += 3 }},
	{"too much memory", func(a *author) { a.pick(alone).mem = 64; a.pick(alone).mem = 40 }},
	{"labels in another order", func(a *author) { slices.Reverse(a.pick(alone).labels) }},
	{"labels in another case", func(a *author) { p := a.pick(alone); p.labels[0] = strings.ToUpper(p.labels[0]) }},
	{"a swap of labels", func(a *author) {
		p, o := a.pick(plain), a.pick(plain)
		p.labels, o.labels = o.labels, p.labels
		if min(p.id, o.id) >= 0 {
			a.texts = append(a.texts, name(p)+" takes them", name(o)+" takes them")
		}
	}},
	{"a label less", func(a *author) { p := a.pick(alone); p.labels = p.labels[:1] }},
	{"a label more", func(a *author) { p := a.pick(alone); p.labels = append(p.labels, "large") }},
	{"another's label", func(a *author) { p, o := a.pick(plain), a.pick(plain); p.labels = append(p.labels, o.labels[1]) }},
	{"the runner group", func(a *author) { a.pick(alone).group = "release" }},
	{"a denied runner group", func(a *author) { a.pick(plain).group = "public"; a.rules.private = true }},
	{"a deletion", func(a *author) { a.remove(a.pick(anyPool)) }},
	{"half of the fleet is deleted", func(a *author) {
		for range fleetSize/2 + 1 {
			a.remove(a.pick(anyPool))
		}
		a.texts = append(a.texts, "warning: ")
	}},
	{"a pool without a scale set goes", func(a *author) { a.remove(a.pick(func(p *pool) bool { return p.rest })) }},
	{"an addition", func(a *author) {
		a.add(pool{name: "new", team: "web", cpu: 2, mem: 4, scale: numbers{Max: 9, Idle: 1}, tier: "spot"})
	}},
	{"an addition that is denied", func(a *author) {
		a.add(pool{name: "huge", team: "core", cpu: 2, mem: 128, scale: numbers{Max: 7, Min: 1}})
	}},
	{"another name", func(a *author) { p := a.pick(alone); p.name = "was-" + p.name }},
	{"a suspension", func(a *author) { a.pick(alone).suspended = true }},
	{"an end of a suspension", func(a *author) { a.pick(func(p *pool) bool { return p.suspended }).suspended = false }},
	{"the connection", func(a *author) { a.pick(alone).connection = "acme-eu" }},
	{"the team", func(a *author) {
		p := a.pick(func(p *pool) bool { return plain(p) && p.team == "web" })
		p.team, p.scale.Max = "free", 20
		if p.id >= 0 {
			a.texts = append(a.texts, "limits that depend on labels: "+name(p))
		}
	}},
	{"a note", func(a *author) { a.pick(alone).note = "ask the web team" }},
	{"grants", func(a *author) { a.rules.grants["web"], a.rules.grants["core"] = 6, 30 }},
	{"a ceiling", func(a *author) { a.rules.ceilings["spot"] = 15 }},
	{"idle by policy", func(a *author) { a.rules.idle = 1 }},
	{"less memory by policy", func(a *author) { a.rules.memory = 12 }},
	{"a rule for nights", func(a *author) { a.rules.nights = true }},
	{"a rule less", func(a *author) { a.rules.ungranted = true }},
	{"a rule that fails", func(a *author) { a.rules.fails = "free" }},
	{"a rule of pods that fails", func(a *author) {
		a.rules.failsPods = "core"
		a.pick(func(p *pool) bool { return alone(p) && p.team == "core" }).cpu++
		a.add(pool{name: "late", team: "core", cpu: 2, mem: 4, scale: numbers{Max: 9}})
	}},
	{"a policy less", func(a *author) { a.rules.quiet = nil; a.texts = append(a.texts, "quiet is gone: ") }},
	{"an audited policy", func(a *author) {
		a.rules.quiet.mode = "Audit"
		a.texts = append(a.texts, "quiet is only audited from now on: ")
	}},
	{"a selector", func(a *author) { a.rules.quiet.tier = "gold"; a.texts = append(a.texts, "quiet selects other pools: ") }},
	{"data of a policy", func(a *author) { a.rules.quiet.most = 3 }},
	{"a policy more", func(a *author) { a.rules.extra = true }},
	{"prices", func(a *author) { a.prices.cpu, a.prices.node = 0.04, 1.6 }},
	{"the price of a label", func(a *author) { a.prices.label, a.prices.share = 3, 0.5 }},
	{"no prices", func(a *author) { a.prices = nil }},
	{"a schedule", func(a *author) {
		p := a.pick(plain)
		p.windows = append(p.windows, window{name: "rush", days: []string{"Tuesday", "Thursday"}, from: "09:00", to: "12:30", field: "max", number: p.scale.Max + 3})
	}},
	{"a number of a schedule", func(a *author) { p := a.pick(scheduled); p.windows[0].number += 2 }},
	{"a schedule for December", func(a *author) {
		p := a.pick(func(p *pool) bool { return alone(p) && p.scale.Max > 2 && len(p.windows) < 2 })
		p.windows = append(p.windows, window{name: "year-end", once: true, from: "2026-12-24T00:00:00Z", to: "2027-01-02T00:00:00Z", field: "max", number: 1})
	}},
	{"consent", func(a *author) { a.consent = []string{"other"} }},
	{"a namespace that isn't permitted", func(a *author) { a.pick(func(p *pool) bool { return p.id >= firstGuest }).ns = "rogue" }},
	{"broken CUE", func(a *author) { a.broken = a.pick(alone).id }},
	{"another Secret", func(a *author) { a.secret = "github-app" }},
	{"nothing that counts", func(*author) {}},
}

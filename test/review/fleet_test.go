// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// unbounded is the effective max of a pool that declares none.
const unbounded = 2147483647

type numbers struct{ Min, Max, Idle int }

// window is a schedule: either a daily period on some days of the week, or a single period.
type window struct {
	name, zone string
	days       []string
	from, to   string // HH:MM, or timestamps if once is set
	once       bool
	field      string
	number     int
}

// pool is a pool as its author intends it. The id stays the same when the pool is renamed.
type pool struct {
	id              int
	ns, name        string
	team, tier      string
	labels          []string
	group           string
	connection      string // NAME or NAMESPACE/NAME
	scale           numbers
	cpu, mem        int
	node, image     string
	windows         []window
	note            string
	rest, suspended bool
	table           bool // declared as a row of a table
}

// rules holds the parameters of the policies.
type rules struct {
	grants, ceilings map[string]int // max by team; total max of all pools of a tier
	memory, idle     int            // maximum GiB of a runner; maximum idle runners
	ungranted        bool           // the grants rule was deleted
	nights           bool           // team web is limited to 3 runners until 06:00 UTC
	fails, failsPods string         // teams for which the rules return an invalid result
	private          bool           // the runner group public is denied
	quiet            *quiet         // a RunnerPolicy in CUE
	extra            bool           // an additional RunnerPolicy
}

type quiet struct {
	most       int
	mode, tier string
}

type prices struct {
	cpu, gib, label, node, share float64
}

// fleet is one side of a pull request: the intended pools and policies, and the files that declare them.
type fleet struct {
	own     string // the namespace given with --namespace; its objects do not name it
	image   string
	secret  string
	consent []string
	pools   []*pool
	rules   rules
	prices  *prices
	broken  int // id of the pool with an invalid max, or -1

	files  map[string]string
	places map[string]string // FILE:LINE of each declaration
}

// A fleet has fleetSize pools. Those from firstRow on are rows of a table. Those from firstGuest on use a
// connection in another namespace.
const firstRow, firstGuest, fleetSize = 28, 44, 48

// newFleet creates pools in three namespaces, or in the single namespace given with --namespace.
func newFleet(r *rand.Rand, own string) *fleet {
	f := &fleet{
		own: own, broken: -1, image: "ghcr.io/acme/runner:2.329.0", secret: "github", consent: []string{"lab"},
		rules: rules{
			grants: map[string]int{"web": 12, "core": 25, "batch": 8}, ceilings: map[string]int{"spot": 40}, memory: 32, idle: 4,
			quiet: &quiet{most: 6, mode: "Enforce", tier: "spot"},
		},
		prices: &prices{cpu: 0.03, gib: 0.004, label: 2.4, node: 1.2, share: 0.317},
	}
	for i := range fleetSize {
		p := &pool{
			id: i, team: []string{"web", "core", "free"}[i%3], group: "default", connection: "acme", cpu: 1 + r.IntN(4), mem: 1 + r.IntN(16),
			scale: numbers{Max: 2 + r.IntN(30), Idle: r.IntN(3)},
		}
		p.name = fmt.Sprintf("%s-%02d", p.team, i)
		switch {
		case i >= firstGuest:
			p.ns, p.connection, p.team = "lab", "ml/research", "lab"
		case i >= firstRow:
			p.ns, p.connection, p.team, p.table = "ml", "research", "batch", true
			p.scale.Max = min(p.scale.Max, 12)
		case i%9 == 1:
			p.node, p.cpu, p.mem = "g5.xlarge", 3, 12
		case i%9 == 2:
			p.rest = true
		case own != "" && i == 12:
			p.mem = 48 // denied on both sides
		}
		p.labels = []string{"linux", p.name}
		p.decorate(r)
		f.pools = append(f.pools, p)
	}
	if own != "" {
		for _, p := range f.pools {
			p.ns, p.connection = own, strings.TrimPrefix(p.connection, "ml/")
		}
	}
	return f
}

// decorate sets optional fields of some pools.
func (p *pool) decorate(r *rand.Rand) {
	if p.id%4 == 0 {
		p.tier = "spot"
	}
	if p.table {
		return
	}
	switch p.id % 6 {
	case 1:
		p.scale.Min = 1 + r.IntN(2)
	case 2:
		p.windows = []window{{name: "office", days: []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"}, from: "08:30", to: "18:00", field: "max", number: 5 + r.IntN(20), zone: "Europe/Berlin"}}
	case 3:
		p.windows = []window{{name: "weekend", days: []string{"Saturday", "Sunday"}, from: "00:00", to: "24:00", field: "idle", number: 0}}
	case 4:
		p.labels = append(p.labels, []string{"x64", "gpu"}[p.id%2])
	case 5:
		p.suspended = p.id%12 == 5
	}
	if p.id == 11 || p.id == 38 {
		p.labels = append(p.labels, "A100")
	}
}

// leaf is a field of a pool: its paths, its value and its CUE.
type leaf struct{ paths, value, line string }

// leaves returns all fields of a pool.
func (f *fleet) leaves(p *pool) []leaf {
	var all []leaf
	add := func(paths string, value any, format string, args ...any) {
		all = append(all, leaf{paths, fmt.Sprint(value), fmt.Sprintf(format, args...)})
	}
	set := func(is bool, path string, value any, line string) {
		if is {
			add(path, value, line+"%#v", value)
		}
	}
	const container = "spec.template.spec.containers[0]."
	add("metadata.name", p.name, "")
	set(p.ns != f.own, "metadata.namespace", p.ns, "metadata: namespace: ")
	set(p.team != "", "metadata.labels.team", p.team, "metadata: labels: team: ")
	set(p.tier != "", "metadata.labels.tier", p.tier, "metadata: labels: tier: ")
	set(p.note != "", `metadata.annotations["example.com/note"]`, p.note, `metadata: annotations: "example.com/note": `)
	ns, name, isFar := strings.Cut(p.connection, "/")
	if !isFar {
		ns, name = "", ns
	}
	set(true, "spec.connectionRef.name", name, "spec: connectionRef: name: ")
	set(isFar, "spec.connectionRef.namespace", ns, "spec: connectionRef: namespace: ")
	add("spec.runnerLabels", p.labels, `spec: runnerLabels: ["%s"]`, strings.Join(p.labels, `", "`))
	set(p.group != "default", "spec.runnerGroup", p.group, "spec: runnerGroup: ")
	set(p.rest, "spec.registration", "REST", "spec: registration: ")
	set(p.suspended, "spec.stopPolicy", "Drain", "spec: stopPolicy: ")
	set(p.scale.Min > 0 || p.table, "spec.scale.min", p.scale.Min, "spec: scale: min: ")
	if set(p.scale.Max != unbounded, "spec.scale.max", p.scale.Max, "spec: scale: max: "); f.broken == p.id {
		all[len(all)-1].line = `spec: scale: max: "many"`
	}
	set(p.scale.Idle > 0 || p.table, "spec.scale.idle", p.scale.Idle, "spec: scale: idle: ")
	add("", "", "spec: scale: schedules: [")
	for i, w := range p.windows {
		all = append(all, w.leaves(i)...)
	}
	add("", "", "]")
	set(p.node != "", `spec.template.spec.nodeSelector["node.kubernetes.io/instance-type"]`, p.node, `spec: template: spec: nodeSelector: "node.kubernetes.io/instance-type": `)
	add("", "", "spec: template: spec: containers: [#Runner & {")
	add(container+"resources.requests.cpu", p.cpu, "\t#cpu: \"%d\"", p.cpu)
	add(container+"resources.requests.memory "+container+"resources.limits.memory", p.mem, "\t#memory: \"%dGi\"", p.mem)
	image := cmp.Or(p.image, f.image)
	if add(container+"image", image, ""); p.image != "" {
		all[len(all)-1].line = fmt.Sprintf("\timage: %q", image)
	}
	add("", "", "}]")
	return all
}

// leaves returns the fields of a window at index i of the list.
func (w *window) leaves(i int) []leaf {
	at, kind := fmt.Sprintf("spec.scale.schedules[%d].", i), "weekly"
	if w.once {
		kind = "once"
	}
	all := []leaf{{"", "", "{"}, {at + "name", w.name, fmt.Sprintf("\tname: %q", w.name)}}
	if len(w.days) > 0 {
		all = append(all, leaf{at + kind + ".days", fmt.Sprint(w.days), fmt.Sprintf("\tweekly: days: [\"%s\"]", strings.Join(w.days, `", "`))})
	}
	if w.zone != "" {
		all = append(all, leaf{at + "timeZone", w.zone, fmt.Sprintf("\ttimeZone: %q", w.zone)})
	}
	return append(all, leaf{at + kind + ".from", w.from, fmt.Sprintf("\t%s: from: %q", kind, w.from)}, leaf{at + kind + ".to", w.to, fmt.Sprintf("\t%s: to: %q", kind, w.to)},
		leaf{at + "scale." + w.field, strconv.Itoa(w.number), fmt.Sprintf("\tscale: %s: %d", w.field, w.number)}, leaf{"", "", "},"})
}

// write appends a line to a file, and records its position under the given keys.
func (f *fleet) write(file, what, format string, args ...any) {
	f.files[file] += fmt.Sprintf(format, args...) + "\n"
	for _, key := range strings.Fields(what) {
		f.places[key] = fmt.Sprintf("%s:%d", file, strings.Count(f.files[file], "\n"))
	}
}

// render writes all files.
func (f *fleet) render() {
	for _, file := range []string{"base.cue", "connections.cue", "pools.cue", "table.cue", "policies.cue"} {
		f.write(file, "", "package pools\n\nimport \"corral.dev/schema@v0\"\n")
	}
	f.renderBase()
	f.renderPools()
	f.renderPolicies()
	f.renderPrices()
}

// named returns the CUE that sets the namespace of an object.
func (f *fleet) named(ns string) string {
	if f.own != "" || ns == "" {
		return ""
	}
	return fmt.Sprintf("metadata: namespace: %q, ", ns)
}

func (f *fleet) renderBase() {
	f.write("base.cue", "", "#Runner: schema.#Container & {\n\t#cpu: string\n\t#memory: string\n\tname: \"runner\"")
	f.write("base.cue", "image", "\timage: string | *%q", f.image)
	f.write("base.cue", "", "\tcommand: [\"/home/runner/run.sh\"]\n\tresources: {requests: {cpu: #cpu, memory: #memory}, limits: memory: #memory}\n}")
	f.write("connections.cue", "", "connections: schema.#Connections & {")
	for _, c := range []struct{ ns, name, secret string }{{"", "acme", f.secret}, {"", "acme-eu", "github-eu"}, {"ml", "research", "github-ml"}} {
		f.write("connections.cue", "connection/"+c.name, "\t%q: {", c.name)
		f.write("connections.cue", "", "\t\t%sspec: url: \"https://github.com/%s\"", f.named(c.ns), c.name)
		f.write("connections.cue", "secret/"+c.name, "\t\tspec: secretRef: name: %q", c.secret)
		if c.name == "research" && len(f.consent) > 0 {
			f.write("connections.cue", "", "\t\tspec: allowedNamespaces: [\"%s\"]", strings.Join(f.consent, `", "`))
		}
		f.write("connections.cue", "", "\t}")
	}
	f.write("connections.cue", "", "}")
}

func (f *fleet) renderPools() {
	f.write("table.cue", "", "_table: {")
	f.write("pools.cue", "", "pools: schema.#Pools & {")
	for _, p := range f.pools {
		key := func(l leaf) string {
			var keys []string
			for _, path := range strings.Fields(l.paths) {
				keys = append(keys, fmt.Sprintf("%d/%s", p.id, path))
			}
			return strings.Join(keys, " ")
		}
		leaves := f.leaves(p)
		if p.table {
			all := ""
			for _, l := range leaves {
				if all += " " + key(l); strings.HasSuffix(l.paths, "image") {
					f.places[key(l)] = f.places["image"]
					all = strings.TrimSuffix(all, key(l))
				}
			}
			tier := ""
			if p.tier != "" {
				tier = fmt.Sprintf("tier: %q", p.tier)
			}
			f.write("table.cue", all, "\t%q: {marks: {team: %q, %s}, labels: [\"%s\"], min: %d, max: %d, idle: %d, cpu: \"%d\", memory: \"%dGi\"}",
				p.name, p.team, tier, strings.Join(p.labels, `", "`), p.scale.Min, p.scale.Max, p.scale.Idle, p.cpu, p.mem)
			continue
		}
		f.write("pools.cue", fmt.Sprintf("%d %d/metadata.name", p.id, p.id), "\t%q: {", p.name)
		for _, l := range leaves {
			switch {
			case l.line != "":
				f.write("pools.cue", key(l), "\t\t%s", l.line)
			case strings.HasSuffix(l.paths, "image"):
				f.places[key(l)] = f.places["image"]
			}
		}
		f.write("pools.cue", "", "\t}")
	}
	f.write("pools.cue", "", "}")
	f.write("table.cue", "rows", "}\n\npools: schema.#Pools & {for n, t in _table {(n): {")
	f.write("table.cue", "", `	%smetadata: labels: t.marks
	spec: {
		connectionRef: name: "research"
		runnerLabels: t.labels
		scale: {min: t.min, max: t.max, idle: t.idle}
		template: spec: containers: [#Runner & {#cpu: t.cpu, #memory: t.memory}]
	}
}}}`, strings.ReplaceAll(f.named("ml"), ", ", "\n\t"))
}

func (f *fleet) renderPolicies() {
	const limits, pods, data = "policies/limits.rego", "policies/pods.rego", "policies/data.yaml"
	f.write(limits, "", "package corral.scaling\n")
	if !f.rules.ungranted {
		f.write(limits, "rule/grants", "limit contains {\"field\": \"max\", \"atMost\": n, \"reason\": \"granted\"} if n := data.grants[input.pool.labels.team]")
	}
	f.write(limits, "rule/idle", "limit contains {\"field\": \"idle\", \"atMost\": data.idle, \"reason\": \"few idle ones\"}")
	f.write(limits, "rule/ceilings", "limit contains {\"field\": \"max\", \"atMost\": max([0, n - input.usage.labels.tier.granted]), \"assignedJobs\": \"Wait\", \"reason\": \"a ceiling\"} if {")
	f.write(limits, "", "\tn := data.ceilings[input.pool.labels.tier]\n}")
	if f.rules.nights {
		f.write(limits, "rule/nights", "limit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"nights are quiet\"} if {")
		f.write(limits, "", "\tinput.pool.labels.team == \"web\"\n\ttime.clock([input.now, \"UTC\"])[0] < 6\n}")
	}
	if f.rules.fails != "" {
		f.write(limits, "rule/fails", "limit contains {\"field\": \"max\", \"atMost\": -1, \"reason\": \"nonsense\"} if input.pool.labels.team == %q", f.rules.fails)
	}
	f.write(pods, "", "package corral.template\n")
	f.write(pods, "rule/memory", "deny contains {\"code\": \"memory\", \"msg\": \"too much memory\", \"path\": \"spec.containers[0].resources.limits.memory\"} if {")
	f.write(pods, "", "\tto_number(trim_suffix(input.pod.spec.containers[0].resources.limits.memory, \"Gi\")) > data.memory\n}")
	f.write(pods, "rule/latest", "warn contains {\"code\": \"latest\", \"msg\": \"another image tomorrow\", \"path\": \"spec.containers[0].image\"} if "+
		"endswith(input.pod.spec.containers[0].image, \":latest\")")
	if f.rules.failsPods != "" {
		f.write(pods, "", "deny contains {\"msg\": 7} if input.pool.labels.team == %q", f.rules.failsPods)
	}
	if f.rules.private {
		f.write(pods, "rule/private", "deny contains {\"code\": \"private\", \"msg\": \"runners for everybody\"} if input.pool.runnerGroup == \"public\"")
	}
	for _, group := range []struct {
		name string
		of   map[string]int
	}{{"grants", f.rules.grants}, {"ceilings", f.rules.ceilings}} {
		f.write(data, "", "%s:", group.name)
		for _, name := range slices.Sorted(maps.Keys(group.of)) {
			f.write(data, "data."+group.name+"."+name, "  %s: %d", name, group.of[name])
		}
	}
	f.write(data, "data.memory", "memory: %d", f.rules.memory)
	f.write(data, "data.idle", "idle: %d", f.rules.idle)
	f.write("policies.cue", "", "policies: schema.#Policies & {")
	if q := f.rules.quiet; q != nil {
		f.write("policies.cue", "quiet", "\tquiet: {")
		f.write("policies.cue", "", "\t\t%sspec: modules: \"quiet.rego\": \"\"\"\n\t\t\tpackage corral.scaling\n", f.named("ml"))
		f.write("policies.cue", "rule/quiet", "\t\t\tlimit contains {\"field\": \"max\", \"atMost\": data.most, \"reason\": \"quiet\"}")
		f.write("policies.cue", "", "\t\t\tlimit contains {\"field\": \"min\", \"atLeast\": 2, \"reason\": \"a wish without a say\"}\n\t\t\t\"\"\"")
		f.write("policies.cue", "data.most", "\t\tspec: data: most: %d", q.most)
		f.write("policies.cue", "mode", "\t\tspec: mode: %q", q.mode)
		f.write("policies.cue", "selector.matchLabels.tier", "\t\tspec: selector: matchLabels: tier: %q\n\t}", q.tier)
	}
	if f.rules.extra {
		f.write("policies.cue", "extra", "\textra: {")
		f.write("policies.cue", "", "\t\t%sspec: modules: \"extra.rego\": \"package corral.scaling\\nlimit contains {\\\"field\\\": \\\"max\\\", \\\"atMost\\\": 5, \\\"reason\\\": \\\"extra\\\"}\\n\"\n\t}", f.named("ml"))
	}
	f.write("policies.cue", "", "}")
}

// guard is the platform team's rule, which applies to both sides.
const guard = "package corral.scaling\n\nlimit contains {\"field\": \"min\", \"atLeast\": 1, \"reason\": \"guard\"} if \"A100\" in input.pool.runnerLabels\n"

func (f *fleet) renderPrices() {
	p := f.prices
	if p == nil {
		return
	}
	const file = "prices.yaml"
	f.write(file, "", "currency: EUR")
	f.write(file, "perVCPUHour", "perVCPUHour: %g", p.cpu)
	f.write(file, "perGiBHour", "perGiBHour: %g", p.gib)
	f.write(file, "labels[0].perRunnerHour", "labels:\n- label: a100\n  perRunnerHour: %g", p.label)
	f.write(file, "nodes[0].perHour", "nodes:\n- name: g5.xlarge\n  nodeSelector: {node.kubernetes.io/instance-type: g5.xlarge}\n  vcpu: 4\n  memory: 16Gi\n  perHour: %g", p.node)
	f.write(file, "typical.share", "typical:\n  share: %g\n  pools:\n  - {name: \"free-*\", share: 0.573}", p.share)
}

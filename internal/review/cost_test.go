// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
)

const prices = `currency: EUR
hoursPerMonth: 100
perVCPUHour: 0.5
perGiBHour: 0.25
labels:
- {label: gpu, perRunnerHour: 10}
nodes:
- name: big
  nodeSelector: {size: big}
  vcpu: 8
  memory: 32Gi
  perHour: 4
typical:
  share: 0.5
  pools:
  - {name: "gpu-*", share: 1}
`

// A runner of linux requests 2 vCPU and 4 GiB. It costs 2 per hour, and 200 per month of 100 hours.
func TestARunnerCostsWhatThePriceFileSays(t *testing.T) {
	tests := map[string]struct{ prices, pool, want string }{
		"by its requests":    {prices, linux, "400 5200 10000 requests of 2 vCPU and 4 GiB"},
		"by its label first": {prices, change(t, linux, "scale:", "runnerLabels: [\"linux\", \"GPU\"]\n\t\tscale:", `template: #T`, `template: #T & {spec: nodeSelector: size: "big"}`), "2000 26000 50000 the price of label gpu"},
		"by its node": {prices, change(t, linux, `template: #T`, `template: #T & {spec: nodeSelector: {size: "big", zone: "a"}}`),
			"200 2600 5000 0.25 of a node big, for 2 vCPU and 4 GiB"},
		"a node by memory": {change(t, prices, "32Gi", "8Gi"), change(t, linux, `template: #T`, `template: #T & {spec: nodeSelector: size: "big"}`),
			"400 5200 10000 0.5 of a node big, for 2 vCPU and 4 GiB"},
		"of a share of its own": {prices, change(t, linux, "linux:", `"gpu-1":`), "400 10000 10000 requests of 2 vCPU and 4 GiB"},
		"without a max":         {prices, change(t, linux, "max: 50, ", ""), "400 400 unbounded requests of 2 vCPU and 4 GiB"},
		"suspended":             {prices, change(t, linux, "scale:", "stopPolicy: \"Drain\"\n\t\tscale:"), "0 0 0 requests of 2 vCPU and 4 GiB"},
		"by half a week": {prices, change(t, linux, "scale:", `scale: schedules: [{name: "day", weekly: {days: ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"], from: "06:00", to: "18:00"}, scale: {idle: 4, max: 30}}]
		scale:`), "600 4300 8000 requests of 2 vCPU and 4 GiB"},
		"nobody knows": {"currency: EUR\n", linux, "unknown [ci/linux]"},
		"in many containers": {prices, change(t, linux, `template: #T`, `template: spec: {
			initContainers: [
				{name: "side", image: "s", restartPolicy: "Always", resources: requests: cpu: "1"},
				{name: "once", image: "s", resources: requests: memory: "20Gi"},
			]
			containers: [
				{name: "runner", image: "r", resources: {requests: cpu: "1", limits: {cpu: "3", memory: "2Gi"}}},
				{name: "helper", image: "r", resources: limits: memory: "2Gi"},
			]
		}`), "1200 15600 30000 requests of 2 vCPU and 20 GiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, files{}, files{"p.cue": tt.pool, "prices.yaml": tt.prices})
			if r.Verdict != Allowed {
				t.Fatal(r.Head.Diagnostics)
			}
			got := fmt.Sprintf("unknown %v", r.Cost.Unknown)
			if c := r.Pools[0].Cost; c != nil {
				got = amounts(c.After) + " " + c.Basis
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func amounts(a *Amounts) string {
	if a == nil {
		return "-"
	}
	most := "unbounded"
	if a.Max != nil {
		most = fmt.Sprint(*a.Max)
	}
	return fmt.Sprintf("%v %v %s", a.Min, a.Typical, most)
}

// A denied template costs as much as what runs instead: nothing, or the previous template.
func TestWhatIsDeniedCostsWhatRunsThen(t *testing.T) {
	dear := change(t, linux, `template: #T`, `template: #T & {spec: nodeSelector: size: "big"}`)
	for name, tc := range map[string]struct {
		base, head files
		effect     string
		max        float64
	}{
		"added": {files{"prices.yaml": prices}, files{"p.cue": linux, "prices.yaml": prices, "d.rego": denyOld},
			"Policies deny its pod: it starts no runners and accepts no jobs.", 0},
		"of the same template": {files{"p.cue": linux, "prices.yaml": prices}, files{"p.cue": linux, "prices.yaml": prices, "d.rego": denyOld},
			"Policies deny its pod from now on: runners without a job stop, busy runners finish their job, and it accepts no jobs.", 0},
		"of another template": {files{"p.cue": linux, "prices.yaml": prices, "d.rego": denyBig}, files{"p.cue": dear, "prices.yaml": prices, "d.rego": denyBig},
			"Policies deny it or can't be evaluated: runners keep the previous template.", 10_000},
		"of another template, and the former, too": {files{"p.cue": linux, "prices.yaml": prices}, files{"p.cue": dear, "prices.yaml": prices, "d.rego": denyOld},
			"Policies deny its pod from now on: runners without a job stop, busy runners finish their job, and it accepts no jobs.", 0},
		"as before": {files{"p.cue": linux, "prices.yaml": prices, "d.rego": denyOld}, files{"p.cue": change(t, linux, "max: 50", "max: 25"), "prices.yaml": prices, "d.rego": denyOld},
			"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, tc.base, tc.head)
			if len(r.Pools) != 1 || r.Verdict != Denied {
				t.Fatalf("%s, %d pools", r.Verdict, len(r.Pools))
			}
			isReported := slices.ContainsFunc(r.Pools[0].Effects, func(e string) bool { return strings.HasPrefix(e, "Policies deny") && e == tc.effect })
			if p := r.Pools[0]; isReported != (tc.effect != "") || *p.Cost.After.Max != tc.max {
				t.Errorf("effects %q, cost %v, want %q, %v", p.Effects, *p.Cost.After.Max, tc.effect, tc.max)
			}
		})
	}
}

const denyBig = "package corral.template\n\ndeny contains \"big\" if input.pod.spec.nodeSelector.size == \"big\"\n"

func TestACostIsOfTheLimitsThatPoliciesAllow(t *testing.T) {
	r := compareSides(t,
		files{"p.cue": linux, "prices.yaml": prices, "r.rego": ceiling},
		files{"p.cue": change(t, linux, "max: 50", "max: 80"), "prices.yaml": prices, "r.rego": ceiling})
	got := []string{amounts(r.Pools[0].Cost.Before), amounts(r.Pools[0].Cost.After), amounts(r.Cost.Before), amounts(r.Cost.After)}
	want := []string{"400 5200 10000", "400 6200 12000", "400 5200 10000", "400 6200 12000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAmountsSayWhatTheyLeaveOutOnEitherSide(t *testing.T) {
	free, of := change(t, linux, "max: 50, ", ""), "currency: EUR\n"
	tests := map[string]struct {
		base, head files
		want       string
	}{
		"a max at last":     {files{"p.cue": free, "prices.yaml": prices}, files{"p.cue": linux, "prices.yaml": prices}, "unknown [] [], unbounded [ci/linux] []"},
		"no max any more":   {files{"p.cue": linux, "prices.yaml": prices}, files{"p.cue": free, "prices.yaml": prices}, "unknown [] [], unbounded [] [ci/linux]"},
		"a price at last":   {files{"p.cue": linux, "prices.yaml": of}, files{"p.cue": linux, "prices.yaml": prices}, "unknown [ci/linux] [], unbounded [] []"},
		"no price any more": {files{"p.cue": linux, "prices.yaml": prices}, files{"p.cue": linux, "prices.yaml": of}, "unknown [] [ci/linux], unbounded [] []"},
		"added":             {files{"prices.yaml": of}, files{"p.cue": linux, "prices.yaml": of}, "unknown [] [ci/linux], unbounded [] []"},
		"deleted":           {files{"p.cue": linux, "prices.yaml": of}, files{"prices.yaml": of}, "unknown [ci/linux] [], unbounded [] []"},
		"in another currency": {files{"p.cue": free, "prices.yaml": prices}, files{"p.cue": linux, "prices.yaml": "currency: USD\n"},
			"unknown [] [ci/linux], unbounded [] []"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := compareSides(t, tt.base, tt.head).Cost
			got := fmt.Sprintf("unknown %v %v, unbounded %v %v", c.UnknownBefore, c.Unknown, c.UnboundedBefore, c.Unbounded)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A rule that keeps requesting another evaluation and reads the clock is evaluated hourly for all numbers that schedules set
// in the hour.
func TestPoliciesThatChangeTheirMindOftenAreAskedWithinBounds(t *testing.T) {
	often := `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": 10, "reason": "often", "until": input.now + 4000000000000}
`
	minutes := change(t, linux, "scale:", `scale: schedules: [{name: "often", cron: {schedule: "*/2 * * * *", duration: "1m"}, scale: max: 9}]
		scale:`)
	head := sideOf(t, "head", files{"p.cue": minutes, "r.rego": often, "prices.yaml": prices})
	asked := 0
	for i, p := range head.Policies {
		head.Policies[i].Policy = policy.Elsewhere(p.Source(), p.Facts(), asker(func(ctx context.Context, q policy.Question) ([]byte, error) {
			asked++
			return p.Answer(ctx, q)
		}))
	}
	r, err := Compare(t.Context(), Input{Base: sideOf(t, "base", files{}), Head: head, Moment: Moment{At: sunday, Zone: "UTC"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) > 0 || asked > 2*(7*24+1) {
		t.Errorf("evaluated %d times, %q", asked, r.Notes)
	}
	if got := amounts(r.Cost.After); got != "400 1150 1900" {
		t.Error(got)
	}
}

// asker is a function that implements policy.Asker.
type asker func(context.Context, policy.Question) ([]byte, error)

func (a asker) Ask(ctx context.Context, _ *policy.Policy, q policy.Question) ([]byte, error) {
	return a(ctx, q)
}

func TestOtherPricesAreTold(t *testing.T) {
	dear := change(t, prices, "perVCPUHour: 0.5", "perVCPUHour: 1")
	tests := map[string]struct {
		base, head string
		want       []string
	}{
		"the same": {prices, prices, []string{"0", "400 5200 10000", "400 5200 10000"}},
		"dearer":   {prices, dear, []string{"1", "400 5200 10000", "600 7800 15000", "perVCPUHour 0.5 1 prices.yaml:3 prices.yaml:3"}},
		"in another currency": {"currency: EUR\nperVCPUHour: 1\n", "currency: USD\nperVCPUHour: 1\n",
			[]string{"1", "-", "2920 20440 73000", `currency "EUR" "USD" prices.yaml:1 prices.yaml:1`}},
		"for the first time": {"", "currency: EUR\nperVCPUHour: 1\n", []string{
			"1", "2920 20440 73000", "2920 20440 73000", `currency  "EUR" - prices.yaml:1`, "perVCPUHour  1 - prices.yaml:2",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			base := files{"p.cue": linux}
			if tt.base != "" {
				base["prices.yaml"] = tt.base
			}
			head := files{"p.cue": linux, "prices.yaml": tt.head}
			r := compareSides(t, base, head)
			got := []string{"0", amounts(r.Cost.Before), amounts(r.Cost.After)}
			if r.HasChanges() {
				got[0] = "1"
			}
			if r.Prices != nil {
				for _, f := range r.Prices.Fields {
					got = append(got, fmt.Sprintf("%s %s %s %s %s", f.Path, f.Before, f.After, placed(f.BaseAt), placed(f.HeadAt)))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPriceFilesAreChecked(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"empty":            {"", []string{"prices.yaml:1:1: currency: is required, as EUR"}},
		"no YAML":          {"a: [", []string{"prices.yaml:1:1: did not find expected node content: close each { and [, and put commas between their entries"}},
		"an unknown field": {"currency: EUR\nperCPU: 1\n", []string{"prices.yaml:2:1: unknown field perCPU; allowed here: currency, hoursPerMonth, note, perVCPUHour, perGiBHour, labels, nodes, typical"}},
		"no number":        {"currency: EUR\nperVCPUHour: much\n", []string{"prices.yaml:2:1: perVCPUHour: must be a number with a point, as 0.031, found much"}},
		"a misspelt field": {"currency: EUR\nlabels:\n- {label: gpu, perRunnerHuor: 1}\n", []string{"prices.yaml:3:1: unknown field perRunnerHuor; did you mean perRunnerHour?"}},
		"out of bounds": {"currency: EUR\nhoursPerMonth: 800\nperVCPUHour: -1\nperGiBHour: .nan\ntypical: {share: 2}\n", []string{
			"prices.yaml:2:1: hoursPerMonth: must be more than 0 and at most 744, found 800",
			"prices.yaml:3:1: perVCPUHour: must be from 0 to 1000000000, found -1",
			"prices.yaml:4:1: perGiBHour: must be from 0 to 1000000000, found NaN",
			"prices.yaml:5:1: typical.share: must be from 0 to 1, found 2",
		}},
		"bad entries": {"currency: EUR\nlabels: [{}]\nnodes:\n- {vcpu: 0, memory: x}\ntypical:\n  pools:\n  - {name: \"[\"}\n", []string{
			"prices.yaml:2:1: labels[0].label: is required",
			"prices.yaml:4:1: nodes[0].nodeSelector: must have at least one label",
			`prices.yaml:4:1: nodes[0].vcpu: must be a quantity above 0, as 16 or 64Gi, found "0"`,
			`prices.yaml:4:1: nodes[0].memory: must be a quantity above 0, as 16 or 64Gi, found "x"`,
			"prices.yaml:7:1: typical.pools[0].name: must be the name of a pool, with * for any characters but /",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, diagnostics := ReadPrices("prices.yaml", []byte(tt.text))
			var got []string
			for _, d := range diagnostics {
				got = append(got, compile.Format(d))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

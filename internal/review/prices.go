// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/quota"
	"github.com/corral-dev/corral/internal/yamldoc"
)

const (
	// hoursPerMonth is a twelfth of a year's hours.
	hoursPerMonth = 730
	// defaultShare is where the typical number of runners lies between the fewest and the most.
	defaultShare = 0.25
	// MaxPriceBytes bounds a price file.
	MaxPriceBytes = 1 << 20
	// maxPrice bounds each price.
	maxPrice = 1e9
)

// Prices are what runners cost, from a reviewed file: nobody else is asked.
type Prices struct {
	// Currency of all prices, as EUR.
	Currency string `yaml:"currency"`
	// HoursPerMonth is what an amount by month is of. Default: 730.
	HoursPerMonth float64 `yaml:"hoursPerMonth"`
	// Note says where the prices are from.
	Note string `yaml:"note"`
	// PerVCPUHour and PerGiBHour are the price of what a runner's pod requests.
	PerVCPUHour float64 `yaml:"perVCPUHour"`
	PerGiBHour  float64 `yaml:"perGiBHour"`
	// Labels are prices of runners by a label that jobs ask for. The first that a pool has holds, before all others.
	Labels []LabelPrice `yaml:"labels"`
	// Nodes are prices of nodes. The first whose labels a pool's node selector has holds, before what it requests.
	Nodes []NodePrice `yaml:"nodes"`
	// Typical says where the typical number of runners lies.
	Typical TypicalShare `yaml:"typical"`

	file   string
	object compile.Object // for what differs
}

// LabelPrice is the price of runners with a label.
type LabelPrice struct {
	// Label as runs-on names it, whatever its case.
	Label string `yaml:"label"`
	// PerRunnerHour is the price of one runner and hour.
	PerRunnerHour float64 `yaml:"perRunnerHour"`
}

// NodePrice is the price of a kind of nodes. A runner costs its share of one: of its CPUs or its memory, whichever is larger.
type NodePrice struct {
	Name string `yaml:"name"`
	// NodeSelector are the labels that a pool's node selector must have, at least one.
	NodeSelector map[string]string `yaml:"nodeSelector"`
	// VCPU and Memory that a node has for pods, as quantities.
	VCPU   string `yaml:"vcpu"`
	Memory string `yaml:"memory"`
	// PerHour is the price of one node and hour.
	PerHour float64 `yaml:"perHour"`

	vcpu, gib float64
}

// TypicalShare says where the typical number of runners lies between the fewest, at 0, and the most, at 1.
type TypicalShare struct {
	// Share of all pools. Default: 0.25.
	Share *float64 `yaml:"share"`
	// Pools that differ, by name with * for any characters but /; the first that fits holds.
	Pools []PoolShare `yaml:"pools"`
}

// PoolShare is the share of pools by name.
type PoolShare struct {
	Name  string  `yaml:"name"`
	Share float64 `yaml:"share"`
}

// ReadPrices reads a price file, in YAML, and names the file in places and diagnostics.
func ReadPrices(file string, data []byte) (*Prices, []v1alpha1.Diagnostic) {
	if len(data) > MaxPriceBytes {
		return nil, []v1alpha1.Diagnostic{{File: file, Line: 1, Column: 1, Message: fmt.Sprintf("larger than %d bytes, the most that is read", MaxPriceBytes)}}
	}
	p := &Prices{file: file}
	content := map[string]any{}
	for _, into := range []any{p, &content} {
		if err := yamldoc.Strict(data, into); err != nil {
			return nil, yamlProblems(file, err)
		}
	}
	p.HoursPerMonth = cmp.Or(p.HoursPerMonth, hoursPerMonth)
	p.index(data, content)
	faults := p.check()
	for i := range faults {
		f := &faults[i]
		f.File = file
		f.Line, f.Column = v1alpha1.LineNumber(max(1, p.object.PositionOf("spec."+f.Path).Line)), 1
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return p, nil
}

// yamlProblems are what the parser doesn't like.
func yamlProblems(file string, err error) (diagnostics []v1alpha1.Diagnostic) {
	for _, p := range yamldoc.Problems(err) {
		diagnostics = append(diagnostics, v1alpha1.Diagnostic{File: file, Line: v1alpha1.LineNumber(p.Line), Column: 1, Message: strings.TrimSuffix(p.Message, " in type review.Prices")})
	}
	return diagnostics
}

// index keeps the file as an object with places, for what differs.
func (p *Prices) index(data []byte, content map[string]any) {
	p.object = compile.Object{File: p.file, Line: 1, Column: 1, Positions: map[string]compile.Position{}}
	p.object.Manifest = unstructured.Unstructured{Object: map[string]any{"spec": content}}
	compile.YAMLPositions("spec", p.file, data, func(path string, at compile.Position) { p.object.Positions[path] = at })
}

// faults are found by looking at what a file says.
type faults []v1alpha1.Diagnostic

// must adds a field that isn't as it must be.
func (f *faults) must(is bool, path, format string, args ...any) {
	if !is {
		*f = append(*f, v1alpha1.Diagnostic{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// upTo must be a number from 0 to another; what is not a number is neither.
func (f *faults) upTo(most int64, path string, v float64) {
	f.must(v >= 0 && v <= float64(most), path, "must be from 0 to %d, found %v", most, v)
}

// check looks at what the file says, and reads its quantities.
func (p *Prices) check() (f faults) {
	f.must(p.Currency != "" && len(p.Currency) <= 8, "currency", "is required, as EUR")
	f.must(p.HoursPerMonth > 0 && p.HoursPerMonth <= 24*31, "hoursPerMonth", "must be more than 0 and at most 744, found %v", p.HoursPerMonth)
	f.upTo(maxPrice, "perVCPUHour", p.PerVCPUHour)
	f.upTo(maxPrice, "perGiBHour", p.PerGiBHour)
	for i, l := range p.Labels {
		at := fmt.Sprintf("labels[%d].", i)
		f.upTo(maxPrice, at+"perRunnerHour", l.PerRunnerHour)
		f.must(l.Label != "", at+"label", "is required")
	}
	for i := range p.Nodes {
		n, at := &p.Nodes[i], fmt.Sprintf("nodes[%d].", i)
		f.upTo(maxPrice, at+"perHour", n.PerHour)
		f.must(len(n.NodeSelector) > 0, at+"nodeSelector", "must have at least one label")
		n.vcpu = f.quantity(at+"vcpu", n.VCPU)
		n.gib = f.quantity(at+"memory", n.Memory) / (1 << 30)
	}
	f.upTo(1, "typical.share", ptr.Deref(p.Typical.Share, defaultShare))
	for i, s := range p.Typical.Pools {
		at := fmt.Sprintf("typical.pools[%d].", i)
		f.upTo(1, at+"share", s.Share)
		_, err := path.Match(s.Name, "")
		f.must(err == nil && s.Name != "", at+"name", "must be the name of a pool, with * for any characters but /")
	}
	return f
}

func (f *faults) quantity(path, text string) float64 {
	q, err := v1alpha1.Quantity(text).Parse()
	f.must(err == nil && q.Sign() > 0, path, "must be a quantity above 0, as 16 or 64Gi, found %q", text)
	return q.AsApproximateFloat64()
}

// share of a pool between the fewest and the most runners.
func (p *Prices) share(name string) float64 {
	for _, s := range p.Typical.Pools {
		if ok, _ := path.Match(s.Name, name); ok { // check saw the patterns
			return s.Share
		}
	}
	return ptr.Deref(p.Typical.Share, defaultShare)
}

// rate is what a pool's runner costs by hour, and what that is made of; false if nobody knows.
func (p *Prices) rate(pool *pool) (rate float64, basis string, known bool) {
	for _, l := range p.Labels {
		if slices.ContainsFunc(pool.GetRunnerLabels(), func(label string) bool { return strings.EqualFold(label, l.Label) }) {
			return l.PerRunnerHour, "the price of label " + l.Label, true
		}
	}
	pod, err := podspec.Specimen(pool.RunnerPool)
	if err != nil {
		return 0, "", false
	}
	wants := quota.Requests(pod)
	vcpu, gib := wants.Cpu().AsApproximateFloat64(), wants.Memory().AsApproximateFloat64()/(1<<30)
	resources := fmt.Sprintf("%.4g vCPU and %.4g GiB", vcpu, gib)
	for _, n := range p.Nodes {
		if labels.SelectorFromSet(n.NodeSelector).Matches(labels.Set(pod.Spec.NodeSelector)) {
			share := min(1, max(vcpu/n.vcpu, gib/n.gib))
			return share * n.PerHour, fmt.Sprintf("%.3g of a node %s, for %s", share, n.Name, resources), share > 0
		}
	}
	rate = vcpu*p.PerVCPUHour + gib*p.PerGiBHour
	return rate, "requests of " + resources, rate > 0
}

// cents rounds an amount.
func cents(v float64) float64 { return math.Round(v*100) / 100 }

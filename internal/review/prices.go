// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/quota"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/internal/yamldoc"
)

const (
	// hoursPerMonth is a twelfth of the hours of a year.
	hoursPerMonth = 730
	// defaultShare is the default of TypicalShare.Share.
	defaultShare = 0.25
	// MaxPriceBytes limits the size of a price file.
	MaxPriceBytes = 1 << 20
	// maxPrice is the largest allowed price.
	maxPrice = 1e9
)

// Prices contains the prices of runners, as a reviewed file declares them. Corral uses no other source of prices.
type Prices struct {
	// Currency of all prices, for example EUR.
	Currency string `yaml:"currency"`
	// HoursPerMonth is the number of hours on which monthly amounts are based. Default: 730.
	HoursPerMonth float64 `yaml:"hoursPerMonth"`
	// Note describes the source of the prices.
	Note string `yaml:"note"`
	// PerVCPUHour and PerGiBHour are the prices for the resources that a runner's pod requests.
	PerVCPUHour float64 `yaml:"perVCPUHour"`
	PerGiBHour  float64 `yaml:"perGiBHour"`
	// Labels contains prices for runners with a label. The first entry whose label a pool has applies, and takes precedence
	// over all other prices.
	Labels []LabelPrice `yaml:"labels"`
	// Nodes contains prices of nodes. The first entry whose labels are in the pool's node selector applies, and takes
	// precedence over the price of the requested resources.
	Nodes []NodePrice `yaml:"nodes"`
	// Typical determines the typical number of runners of a pool.
	Typical TypicalShare `yaml:"typical"`

	object compile.Object // the content of the file with the positions of its fields, for a comparison with another price file
}

// LabelPrice is the price of runners with a label.
type LabelPrice struct {
	// Label of a job's runs-on. Case is ignored.
	Label string `yaml:"label"`
	// PerRunnerHour is the price of one runner per hour.
	PerRunnerHour float64 `yaml:"perRunnerHour"`
}

// NodePrice is the price of a kind of node. A runner costs the share of the node's price that corresponds to its share of
// the CPUs or of the memory, whichever is larger.
type NodePrice struct {
	Name string `yaml:"name"`
	// NodeSelector contains the labels that a pool's node selector must have. At least one is required.
	NodeSelector map[string]string `yaml:"nodeSelector"`
	// VCPU and Memory are the resources that a node provides for pods, as quantities.
	VCPU   string `yaml:"vcpu"`
	Memory string `yaml:"memory"`
	// PerHour is the price of one node per hour.
	PerHour float64 `yaml:"perHour"`

	vcpu, gib float64
}

// TypicalShare sets where the typical number of runners lies between the minimum (0) and the maximum (1).
type TypicalShare struct {
	// Share for all pools. Default: 0.25.
	Share *float64 `yaml:"share"`
	// Pools contains the shares of pools that differ from Share. The first entry whose name matches applies.
	Pools []PoolShare `yaml:"pools"`
}

// PoolShare is the share of the pools whose name matches Name. In Name, * matches any characters except /.
type PoolShare struct {
	Name  string  `yaml:"name"`
	Share float64 `yaml:"share"`
}

// ReadPrices reads a price file in YAML. Positions and diagnostics refer to the given file name.
func ReadPrices(file string, data []byte) (*Prices, []v1alpha1.Diagnostic) {
	if len(data) > MaxPriceBytes {
		return nil, []v1alpha1.Diagnostic{{File: file, Line: 1, Column: 1, Message: fmt.Sprintf("larger than %d bytes, the limit", MaxPriceBytes)}}
	}
	p, content := &Prices{}, map[string]any{}
	if err := cmp.Or(yamldoc.Strict(data, p), yamldoc.Strict(data, &content)); err != nil {
		return nil, yamlProblems(file, data, err)
	}
	p.HoursPerMonth = cmp.Or(p.HoursPerMonth, hoursPerMonth)
	p.object = compile.Object{
		File: file, Line: 1, Column: 1, Positions: map[string]compile.Position{},
		Manifest: unstructured.Unstructured{Object: map[string]any{"spec": content}},
	}
	compile.YAMLPositions("spec", file, data, func(path string, at compile.Position) { p.object.Positions[path] = at })
	if found := p.check(); len(found) > 0 {
		return nil, found
	}
	return p, nil
}

var (
	// unknownField and noNumber match error messages of the YAML parser. fieldInLine matches the field's name in a line of the
	// file.
	unknownField = regexp.MustCompile(`^field (\S+) not found in type review\.(\w+)$`)
	noNumber     = regexp.MustCompile("^cannot unmarshal !!\\w+ `(.*)` into float64$")
	fieldInLine  = regexp.MustCompile(`^[\s-]*(\w+):`)
)

// yamlProblems returns the errors of the YAML parser as diagnostics.
func yamlProblems(file string, data []byte, err error) (diagnostics []v1alpha1.Diagnostic) {
	lines := strings.Split(string(data), "\n")
	for _, p := range yamldoc.Problems(data, err) {
		d := v1alpha1.Diagnostic{File: file, Line: v1alpha1.LineNumber(p.Line), Column: 1, Message: p.Message}
		if unknown := unknownField.FindStringSubmatch(p.Message); unknown != nil {
			d.Message = "unknown field " + unknown[1] + wording.Suggestion(unknown[1], fieldsOf(unknown[2]))
		}
		name := fieldInLine.FindStringSubmatch(lines[min(max(p.Line, 1), len(lines))-1])
		if found := noNumber.FindStringSubmatch(p.Message); found != nil && name != nil {
			d.Path, d.Message = name[1], fmt.Sprintf("must be a number with a point, as 0.031, found %s", found[1])
		}
		diagnostics = append(diagnostics, d)
	}
	return diagnostics
}

// fieldsOf returns the YAML fields of a type of this package.
func fieldsOf(name string) (fields []string) {
	for _, of := range []any{Prices{}, LabelPrice{}, NodePrice{}, TypicalShare{}, PoolShare{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if tag := f.Tag.Get("yaml"); tag != "" && reflect.TypeOf(of).Name() == name {
				fields = append(fields, tag)
			}
		}
	}
	return fields
}

// faults collects the problems of a price file.
type faults struct {
	of  *compile.Object
	all []v1alpha1.Diagnostic
}

// must adds a problem with a field unless the condition holds.
func (f *faults) must(condition bool, path, format string, args ...any) {
	if !condition {
		line := v1alpha1.LineNumber(max(1, f.of.PositionOf("spec."+path).Line))
		f.all = append(f.all, v1alpha1.Diagnostic{File: f.of.File, Line: line, Column: 1, Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// upTo adds a problem unless a value is a number from 0 to most. NaN is a problem.
func (f *faults) upTo(most int64, path string, v float64) {
	f.must(v >= 0 && v <= float64(most), path, "must be from 0 to %d, found %v", most, v)
}

// check validates the file, and parses its quantities.
func (p *Prices) check() []v1alpha1.Diagnostic {
	f := &faults{of: &p.object}
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
	return f.all
}

func (f *faults) quantity(path, text string) float64 {
	q, err := v1alpha1.Quantity(text).Parse()
	f.must(err == nil && q.Sign() > 0, path, "must be a quantity above 0, as 16 or 64Gi, found %q", text)
	return q.AsApproximateFloat64()
}

// share returns the share of a pool's typical number of runners, see TypicalShare.
func (p *Prices) share(name string) float64 {
	for _, s := range p.Typical.Pools {
		if ok, _ := path.Match(s.Name, name); ok { // check rejected invalid patterns
			return s.Share
		}
	}
	return ptr.Deref(p.Typical.Share, defaultShare)
}

// rate returns the hourly price of a pool's runner, and what the price is based on. known is false if the prices do not
// cover the runner.
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

// cents rounds an amount to two decimals.
func cents(v float64) float64 { return math.Round(v*100) / 100 }

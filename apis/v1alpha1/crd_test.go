// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp/syntax"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// crd is a kind of Corral from the API server's view.
type crd struct {
	kind   string
	schema *schema.Structural
	values validation.SchemaValidator
	rules  *cel.Validator
	times  map[string]bool // names of times in the status: the API server accepts times that Go does not
}

func readCRDs(t *testing.T) []crd {
	t.Helper()
	files, err := filepath.Glob("../../charts/corral/files/crds/*.yaml")
	if err != nil || len(files) != 7 {
		t.Fatalf("%d CRDs, %v", len(files), err)
	}
	var all []crd
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		definition, inner := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.JSONSchemaProps{}
		must(t, yaml.UnmarshalStrict(text, definition))
		must(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, inner, nil))
		c := crd{kind: definition.Spec.Names.Kind, times: map[string]bool{}}
		c.schema, err = schema.NewStructural(inner)
		must(t, err)
		c.values, _, err = validation.NewSchemaValidator(inner)
		must(t, err)
		c.rules = cel.NewValidator(c.schema, true, celconfig.PerCallLimit)
		all = append(all, c)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// takes reports whether an API server accepts an object.
func (c *crd) takes(t *testing.T, object map[string]any) bool {
	object = runtime.DeepCopyJSON(object)
	defaulting.Default(object, c.schema)
	if len(validation.ValidateCustomResource(nil, object, c.values)) > 0 {
		return false
	}
	errs, _ := c.rules.Validate(t.Context(), nil, c.schema, object, nil, celconfig.RuntimeCELCostBudget)
	return len(errs) == 0
}

// hostile are values that some decoder rejects or takes long to decode, and similar harmless values.
var hostile = func() []any {
	texts := []string{
		`"banana"`, `""`, `"a"`, `"Z"`, `"ghcr.io/"`, `"/a"`, `"https://x/y"`, `"é"`, `true`, `false`, `{}`, `[]`, `["a"]`, `{"a":"b"}`, `{"a":1e300}`,
		`0`, `1`, `-1`, `5`, `50`, `101`, `0.5`, `3.0`, `1e3`, `99999`, `2147483647`, `2147483648`, `-2147483649`, `5000000000`, `5e9`, `9223372036854775807`, `9223372036854775808`, `1e19`, `1e300`,
		`"0s"`, `"5m"`, `"1h30m"`, `"1.5h"`, `"1h5m7s9ms"`, `"-5m"`, `"+5m"`, `"1d"`, `"5"`, `"5 m"`, `".5s"`, `"1e9s"`, `"99999999999h"`, `"9999999999999999999s"`, `"9999999.999999999m9999999m"`,
		`"99999.999999999h99999.999999999h99999.999999999h99999.999999999h"`, `"1µs"`, `"5000000000"`, `"25%"`, `"99999999999%"`, `"999999%"`, `"-1%"`, `"100%%"`,
		`"1e1.5"`, `"1e-2147483647"`, `"1e2147483647"`, `"1e99"`, `"1e-99"`, `"1E5"`, `"1Ei"`, `"999999999999999999.999999999Ei"`, `"+.5Ki"`, `"0.1"`, `"500m"`, `"1Kii"`, `"` + strings.Repeat("1", 5000) + `"`,
		`"2026-12-20T00:00:00Z"`, `"2027-12-20T00:00:00+01:00"`, `"2026-12-20t00:00:00z"`, `"2026-12-20T00:00:00,5Z"`, `"2026-12-20T00:00:00x5Z"`, `"2026-12-20T00:00:00ZT"`, `"2026-12-20T00:00:00+99:99"`,
		`"2026-12-20T24:00:00Z"`, `"2026-12-20T23:59:60Z"`, `"2026-12-20T00:00:00.123456789123Z"`, `"2026-12-20T00:00:00.123456789Z"`, `"2026-02-30T00:00:00Z"`, `"0000-01-01T00:00:00Z"`, `"9999-12-31T23:59:59-23:59"`, `"2026-12-20"`,
	}
	values := make([]any, len(texts))
	for i, text := range texts {
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &values[i]); err != nil {
			panic(err)
		}
	}
	return values
}()

// leaf is a field without fields below it.
type leaf struct {
	path   []string // * stands for an item of a list
	schema *schema.Structural
}

func (l leaf) String() string { return strings.Join(l.path, ".") }

// anyKey is a map key that all rules accept.
const anyKey = "a.rego"

func leavesOf(s *schema.Structural, path ...string) []leaf {
	var all []leaf
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if len(path) > 0 || name == "spec" || name == "status" {
			all = append(all, leavesOf(new(s.Properties[name]), append(slices.Clip(path), name)...)...)
		}
	}
	switch {
	case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
		all = append(all, leavesOf(s.AdditionalProperties.Structural, append(slices.Clip(path), anyKey)...)...)
	case s.Items != nil:
		all = append(all, leavesOf(s.Items, append(slices.Clip(path), "*")...)...)
	case len(s.Properties) == 0:
		all = append(all, leaf{path, s})
	}
	return all
}

// candidates returns values for a leaf: hostile values, values that its rules name, and values that match its pattern.
func candidates(s *schema.Structural, random *rand.Rand) []any {
	var all []any
	if s.ValueValidation != nil {
		for _, v := range s.ValueValidation.Enum {
			all = append(all, v.Object)
		}
	}
	if pattern := patternOf(s); pattern != "" {
		tree, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			panic(err)
		}
		for range 50 {
			all = append(all, sample(tree, random))
		}
	}
	return append(all, hostile...)
}

// patternOf returns the pattern of a string. Some strings have it in a CEL rule instead, because a rule can have its own message.
func patternOf(s *schema.Structural) string {
	if v := s.ValueValidation; v != nil && v.Pattern != "" {
		return v.Pattern
	}
	for _, rule := range s.XValidations {
		if _, rest, ok := strings.Cut(rule.Rule, "self.matches(r'"); ok {
			pattern, _, _ := strings.Cut(rest, "'")
			return pattern
		}
	}
	return ""
}

// sample returns a random text that matches a pattern.
func sample(r *syntax.Regexp, random *rand.Rand) string {
	text := ""
	switch r.Op {
	case syntax.OpLiteral:
		return string(r.Rune)
	case syntax.OpCharClass:
		i := 2 * random.IntN(len(r.Rune)/2)
		return string(r.Rune[i] + random.Int32N(min(r.Rune[i+1], 'z')-min(r.Rune[i], 'z')+1))
	case syntax.OpAlternate:
		return sample(r.Sub[random.IntN(len(r.Sub))], random)
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range r.Sub {
			text += sample(sub, random)
		}
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		least := map[syntax.Op]int{syntax.OpPlus: 1, syntax.OpRepeat: r.Min}[r.Op]
		most := map[syntax.Op]int{syntax.OpQuest: 1, syntax.OpRepeat: r.Max, syntax.OpStar: 3, syntax.OpPlus: 3}[r.Op]
		for range []int{least, most, least + random.IntN(max(most, least)-least+1)}[random.IntN(3)] {
			text += sample(r.Sub[0], random)
		}
	}
	return text
}

// fill creates the smallest value that satisfies a schema's types and required fields.
func fill(s *schema.Structural) any {
	v := s.ValueValidation
	switch {
	case s.Type == "object" || len(s.Properties) > 0:
		object := map[string]any{}
		if v != nil {
			for _, name := range v.Required {
				object[name] = fill(new(s.Properties[name]))
			}
		}
		return object
	case s.Type == "array":
		return []any{fill(s.Items)}
	case s.Type == "boolean":
		return true
	case s.Type == "integer":
		if v != nil && v.Minimum != nil {
			return int64(*v.Minimum)
		}
		return int64(1)
	case v != nil && len(v.Enum) > 0:
		return v.Enum[0].Object
	case patternOf(s) != "":
		tree, _ := syntax.Parse(patternOf(s), syntax.Perl)
		return sample(tree, rand.New(rand.NewPCG(1, 1)))
	case v != nil && v.Format == "date-time":
		return "2026-12-20T00:00:00Z"
	}
	return "1 2 3 4 5"
}

// put sets a field in an object, with everything that is required on the way.
func put(s *schema.Structural, in any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if in == nil {
		in = fill(s)
	}
	switch in := in.(type) {
	case map[string]any:
		of, ok := s.Properties[path[0]]
		if !ok {
			of = *s.AdditionalProperties.Structural
		}
		in[path[0]] = put(&of, in[path[0]], path[1:], value)
	case []any:
		in[0] = put(s.Items, in[0], path[1:], value)
	}
	return in
}

// frames are additional fields that rules between fields require. The first ones that help are used.
var frames = map[string][]string{
	"RunnerPool":       {"", "spec.registration=REST spec.lifetime=Persistent", "spec.containerMode.type=Kubernetes", "spec.containerMode.type=KubernetesNoVolume", "spec.scale.schedules.*.scale.max=1 spec.scale.schedules.*.weekly.from=08:00", "spec.scale.schedules.*.scale.max=1", "spec.demand.metrics.*.busy={}", "spec.registration=REST", "spec.scale.schedules.*.once.to=2030-01-01T00:00:00Z spec.scale.schedules.*.once.from=2020-01-01T00:00:00Z spec.scale.schedules.*.scale.max=1"},
	"PoolSource":       {"spec.git.url=https://x/y", "spec.sourceRef.name=x", "spec.git.url=https://x/y spec.git.ref.branch=main"},
	"GitHubConnection": {"spec.secretRef.name=x", "spec.mount.name=x", "spec.secretRef.name=x spec.proxy.https.url=http://x spec.ca.secretRef.name=x"},
	"RunnerPolicy":     {"", "spec.library.ceilings.*.by=Label spec.library.ceilings.*.labelKey=x", "spec.library.hours.open.*.from=08:00 spec.library.hours.closed.max=1", "spec.library.hours.freezes.*.to=2030-01-01T00:00:00Z spec.library.hours.freezes.*.from=2020-01-01T00:00:00Z spec.library.hours.freezes.*.limits.max=1"},
	"Runner":           {"spec.scaleSetID=1", "spec.rest.url=x"},
}

func (c *crd) object(frame string, with func(object map[string]any)) map[string]any {
	object := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": c.kind, "metadata": map[string]any{"name": "x", "namespace": "x"}}
	object["spec"] = fill(new(c.schema.Properties["spec"]))
	if c.kind == "RunnerPool" { // a rule requires it; tests change the first container
		containers := []any{map[string]any{"name": "docker"}, map[string]any{"name": "runner"}}
		put(c.schema, object, []string{"spec", "template"}, map[string]any{"spec": map[string]any{"containers": containers}})
	}
	for _, assignment := range strings.Fields(frame) {
		path, text, _ := strings.Cut(assignment, "=")
		var value any = text
		if text == "1" {
			value = int64(1)
		}
		if text == "{}" {
			value = map[string]any{}
		}
		put(c.schema, object, strings.Split(path, "."), value)
	}
	with(object)
	return object
}

// decodes fails the test if Go cannot decode an object, or allocates too much memory for it.
func (c *crd) decodes(t *testing.T, scheme *runtime.Scheme, what string, object map[string]any) {
	t.Helper()
	text, err := json.Marshal(object)
	must(t, err)
	into, err := scheme.New(v1alpha1.GroupVersion.WithKind(c.kind))
	must(t, err)
	_ = json.Unmarshal(text, into.DeepCopyObject()) // fills the decoder's caches
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	err = json.Unmarshal(text, into)
	goruntime.ReadMemStats(&after)
	if err != nil {
		t.Errorf("%s %s: %v", c.kind, what, err)
	}
	read := into.(interface {
		Unreadable() error
		LostStatus() string
	})
	if err := read.Unreadable(); err != nil {
		t.Errorf("%s %s: %v", c.kind, what, err)
	}
	for lost := range strings.Lines(read.LostStatus()) {
		if path, _, _ := strings.Cut(lost, ": "); !c.times[path[strings.LastIndex(path, ".")+1:]] {
			t.Errorf("%s %s: %s", c.kind, what, lost)
		}
	}
	if used, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<10+100*len(text)); used > most {
		t.Errorf("%s %s: %d bytes were allocated for %d", c.kind, what, used, len(text))
	}
}

// Go decodes every value that an API server accepts, field by field and many at once.
func TestWhatTheSchemaTakesGoReads(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	for _, c := range readCRDs(t) {
		t.Run(c.kind, func(t *testing.T) {
			random := rand.New(rand.NewPCG(7, 7))
			frames := append(frames[strings.TrimPrefix(c.kind, "Cluster")], "")
			good := map[string][]any{}
			leaves := leavesOf(c.schema)
			for _, l := range leaves {
				if v := l.schema.ValueValidation; l.path[0] == "status" && v != nil && v.Format == "date-time" {
					c.times[l.path[len(l.path)-1]] = true
				}
			}
			for _, l := range leaves {
				fits := frames
				for _, value := range candidates(l.schema, random) {
					for _, frame := range fits {
						object := c.object(frame, func(object map[string]any) { put(c.schema, object, l.path, runtime.DeepCopyJSONValue(value)) })
						if c.takes(t, object) {
							good[l.String()], fits = append(good[l.String()], value), []string{frame}
							c.decodes(t, scheme, fmt.Sprintf("%s = %v", l, value), object)
							break
						}
					}
				}
				if len(good[l.String()]) == 0 && !strings.HasPrefix(l.String(), "spec.data.") { // keys that the field must not have
					t.Errorf("%s takes nothing that was tried", l)
				}
			}
			taken := 0
			for range 300 {
				object := c.object(frames[random.IntN(len(frames))], func(object map[string]any) {
					for _, l := range leaves {
						if values := good[l.String()]; len(values) > 0 && random.IntN(8) == 0 {
							put(c.schema, object, l.path, runtime.DeepCopyJSONValue(values[random.IntN(len(values))]))
						}
					}
				})
				if c.takes(t, object) {
					taken++
					c.decodes(t, scheme, "many fields", object)
				}
			}
			t.Logf("%d fields, %d of 300 with many fields were taken", len(leaves), taken)
		})
	}
}

// Server-side apply, which GitOps tools use, rejects each object with a set of objects or lists.
func TestSetsHaveScalarItems(t *testing.T) {
	for _, c := range readCRDs(t) {
		sets := schema.Visitor{Structural: func(s *schema.Structural) bool {
			if s.XListType != nil && *s.XListType == "set" && (s.Items.Type == "object" || s.Items.Type == "array") {
				t.Errorf("%s: the items of a set are of type %s: %s", c.kind, s.Items.Type, s.Description)
			}
			return false
		}}
		sets.Visit(c.schema)
	}
}

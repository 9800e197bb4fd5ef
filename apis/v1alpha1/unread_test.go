// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// poisons are fields of each kind that Go cannot decode, with the expected messages.
var poisons = map[string]struct{ object, unreadable, lost string }{
	"RunnerPool": {
		object: `"spec":{"connectionRef":{"name":"main"},"update":{"maxSurge":5000000000},"scale":{"idleTimeout":"banana",` +
			`"schedules":[{"name":"a","cron":{"schedule":"x","duration":"1h"}},{"name":"b","cron":{"schedule":"y","duration":"2 weeks"}}],` +
			`"behavior":{"scaleUp":{"tolerance":"1e-2147483647"}}}}`,
		unreadable: `spec.scale.behavior.scaleUp.tolerance: "1e-2147483647" is not a quantity: write it as 250m, 2 or 8Gi
spec.scale.idleTimeout: must be a duration such as 90s, 10m or 24h, of less than 292 years, not "banana"
spec.scale.schedules[1].cron.duration: must be a duration such as 90s, 10m or 24h, of less than 292 years, not "2 weeks"
spec.update.maxSurge: must be a whole number of at most 2147483647, or a percentage such as 25%, not 5000000000`,
	},
	"PoolSource": {
		object:     `"spec":{"timeout":"99999999999h","prune":"no"},"status":{"inventory":{"entries":[{"id":"a","v":"b"}]}}`,
		unreadable: "spec.prune: must be true or false, not \"no\"\nspec.timeout: must be a duration such as 90s, 10m or 24h, of less than 292 years, not \"99999999999h\"",
	},
	"GitHubConnection": {object: `"spec":{"webhook":{"hookID":1e19},"allowedNamespaces":"*"}`, unreadable: "spec.allowedNamespaces: must be a list\nspec.webhook.hookID: must be a whole number of at most 9223372036854775807, not 1e19"},
	"RunnerPolicy": {
		object:     `"spec":{"library":{"resources":{"maxPerPod":{"cpu":"1e1.5","memory":"8Gi"}}}}`,
		unreadable: `spec.library.resources.maxPerPod.cpu: "1e1.5" is not a quantity: write it as 250m, 2 or 8Gi`,
	},
	"ClusterRunnerPolicy": {
		object:     `"spec":{"library":{"pause":{"reason":"x","until":"2026-12-20t00:00:00z"}}},"status":{"pools":"many"}`,
		unreadable: `spec.library.pause.until: must be a time such as 2026-07-01T18:00:00Z, not "2026-12-20t00:00:00z"`,
		lost:       `status.pools: must be a whole number of at most 2147483647, not "many"`,
	},
	"Runner":         {object: `"spec":{"scaleSetID":"five","revision":"linux-1"},"status":{"runnerID":7}`, unreadable: `spec.scaleSetID: must be a whole number of at most 9223372036854775807, not "five"`},
	"RunnerScaleSet": {object: `"spec":{"labels":[5],"name":"linux"},"status":{"id":3,"conditions":[{"lastTransitionTime":[]}]}`, unreadable: "spec.labels[0]: must be a string, not 5", lost: "status.conditions[0].lastTransitionTime: must be a time such as 2026-07-01T18:00:00Z, not []"},
}

func TestOneUnreadableObjectHidesNoOther(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	codec := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	for kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		tc, ours := poisons[kind]
		if !ours {
			if _, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind + "List")); err == nil && !strings.HasSuffix(kind, "List") {
				t.Errorf("no case for %s", kind)
			}
			continue
		}
		t.Run(kind, func(t *testing.T) {
			text := fmt.Sprintf(`{"apiVersion":"corral.dev/v1alpha1","kind":"%sList","items":[{"metadata":{"name":"bad"},%s},{"metadata":{"name":"good"}}]}`, kind, tc.object)
			list, _, err := codec.Decode([]byte(text), nil, nil)
			must(t, err)
			items, err := meta.ExtractList(list)
			must(t, err)
			var names, faults []string
			for _, item := range items {
				object := item.(interface {
					GetName() string
					Unreadable() error
					LostStatus() string
				})
				names = append(names, object.GetName())
				if err := object.Unreadable(); err != nil {
					faults = append(faults, err.Error())
				}
				if lost := object.LostStatus(); lost != "" {
					faults = append(faults, lost)
				}
			}
			if diff := cmp.Diff([]string{"bad", "good"}, names); diff != "" {
				t.Error(diff)
			}
			want := []string{tc.unreadable}
			if tc.lost != "" {
				want = append(want, tc.lost)
			}
			if diff := cmp.Diff(want, faults); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatCanBeReadOfAnObjectIsRead(t *testing.T) {
	set := &v1alpha1.RunnerScaleSet{}
	must(t, set.UnmarshalJSON([]byte(`{"metadata":{"name":"linux","finalizers":["a"]},"spec":{"name":"linux","labels":["a",5]},"status":{"id":3,"conditions":"none"}}`)))
	if set.Spec.Name != "linux" || set.Name != "linux" || len(set.Finalizers) != 1 || len(set.Spec.Labels) != 2 {
		t.Errorf("read %+v", set)
	}
	if set.Status.ID != 0 {
		t.Error("of a status that can't be read, a part was kept: it would stay as it is")
	}
	must(t, set.UnmarshalJSON([]byte(`{"spec":{"name":"linux"}}`)))
	if set.Unreadable() != nil || set.LostStatus() != "" {
		t.Error("what was wrong with an object before is said of it after it was mended")
	}
}

// A pool that exceeds the size limit stalls alone, and its spec is not kept in memory.
func TestAPoolThatIsTooLargeIsNotKept(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes  int
		refuse bool
	}{"as large as it may be": {v1alpha1.MaxPoolBytes, false}, "larger": {v1alpha1.MaxPoolBytes + 1, true}} {
		const spec = `{"runnerGroup":"g","template":{"a":"%s"}}`
		text := fmt.Sprintf(spec, strings.Repeat("x", tc.bytes-len(spec)+len("%s")))
		p := &v1alpha1.RunnerPool{}
		must(t, p.UnmarshalJSON([]byte(`{"metadata":{"name":"linux"},"spec":`+text+`,"status":{"revision":"linux-1"}}`)))
		err := p.Unreadable()
		if refused := err != nil && strings.HasPrefix(err.Error(), "spec: it has 262145 bytes, more than 262144"); refused != tc.refuse || err != nil != tc.refuse {
			t.Errorf("%s: %v", name, err)
		}
		if isKept := p.Spec.RunnerGroup != ""; isKept == tc.refuse || p.Name != "linux" || p.Status.Revision == "" {
			t.Errorf("%s: kept %+v", name, p)
		}
	}
}

// The API server limits the size of labels and annotations only, so a pool could have a hundred thousand. Policies compare
// and sort them while all pools wait.
func TestAPoolWithTooManyLabelsStallsAlone(t *testing.T) {
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"l%d":"x"`, i))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for name, tc := range map[string]struct {
		labels, annotations int
		refuse              bool
	}{
		"as many as there may be": {v1alpha1.MaxPoolLabels, v1alpha1.MaxPoolAnnotations, false},
		"labels":                  {v1alpha1.MaxPoolLabels + 1, 0, true},
		"annotations":             {0, v1alpha1.MaxPoolAnnotations + 1, true},
	} {
		p := &v1alpha1.RunnerPool{}
		must(t, p.UnmarshalJSON([]byte(`{"metadata":{"name":"linux","labels":`+many(tc.labels)+`,"annotations":`+many(tc.annotations)+`},"spec":{"runnerGroup":"g"}}`)))
		err := p.Unreadable()
		if refused := err != nil && strings.HasPrefix(err.Error(), "metadata: it has "); refused != tc.refuse {
			t.Errorf("%s: %v", name, err)
		}
		if tc.refuse && len(p.Labels)+len(p.Annotations) > 0 || !tc.refuse && (len(p.Labels) != tc.labels || len(p.Annotations) != tc.annotations) || p.Spec.RunnerGroup != "g" {
			t.Errorf("%s: %d labels and %d annotations are kept", name, len(p.Labels), len(p.Annotations))
		}
	}
}

func TestStrictReadingRefuses(t *testing.T) {
	const text = `{"spec":{"scale":{"idleTimeout":"banana"}}}`
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), v1alpha1.Strict(&v1alpha1.RunnerPool{})); err == nil {
		t.Error("a duration that is none was taken")
	}
	strict, err := kjson.UnmarshalStrict([]byte(`{"spec":{"lables":[]}}`), v1alpha1.Strict(&v1alpha1.RunnerPool{}))
	if err != nil || len(strict) != 1 {
		t.Errorf("an unknown field: %v, %v", strict, err)
	}
	pool := map[string]any{"spec": map[string]any{"scale": map[string]any{"idleTimeout": "banana"}}}
	if err := v1alpha1.FromUnstructured(pool, &v1alpha1.RunnerPool{}); err == nil || !strings.HasPrefix(err.Error(), "spec.scale.idleTimeout: ") {
		t.Errorf("from its fields: %v", err)
	}
}

// Parsing one of these values would take seconds to hours.
func TestLongQuantitiesAreRefusedBeforeTheyAreParsed(t *testing.T) {
	for _, text := range []string{"1e-2147483647", "1E2147483647", "1e-999999999", "1e9999", strings.Repeat("1", 1<<20), "0." + strings.Repeat("0", 1<<20) + "1"} {
		if allocated := testing.AllocsPerRun(1, func() {
			if _, err := v1alpha1.Quantity(text).Parse(); err == nil || len(err.Error()) > 100 {
				t.Errorf("%.20s: %v", text, err)
			}
		}); allocated > 20 {
			t.Errorf("%.20s: %g allocations", text, allocated)
		}
		for _, value := range []string{`"` + text + `"`, text} {
			limits := `{"spec":{"containers":[{"resources":{"limits":{"cpu":` + value + `,"memory":"1Gi"}}}]}}`
			if escaped := strings.Replace(limits, "e", `\u0065`, 1); !v1alpha1.MayTakeLong([]byte(limits)) || !v1alpha1.MayTakeLong([]byte(escaped)) {
				t.Errorf("%.20s: taken for short", text)
			}
			content, faults, err := v1alpha1.Sift([]byte(limits), reflect.TypeFor[corev1.PodTemplateSpec]())
			must(t, err)
			rest, err := json.Marshal(content)
			must(t, err)
			if len(faults) != 1 || !strings.HasPrefix(faults[0], "spec.containers[0].resources.limits.cpu: ") || string(rest) != `{"spec":{"containers":[{"resources":{"limits":{"memory":"1Gi"}}}]}}` {
				t.Errorf("%.20s: %v %.200s", text, faults, rest)
			}
		}
	}
	for _, text := range []string{"0", "250m", "8Gi", "1e3", "1e+300", "1E", "1Ei", "-2"} {
		if _, err := v1alpha1.Quantity(text).Parse(); err != nil || v1alpha1.MayTakeLong([]byte(text)) {
			t.Error(text, err)
		}
	}
}

// An unknown value of an enumeration, which a newer version may know, is refused in every spec, so that it is never treated
// as the default.
func TestUnknownWordsAreUnreadable(t *testing.T) {
	harmless := map[string]string{
		"spec.cache.accessMode":                                       "the API server refuses the claim",
		"spec.demand.boosts.*.status":                                 "no event has it",
		"spec.containerMode.kubernetes.workVolumeClaim.accessModes.*": "the API server refuses the pod",
		"spec.sourceRef.kind":                                         "it names no kind that can be read",
	}
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	count := 0
	for _, c := range readCRDs(t) {
		for _, l := range leavesOf(c.schema) {
			if v := l.schema.ValueValidation; l.path[0] != "spec" || v == nil || len(v.Enum) == 0 || harmless[l.String()] != "" || l.schema.Type != "string" {
				continue
			}
			object := c.object("", func(object map[string]any) { put(c.schema, object, l.path, "Novel") })
			text, err := json.Marshal(object)
			must(t, err)
			into, err := scheme.New(v1alpha1.GroupVersion.WithKind(c.kind))
			must(t, err)
			must(t, json.Unmarshal(text, into))
			if err := into.(interface{ Unreadable() error }).Unreadable(); err == nil || !strings.Contains(err.Error(), `"Novel" is not known to this version of Corral`) {
				t.Errorf("%s: %s: Novel gives %v", c.kind, l, err)
			}
			count++
		}
	}
	if count < 20 {
		t.Errorf("%d enumerations were tried", count)
	}
}

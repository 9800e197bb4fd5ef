// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// running returns the live pools of a side. Each has 20 jobs, 8 busy runners and 4 idle ones.
func running(t *testing.T, s Side) map[string]*v1alpha1.RunnerPool {
	t.Helper()
	pools := map[string]*v1alpha1.RunnerPool{}
	for _, o := range s.Objects {
		if o.Manifest.GetKind() != "RunnerPool" {
			continue
		}
		p := &v1alpha1.RunnerPool{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Manifest.Object, p); err != nil {
			t.Fatal(err)
		}
		p.Status.Jobs, p.Status.Runners = new(int32(20)), v1alpha1.RunnerCounts{Total: 12, Busy: 8, Idle: 4}
		pools[wording.Qualified(p.Namespace, p.Name)] = p
	}
	return pools
}

func TestWhatRunsIsTold(t *testing.T) {
	newImage := change(t, linux, "template: #T", `template: #T & {spec: containers: [{image: "runner:2"}]}`)
	tests := map[string]struct {
		head files
		live func(map[string]*v1alpha1.RunnerPool)
		want []string
	}{
		"a template rolls": {files{"p.cue": newImage}, nil, []string{"20 8/4 []", "4 runners have no job and will be replaced. 8 runners are busy: each finishes its job."}},
		"a lower max": {files{"p.cue": change(t, linux, "max: 50", "max: 5")}, nil, []string{
			"20 8/4 []", "12 runners exist now, 7 more than the new max of 5: idle runners stop, and busy runners finish their job.", "20 jobs exist now: at most 5 can run at once, and the others wait.",
		}},
		"another identity": {files{"p.cue": change(t, linux, `"acme"`, `"other"`)}, nil, []string{
			"20 8/4 []", "12 jobs wait for it now without a runner: such jobs are lost.", "4 runners have no job and will be stopped. 8 runners are busy: each finishes its job.",
		}},
		"a pool that goes": {files{}, nil, []string{
			"20 8/4 []", "12 jobs wait for it now without a runner: such jobs are lost.", "4 runners have no job and will be stopped. 8 runners are busy: each finishes its job.",
		}},
		"a denial": {files{"p.cue": newImage, "d.rego": change(t, denyOld, `"runner:1"`, `"runner:2"`)}, nil, []string{
			"20 8/4 []",
		}},
		"a cluster that is not the base": {files{"p.cue": newImage}, func(pools map[string]*v1alpha1.RunnerPool) {
			pools["ci/linux"].Spec.StopPolicy, pools["ci/linux"].Spec.Scale.Max = v1alpha1.StopDrain, nil
		}, []string{"20 8/4 [spec.stopPolicy spec.scale.max]", "4 runners have no job and will be replaced. 8 runners are busy: each finishes its job."}},
		"a pool that the cluster hasn't": {files{"p.cue": newImage}, func(pools map[string]*v1alpha1.RunnerPool) { clear(pools) }, []string{"absent"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := Input{Base: sideOf(t, "base", files{"p.cue": linux}), Head: sideOf(t, "head", tt.head)}
			in.Live = running(t, in.Base)
			if tt.live != nil {
				tt.live(in.Live)
			}
			l := compareInput(t, in).Pools[0].Live
			got := []string{"absent"}
			if !l.Absent {
				got = append([]string{fmt.Sprintf("%d %d/%d %v", *l.Jobs, l.Runners.Busy, l.Runners.Idle, l.Differs)}, l.Effects...)
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheNamespaceThatWasAskedIsTold(t *testing.T) {
	for _, namespace := range []string{"ci", ""} {
		base := sideOf(t, "base", files{"p.cue": linux})
		for i := range base.Objects {
			base.Objects[i].Manifest.SetNamespace(namespace)
		}
		in := Input{Base: base, Head: sideOf(t, "head", files{}), Live: map[string]*v1alpha1.RunnerPool{}, LiveNamespace: "mine"}
		want := &Live{Namespace: cmp.Or(namespace, "mine"), Absent: true}
		if diff := gocmp.Diff(want, compareInput(t, in).Pools[0].Live); diff != "" {
			t.Error(diff)
		}
	}
}

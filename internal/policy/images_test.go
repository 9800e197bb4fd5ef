// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// steps counts the steps of an evaluation.
type steps int

func (*steps) Enabled() bool              { return true }
func (n *steps) TraceEvent(topdown.Event) { *n++ }
func (*steps) Config() topdown.TraceConfig {
	return topdown.TraceConfig{}
}

// imagePod returns a pod with the given number of images in containers and volumes. No image is allowed.
func imagePod(images int) json.RawMessage {
	var containers, volumes []any
	for i := range images / 2 {
		name := fmt.Sprintf("ghcr.io/a%d%s", i, strings.Repeat("a", 400))
		containers = append(containers, map[string]any{"name": fmt.Sprint(i), "image": name})
		volumes = append(volumes, map[string]any{"name": fmt.Sprint(i), "image": map[string]any{"reference": name + "v"}})
	}
	text, _ := json.Marshal(map[string]any{"spec": map[string]any{"containers": containers, "volumes": volumes}}) // texts
	return text
}

// The cost of an evaluation is proportional to the number of images and to the number of patterns, not to their product
// or square.
func TestImagesAreJudgedInProportionToTheirNumber(t *testing.T) {
	p := fleetInput().Pool
	judge := func(images, patterns int, requireDigest bool) int {
		var allowed []string
		for i := range patterns {
			allowed = append(allowed, fmt.Sprintf("ghcr.io/x%d%s", i, strings.Repeat("*a", 100)))
		}
		loaded := load(t, Source{Kind: KindClusterRunnerPolicy, Name: "guard", Library: &v1alpha1.PolicyLibrary{
			Images: &v1alpha1.ImageRules{Allowed: allowed, RequireDigest: requireDigest},
		}})
		var n steps
		loaded.program.tracer = &n
		answer := NewSet(loaded).For(p).Template(t.Context(), TemplateInput{Pool: p, Pod: imagePod(images)})
		want := images
		if requireDigest {
			want *= 2
		}
		if len(answer.Denials) != want || len(answer.Failures) > 0 {
			t.Fatalf("%d denials of %d images, want %d; %v", len(answer.Denials), images, want, answer.Failures)
		}
		return int(n)
	}
	for _, requireDigest := range []bool{false, true} {
		few, many, patterns := judge(16, 8, requireDigest), judge(128, 8, requireDigest), judge(128, 64, requireDigest)
		if many > 9*few || patterns-many > 200*(64-8) {
			t.Errorf("%d steps for 16 images, %d for 128, %d with 64 patterns", few, many, patterns)
		}
	}
}

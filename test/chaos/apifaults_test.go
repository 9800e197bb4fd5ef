// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/corral-dev/corral/sim/apiproxy"
)

const (
	apiFaults  = 30
	longestAPI = 12 * time.Second
)

// written lists the resources that the controller writes.
var written = []string{"runners", "pods", "secrets", "runnerscalesets"}

// apiFault schedules a temporary fault of API requests or watches.
func (p *planner) apiFault() {
	f := apiproxy.Fault{Resource: pick(p, written), Seed: p.Uint64()}
	change := []apiproxy.Verb{pick(p, []apiproxy.Verb{apiproxy.Create, apiproxy.Patch, apiproxy.Delete})}
	switch p.IntN(8) {
	case 0:
		f.Kind, f.For, f.Resource = apiproxy.Delay, p.between(100*time.Millisecond, 2*time.Second), apiproxy.All
	case 1:
		f.Kind, f.Verbs, f.Status = apiproxy.Refuse, change, pick(p, []int{409, 429, 500, 503})
	case 2:
		f.Kind, f.Verbs = apiproxy.Refuse, change
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: f.Resource}, "x", errors.New("the permission was removed")).ErrStatus
		f.Answer = &forbidden
		if change[0] == apiproxy.Create { // any other rejection of a pod or Secret is attributed to the template
			f.Answer.Message = "exceeded quota: few"
		}
	case 3:
		f.Kind, f.Verbs, f.Times = apiproxy.LoseAnswer, change, 1+p.IntN(5)
	case 4:
		f.Kind, f.Release = apiproxy.FreezeWatch, pick(p, []apiproxy.Release{apiproxy.Deliver, apiproxy.Resume})
	case 5:
		f.Kind = apiproxy.CutWatch
	case 6:
		f.Kind = pick(p, []apiproxy.Kind{apiproxy.DuplicateEvents, apiproxy.ReorderEvents})
	case 7:
		f.Kind, f.Resource = apiproxy.Cut, ""
	}
	if p.IntN(2) == 0 && f.Kind != apiproxy.Cut {
		f.Probability = float64(1+p.IntN(9)) / 10
	}
	from, lasts, replica := p.moment(), p.between(time.Second, longestAPI), p.replica()
	if f.Kind == apiproxy.Cut {
		lasts = p.between(time.Second, longestOutage)
	}
	p.add(from, func(_ context.Context, s *storm) {
		remove := s.replicas[replica].api.Inject(f)
		s.later(min(lasts, duration-from), remove)
	}, "the API server of controller %d for %s: %s", replica, lasts, describe(f))
}

// describe returns a one-line description of a fault.
func describe(f apiproxy.Fault) string {
	text := fmt.Sprintf("%s %v %s", f.Kind, f.Verbs, f.Resource)
	if f.Answer != nil {
		text += ": " + f.Answer.Message
	}
	return fmt.Sprintf("%s, status %d, p=%.1f, for %s, at most %d, %s", text, f.Status, f.Probability, f.For, f.Times, f.Release)
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
)

func TestTimesAreNotThoseOfTheMachine(t *testing.T) {
	for _, call := range []string{`time.clock([input.now, "Local"])`, `time.weekday([input.now, "Local"])`, `time.format([input.now, "Local"])`, `corral.windows(input.now, "Local", [])`} {
		p := load(t, namespaced("package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 1, \"reason\": \"r\"} if "+call+"\n"))
		failures := NewSet(p).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()}).Failures
		if len(failures) != 1 || !strings.Contains(failures[0].Message, "Europe/Berlin") {
			t.Errorf("failures of %s are %v", call, failures)
		}
	}
}

// The messages go into the status of the pool and into each log line.
func TestMessagesOfManyRulesAreShort(t *testing.T) {
	p := load(t, namespaced(`package corral.scaling
limit contains {"field": "max", "atMost": 5, "reason": sprintf("%d", [i])} if some i in numbers.range(1, 50)
limit contains {"field": "max", "atLeast": 50, "reason": sprintf("%d", [i])} if some i in numbers.range(1, 50)
`))
	answer := NewSet(p).For(pool()).Scaling(t.Context(), ScalingInput{Pool: Pool{Namespace: "ci", Name: "linux", Scale: Scale{Max: 100}}})
	if len(answer.Failures) > 0 || answer.Scale.Max != 5 {
		t.Fatalf("%+v", answer)
	}
	for _, c := range answer.Conflicts {
		if len(c) > 1000 {
			t.Errorf("%d bytes: %s", len(c), c)
		}
	}
	long := load(t, namespaced("package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": to_number(concat(\"\", [\"a\" | some _ in numbers.range(1, 50000)])), \"reason\": input.pool.name}\n"))
	for _, f := range NewSet(long).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()}).Failures {
		if len(f.Message) > 2000 {
			t.Errorf("a message of %d bytes", len(f.Message))
		}
	}
}

// At least one function of each kind that policies cannot call.
func TestFunctionsThatPoliciesCannotCall(t *testing.T) {
	for _, name := range []string{
		"http.send", "net.lookup_ip_addr", "opa.runtime", "rand.intn", "uuid.rfc4122", "time.now_ns", "providers.aws.sign_req",
		"io.jwt.decode", "io.jwt.verify_hs256", "crypto.x509.parse_certificates", "crypto.parse_private_keys", "crypto.hmac.sha256",
	} {
		if !isForbidden(name) {
			t.Errorf("policies may call %s", name)
		}
	}
}

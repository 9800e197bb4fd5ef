// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
)

// What one call makes, or how long it takes, no deadline ends.
func TestOneCallCannotDoMuchWithLittle(t *testing.T) {
	cases := map[string]string{
		"a regular expression that looks at the rest of a text at each place": `regex.find_n(concat("", [sprintf("%v|", [i]) | some i in numbers.range(1, 200)]), concat("", ["a" | some _ in numbers.range(1, 15000)]), -1)`,
		"the same to replace":               `regex.replace(concat("", ["a" | some _ in numbers.range(1, 15000)]), concat("", ["b" | some _ in numbers.range(1, 100)]), "")`,
		"a long pattern, a long text":       `regex.match(concat("", ["b" | some _ in numbers.range(1, 4000)]), concat("", ["a" | some _ in numbers.range(1, 15000)]))`,
		"values out of a text":              `json.unmarshal(concat("", ["[{},{}]" | some _ in numbers.range(1, 20000)]))`,
		"more values":                       `yaml.unmarshal(concat("", ["- {}\n" | some _ in numbers.range(1, 20000)]))`,
		"parts of a text":                   `split(concat("", ["a" | some _ in numbers.range(1, 100000)]), "")`,
		"a long text":                       `concat("", [concat("", ["aaaaaaaaaa" | some _ in numbers.range(1, 20000)]) | some _ in numbers.range(1, 7)])`,
		"what is one in memory, many times": `json.marshal([concat("", ["aaaaaaaaaa" | some _ in numbers.range(1, 60000)]), concat("", ["aaaaaaaaaa" | some _ in numbers.range(1, 60000)])])`,
		"the same as YAML":                  `yaml.marshal(numbers.range(1, 40000))`,
		"the same by a format":              `sprintf("%v%v", [concat("", ["aaaaaaaaaa" | some _ in numbers.range(1, 60000)]), 1])`,
		"much to trim off":                  `trim(input.pool.name, concat("", ["é" | some _ in numbers.range(1, 300)]))`,
		"arrays in arrays":                  `object.subset(numbers.range(1, 5000), numbers.range(2, 5000))`,
		"counts in a pattern":               `regex.match("((a{1,30}){1,30})*b", concat("", ["a" | some _ in numbers.range(1, 5000)]))`,
		"a wide number":                     `sprintf("%9999999d", [1])`,
	}
	for name, call := range cases {
		t.Run(name, func(t *testing.T) {
			p := load(t, namespaced("package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 1, \"reason\": \"r\"} if {\n\tx := "+call+"\n\tx != input.jobs\n}\n"))
			failures := NewSet(p).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()}).Failures
			if len(failures) != 1 || failures[0].Kind != EvaluationError || !strings.Contains(failures[0].Message, "it would take too much") {
				t.Errorf("failures %v", failures)
			}
		})
	}
}

func TestTimesAreNotThoseOfTheMachine(t *testing.T) {
	for _, call := range []string{`time.clock([input.now, "Local"])`, `time.weekday([input.now, "Local"])`, `time.format([input.now, "Local"])`, `corral.windows(input.now, "Local", [])`} {
		p := load(t, namespaced("package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 1, \"reason\": \"r\"} if "+call+"\n"))
		failures := NewSet(p).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()}).Failures
		if len(failures) != 1 || !strings.Contains(failures[0].Message, "Europe/Berlin") {
			t.Errorf("failures of %s are %v", call, failures)
		}
	}
}

// They go into the status of the pool, and into each log line.
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

// One function or more of each kind that policies can't call.
func TestFunctionsThatPoliciesCannotCall(t *testing.T) {
	for _, name := range []string{
		"http.send", "net.lookup_ip_addr", "opa.runtime", "rand.intn", "uuid.rfc4122", "time.now_ns", "providers.aws.sign_req",
		"io.jwt.decode", "io.jwt.verify_hs256", "crypto.x509.parse_certificates", "crypto.parse_private_keys", "crypto.hmac.sha256",
		"bits.lsh", "graph.reachable", "graphql.parse", "array.flatten", "json.patch", "json.marshal_with_options", "json.match_schema", "json.verify_schema",
		"net.cidr_expand", "net.cidr_merge", "net.cidr_contains_matches", "regex.globs_match", "rego.parse_module", "strings.render_template", "trace",
	} {
		if !isForbidden(name) {
			t.Errorf("policies may call %s", name)
		}
	}
}

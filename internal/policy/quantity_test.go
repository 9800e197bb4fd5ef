// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

func TestQuantitiesAreCountedInThousandths(t *testing.T) {
	for text, want := range map[string]int64{
		`"0"`: 0, `"1"`: 1000, `"100m"`: 100, `"0.1"`: 100, `"1.5"`: 1500, `"2k"`: 2_000_000, `"1Ki"`: 1_024_000, `"8Gi"`: 8_589_934_592_000,
		`"1e3"`: 1_000_000, `"12E6"`: 12_000_000_000, `"1n"`: 1, `"1500u"`: 2, `"2000001n"`: 3, `2`: 2000, `0.25`: 250, `"9000000000000"`: 9_000_000_000_000_000,
	} {
		got, err := quantityOf(byGo(t, text))
		if err != nil || !thousandths(got).Equal(ast.InternedTerm(int(want))) {
			t.Errorf("%s is %v, %v, want %d", text, thousandths(got), err, want)
		}
	}
	for text, want := range map[string]string{
		`"1x"`: `"1x" is not a quantity: write it as 250m, 2 or 8Gi`, `""`: `"" is not a quantity: write it as 250m, 2 or 8Gi`,
		`"1e-2147483647"`: `"1e-2147483647" is not a quantity: write it as 250m, 2 or 8Gi`, `1e-2147483647`: `"1e-2147483647" is not a quantity: write it as 250m, 2 or 8Gi`,
		`"10E"`: `"10E" is more than can be counted`, `"100000E"`: `"100000E" is more than can be counted`, `true`: "a quantity is a string or a number, not boolean",
	} {
		if got, err := quantityOf(byGo(t, text)); err == nil || err.Error() != want {
			t.Errorf("%s is %v, %v, want the error %s", text, &got, err, want)
		}
	}
}

func TestContainersAreAddedUpAsKubernetesDoes(t *testing.T) {
	const (
		a       = `{"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m", "memory": "1Ki"}}}`
		three   = `{"resources": {"limits": {"cpu": 3}}}`
		sidecar = `{"restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}`
	)
	for spec, want := range map[string]string{
		`{}`:                                    `{}`,
		`{"containers": [{"name": "a"}]}`:       `{}`,
		`{"containers": [` + a + `,` + a + `]}`: `{"cpu": 2000, "memory": 2048000}`,
		`{"containers": [` + a + `,` + a + `], "initContainers": [` + a + `]}`:                                 `{"cpu": 2000, "memory": 2048000}`,
		`{"containers": [` + a + `], "initContainers": [` + three + `,` + a + `]}`:                             `{"cpu": 3000, "memory": 1024000}`,
		`{"containers": [` + a + `], "initContainers": [` + sidecar + `]}`:                                     `{"cpu": 2000, "memory": 1024000}`,
		`{"containers": [` + a + `], "initContainers": [` + sidecar + `,` + three + `]}`:                       `{"cpu": 4000, "memory": 1024000}`,
		`{"containers": [` + a + `], "initContainers": [` + three + `,` + sidecar + `]}`:                       `{"cpu": 3000, "memory": 1024000}`,
		`{"containers": [` + a + `], "resources": {"limits": {"cpu": "5"}, "requests": {"cpu": "6"}}}`:         `{"cpu": 5000, "memory": 1024000}`,
		`{"containers": [` + a + `], "resources": {"requests": {"cpu": "6", "memory": "1"}}}`:                  `{"cpu": 6000, "memory": 1024000}`,
		`{"containers": [` + a + `], "resources": {"limits": {"cpu": 5}}, "overhead": {"cpu": 1, "pods": 1}}`:  `{"cpu": 6000, "memory": 1024000, "pods": 1000}`,
		`{"containers": [{"resources": {"limits": {"cpu": "9P"}}}, {"resources": {"limits": {"cpu": "9P"}}}]}`: `{"cpu": 9223372036854775807}`,
		`{"containers": [{"resources": {"limits": {"cpu": "-1"}}}]}`:                                           `{"cpu": 0}`,
	} {
		total, err := podResources(ast.NewTerm(byGo(t, spec)))
		if err != nil {
			t.Fatal(err)
		}
		if got := amountsTerm(total); got.Value.Compare(byGo(t, want)) != 0 {
			t.Errorf("%s takes %v, want %s", spec, got, want)
		}
	}
}

func TestRulesMayCountQuantities(t *testing.T) {
	p := load(t, namespaced(`package corral.template
deny contains sprintf("%d", [corral.pod_resources(input.pod.spec).cpu]) if corral.pod_resources(input.pod.spec).cpu > corral.quantity("1500m")
`))
	ask := func(spec string) Template {
		return NewSet(p).For(pool()).Template(t.Context(), TemplateInput{Pool: pool(), Pod: json.RawMessage(`{"spec": ` + spec + `}`)})
	}
	if got := ask(`{"containers": [{"resources": {"limits": {"cpu": "2"}}}]}`); len(got.Denials) != 1 || got.Denials[0].Message != "2000" {
		t.Errorf("the verdict is %+v", got)
	}
	for _, spec := range []string{`{"containers": [{"resources": {"limits": {"cpu": "x"}}}]}`, `{"containers": {}}`} {
		if got := ask(spec); len(got.Failures) != 1 || got.Failures[0].Kind != EvaluationError {
			t.Errorf("the verdict of %s is %+v", spec, got)
		}
	}
}

func byGo(t testing.TB, text string) ast.Value {
	t.Helper()
	value, err := ast.ValueFromReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

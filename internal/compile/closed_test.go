// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/charts"
)

const unknownField = "bogus"

// valid are the fields that some structs need before CUE reports any other error in them.
var valid = []string{
	"", `name: "a", busy: {}, `, `name: "a", cron: {schedule: "0 7 * * *", duration: "1h"}, `, `by: "Namespace", `,
	`url: "https://github.com/acme", secretRef: name: "a", `,
}

// A CRD drops unknown fields without an error, so the schema must refuse them at any depth.
func TestNoStructOfTheSchemaTakesAnUnknownField(t *testing.T) {
	c := &compilation{cue: cuecontext.New()}
	definitions, err := c.loadSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, plural := range []string{"runnerpools", "githubconnections", "runnerpolicies", "clusterrunnerpolicies", "poolsources"} {
		text, err := charts.CRDs.ReadFile("corral/files/crds/corral.dev_" + plural + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}
		definition := definitions.LookupPath(cue.MakePath(cue.Def(crd.Spec.Names.Kind)))
		for _, object := range objectsWith(unknownField+": 1", "spec", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]) {
			if !slices.ContainsFunc(valid, func(fields string) bool {
				object := strings.Replace(object, unknownField, fields+unknownField, 1)
				return namesUnknownField(definition.Unify(c.cue.CompileString(object)).Validate())
			}) {
				t.Errorf("%s takes %s", crd.Spec.Names.Kind, object)
			}
		}
	}
}

// objectsWith returns CUE objects that set one given field: in the named field, and in each field below it that
// contains structs with known fields.
func objectsWith(field, name string, props apiextensionsv1.JSONSchemaProps) (objects []string) {
	switch {
	case props.Items != nil:
		inner := objectsWith(field, name, *props.Items.Schema)
		for i, object := range inner {
			inner[i] = fmt.Sprintf("%s: [%s]", name, strings.TrimPrefix(object, name+": "))
		}
		return inner
	case len(props.Properties) == 0 || props.XPreserveUnknownFields != nil:
		return nil
	}
	objects = []string{fmt.Sprintf("%s: {%s}", name, field)}
	for label, property := range props.Properties {
		for _, object := range objectsWith(field, label, property) {
			objects = append(objects, fmt.Sprintf("%s: {%s}", name, object))
		}
	}
	return objects
}

func namesUnknownField(err error) bool {
	return slices.ContainsFunc(errors.Errors(err), func(e errors.Error) bool {
		path := e.Path()
		format, _ := e.Msg()
		return len(path) > 0 && path[len(path)-1] == unknownField && strings.HasPrefix(format, "field not allowed")
	})
}

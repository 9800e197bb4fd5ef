// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schemagen

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// sample sets every field of v to a value that its type allows.
func sample(t *testing.T, v reflect.Value) {
	t.Helper()
	if setSpecial(v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		sample(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := cutTag(v.Type().Field(i))
			if !omitted[v.Type().Name()+"."+name] {
				sample(t, v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		sample(t, v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		sample(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(3)
	default:
		t.Fatalf("no sample for %s", v.Type())
	}
}

// setSpecial sets v if its type has special values.
func setSpecial(v reflect.Value) bool {
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse("500m")
		return true
	case *intstr.IntOrString:
		*x = intstr.FromString("http")
		return true
	case *metav1.ObjectMeta:
		x.Labels, x.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
		return true
	}
	list, ok := enums[v.Type()]
	if ok {
		v.SetString(strings.Trim(list[0], `"`))
	}
	return ok
}

func TestEveryFieldOfAPodTemplateIsAllowed(t *testing.T) {
	var template corev1.PodTemplateSpec
	sample(t, reflect.ValueOf(&template).Elem())
	data, err := json.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := podDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	ctx := cuecontext.New()
	schema := ctx.CompileString(string(definitions) + "\n#Quantity: number | string\n#TemplateMetadata: {labels?: [string]: string, annotations?: [string]: string}\n")
	checked := schema.LookupPath(cue.ParsePath("#PodTemplateSpec")).Unify(ctx.CompileBytes(data))
	if err := checked.Validate(cue.Concrete(true)); err != nil {
		t.Error(err)
	}
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Chdir("../..")
	specs, err := specDefinitions(crdDir, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := podDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"schema/specs_gen.cue": specs, "schema/pod_gen.cue": pod} {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(header+string(want), string(got)); diff != "" {
			t.Errorf("%s: make generate would change it:\n%s", name, diff)
		}
	}
}

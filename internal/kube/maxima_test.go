// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// short lists fields whose length is bounded by construction: a UUID, a hash and codes.
var short = []string{"status.diagnostics[0].code", "status.sessionID", "status.policy.templateDigest"}

// The API server rejects a status that exceeds a length limit. The object's status would then never be updated
// again.
func TestNoTextOfAStatusIsTooLongForTheAPIServer(t *testing.T) {
	for kind, obj := range map[string]kube.Object{
		"RunnerPool": &v1alpha1.RunnerPool{}, "Runner": &v1alpha1.Runner{}, "RunnerScaleSet": &v1alpha1.RunnerScaleSet{}, "PoolSource": &v1alpha1.PoolSource{},
		"GitHubConnection": &v1alpha1.GitHubConnection{}, "RunnerPolicy": &v1alpha1.RunnerPolicy{}, "ClusterRunnerPolicy": &v1alpha1.ClusterRunnerPolicy{},
	} {
		t.Run(kind, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			obj.SetName("x")
			var written []byte
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) (err error) {
					written, err = patch.Data(obj)
					return err
				},
			}).Build()
			r := &kube.Reporter{Client: cluster, Events: events.NewFakeRecorder(10)}
			attempt := r.Begin(obj)
			status := reflect.ValueOf(obj).Elem().FieldByName("Status")
			fill(status)
			wording.Texts(status.Addr().Interface(), func(text reflect.Value, _ reflect.StructField) { text.SetString(strings.Repeat("é", 20_000)) })
			obj.SetConditions(nil) // conditions are truncated where they are created
			if err := attempt.Save(t.Context()); err != nil {
				t.Fatal(err)
			}
			var object map[string]any
			if err := json.Unmarshal(written, &object); err != nil || object["status"] == nil {
				t.Fatalf("%v: %.200s", err, written)
			}
			object["apiVersion"], object["kind"], object["metadata"] = v1alpha1.GroupVersion.String(), kind, map[string]any{"name": "x", "namespace": "x"}
			for _, err := range admission.Check(object) {
				if strings.HasPrefix(err.Field, "status") && !slices.Contains(short, err.Field) && (err.Type == field.ErrorTypeTooLong || err.Type == field.ErrorTypeTooMany) {
					t.Errorf("%s: %.200s", err.Field, err.Detail)
				}
			}
		})
	}
}

// fill sets pointers, and gives slices one element.
func fill(v reflect.Value) {
	switch {
	case !v.CanSet():
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}

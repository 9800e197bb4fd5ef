// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/webhook"
)

// decoded lists the types into which GitHub's answers and events are decoded.
var decoded = []any{
	rest.Runner{}, rest.Group{}, rest.Job{}, rest.Delivery{}, poolstatus.Release{},
	scaleset.JobEvent{}, scaleset.Set{}, scaleset.Runner{}, webhook.Delivery{},
}

// maxima lists GitHub's maximum sizes in bytes, by struct and field, where they differ from the default of 256.
var maxima = map[string]int{
	"JobEvent.Repository": 140, "Repository.FullName": 140, "Delivery.Organization": 39, "Delivery.Branch": 255,
	"WorkflowJob.Branch": 255, "WorkflowJob.Name": 1024, "WorkflowJob.Workflow": 1024, "CheckRun.Name": 1024, "Delivery.Identity": 1024,
	"Job.Name": 1024, "Job.Workflow": 1024, "JobEvent.Name": 1024, "JobEvent.Workflow": 1024,
}

// cut lists the fields that Fit truncates, because they contain free text written by users.
var cut = []string{"WorkflowJob.Branch", "WorkflowJob.Name", "WorkflowJob.Workflow", "CheckRun.Name", "Job.Name", "Job.Workflow", "JobEvent.Name", "JobEvent.Workflow"}

// Fit limits every string of a decoded value to GitHub's maximum size: it refuses a longer string, or truncates it.
func TestFitLimitsEveryStringToGitHubsMaximum(t *testing.T) {
	seen := map[string]bool{}
	for _, zero := range decoded {
		root := reflect.New(reflect.TypeOf(zero))
		fill(root.Elem())
		walk(root.Elem(), "", func(name string, text reflect.Value) {
			seen[name] = true
			most := maxima[name]
			if most == 0 {
				most = 256
			}
			defer text.SetString("")
			for length, fits := range map[int]bool{most: true, most + 1: false} {
				text.SetString(strings.Repeat("x", length))
				_, err := github.Fit(root.Interface())
				isCut := err == nil && text.Len() < length
				wantCut := !fits && strings.Contains(strings.Join(cut, " ")+" ", name+" ")
				if isCut != wantCut || (err == nil) != (fits || wantCut) || text.Len() > most && err == nil {
					t.Errorf("%s of %d bytes: got error %v and %d bytes", name, length, err, text.Len())
				}
			}
		})
	}
	for name := range maxima {
		if !seen[name] {
			t.Errorf("no decoded type has the field %s", name)
		}
	}
}

// fill allocates every pointer, and gives every slice one element.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
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

// walk visits the strings of a value, with the names of their struct and field.
func walk(v reflect.Value, name string, visit func(name string, text reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
	case v.Kind() == reflect.String:
		visit(name, v)
	case v.Kind() == reflect.Pointer:
		walk(v.Elem(), name, visit)
	case v.Kind() == reflect.Slice:
		walk(v.Index(0), name, visit)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), v.Type().Name()+"."+v.Type().Field(i).Name, visit)
		}
	}
}

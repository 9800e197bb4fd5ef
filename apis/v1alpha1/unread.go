// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// Unread records the fields of a stored object that Go cannot decode, for example fields that were stored while an older
// CRD with fewer checks was installed. Decoding itself must not fail: one such object would hide all others of its kind
// from a list, in every namespace.
type Unread struct {
	// Fields that cannot be decoded, each with its problem. They have zero values in Go, so Corral must not act on the
	// object.
	Fields []string
	// Status lists the fields of the status that cannot be decoded. Corral then ignores the whole status and rewrites it.
	Status []string
}

// Unreadable returns an error if there are fields that cannot be decoded.
func (u *Unread) Unreadable() error {
	if len(u.Fields) == 0 {
		return nil
	}
	return errors.New(strings.Join(u.Fields, "\n"))
}

// LostStatus returns the fields of the status that cannot be decoded, or "".
func (u *Unread) LostStatus() string { return strings.Join(u.Status, "\n") }

// read decodes JSON into an object that embeds u. It leaves out the fields that Go cannot decode, and records them in u.
func (u *Unread) read(data []byte, into any) error {
	*u = Unread{}
	if kjson.UnmarshalCaseSensitivePreserveInts(data, into) == nil {
		return nil
	}
	content, faults, err := Sift(data, reflect.TypeOf(into).Elem())
	if err != nil {
		return err
	}
	found := Unread{}
	for _, f := range faults {
		if fields, ok := content.(map[string]any); ok && strings.HasPrefix(f, "status") {
			delete(fields, "status")
			found.Status = append(found.Status, f)
		} else {
			found.Fields = append(found.Fields, f)
		}
	}
	rest, err := json.Marshal(content)
	if err != nil {
		return err
	}
	reflect.ValueOf(into).Elem().SetZero()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(rest, into); err != nil {
		return err
	}
	*u = found
	return nil
}

// Types with the same fields but without UnmarshalJSON.
type (
	fieldsOfGitHubConnection    GitHubConnection
	fieldsOfRunnerPolicy        RunnerPolicy
	fieldsOfClusterRunnerPolicy ClusterRunnerPolicy
	fieldsOfPoolSource          PoolSource
	fieldsOfRunner              Runner
	fieldsOfRunnerPool          RunnerPool
	fieldsOfRunnerScaleSet      RunnerScaleSet
)

func (c *GitHubConnection) strict() any    { return (*fieldsOfGitHubConnection)(c) }
func (p *RunnerPolicy) strict() any        { return (*fieldsOfRunnerPolicy)(p) }
func (p *ClusterRunnerPolicy) strict() any { return (*fieldsOfClusterRunnerPolicy)(p) }
func (s *PoolSource) strict() any          { return (*fieldsOfPoolSource)(s) }
func (r *Runner) strict() any              { return (*fieldsOfRunner)(r) }
func (p *RunnerPool) strict() any          { return (*fieldsOfRunnerPool)(p) }
func (s *RunnerScaleSet) strict() any      { return (*fieldsOfRunnerScaleSet)(s) }

// UnmarshalJSON implements json.Unmarshaler.
func (c *GitHubConnection) UnmarshalJSON(data []byte) error { return c.read(data, c.strict()) }

// UnmarshalJSON implements json.Unmarshaler.
func (p *RunnerPolicy) UnmarshalJSON(data []byte) error { return p.read(data, p.strict()) }

// UnmarshalJSON implements json.Unmarshaler.
func (p *ClusterRunnerPolicy) UnmarshalJSON(data []byte) error { return p.read(data, p.strict()) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *PoolSource) UnmarshalJSON(data []byte) error { return s.read(data, s.strict()) }

// UnmarshalJSON implements json.Unmarshaler.
func (r *Runner) UnmarshalJSON(data []byte) error { return r.read(data, r.strict()) }

// UnmarshalJSON implements json.Unmarshaler.
func (p *RunnerPool) UnmarshalJSON(data []byte) error {
	err := p.read(data, p.strict())
	if refused := CheckPoolMetadata(len(p.Labels), len(p.Annotations)); refused != nil { // dropped, so that Corral does not cache, compare or sort them
		p.Labels, p.Annotations = nil, nil
		p.Fields = append(p.Fields, "metadata: "+refused.Error())
	}
	if err != nil || len(data) <= MaxPoolBytes {
		return err
	}
	var as struct{ Spec json.RawMessage }
	if err := json.Unmarshal(data, &as); err != nil {
		return err
	}
	if err := CheckPoolSize(len(as.Spec)); err != nil { // dropped, so that Corral does not cache, compare or copy it
		p.Spec, p.Fields = RunnerPoolSpec{}, append(p.Fields, "spec: "+err.Error())
	}
	return nil
}

// CheckPoolSize returns an error if the spec of a RunnerPool has too many bytes of JSON.
func CheckPoolSize(bytes int) error {
	if bytes > MaxPoolBytes {
		return fmt.Errorf("it has %d bytes, more than %d: keep scripts and configuration in the image, or in ConfigMaps, and use fewer patterns", bytes, MaxPoolBytes)
	}
	return nil
}

// CheckPoolMetadata returns an error if a RunnerPool has too many labels or annotations.
func CheckPoolMetadata(labels, annotations int) error {
	if labels > MaxPoolLabels || annotations > MaxPoolAnnotations {
		return fmt.Errorf("it has %d labels and %d annotations, but may have at most %d labels and %d annotations: remove some", labels, annotations, MaxPoolLabels, MaxPoolAnnotations)
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *RunnerScaleSet) UnmarshalJSON(data []byte) error { return s.read(data, s.strict()) }

// FromUnstructured decodes one of Corral's objects. A field that cannot be decoded is an error.
func FromUnstructured(content map[string]any, into interface{ Unreadable() error }) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, into); err != nil {
		return err
	}
	return into.Unreadable()
}

// Strict returns the value to decode into, so that a decoder rejects unknown fields and values that cannot be decoded.
func Strict(into any) any {
	if kind, ok := into.(interface{ strict() any }); ok {
		return kind.strict()
	}
	return into
}

// Sift decodes JSON and removes the fields that do not fit a Go type. faults describes the problem of each of them. Sift
// also removes quantities that would take long to parse, so decode only its result into Kubernetes types.
func Sift(data []byte, t reflect.Type) (content any, faults []string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil {
		return nil, nil, err
	}
	s := sieve{}
	if !s.takes(t, content, "") {
		content = nil
	}
	return content, s.faults, nil
}

const (
	maxFaults     = 20
	maxFaultBytes = 256
	maxValueBytes = 60
)

// sieve collects problems.
type sieve struct{ faults []string }

func (s *sieve) refuse(path, format string, args ...any) bool {
	if len(s.faults) < maxFaults {
		s.faults = append(s.faults, fmt.Sprintf("%.*s: %.*s", maxFaultBytes, strings.TrimPrefix(path, "."), maxFaultBytes, fmt.Sprintf(format, args...)))
	}
	return false
}

// takes reports whether a type accepts a value. It removes fields that the type does not accept from the value.
func (s *sieve) takes(t reflect.Type, v any, path string) bool {
	switch kind := t.Kind(); {
	case v == nil:
		return true
	case t == reflect.TypeFor[resource.Quantity]():
		return s.decodes(reflect.TypeFor[Quantity](), v, path)
	case kind == reflect.Pointer:
		return s.takes(t.Elem(), v, path)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) && path != "":
		return s.decodes(t, v, path)
	case kind == reflect.String && reflect.TypeOf(v) == reflect.TypeFor[string]():
		return true // the most common case
	case kind == reflect.Struct, kind == reflect.Map:
		return s.takesFields(t, v, path)
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return s.takesItems(t, v, path)
	}
	return s.decodes(t, v, path)
}

func (s *sieve) takesFields(t reflect.Type, v any, path string) bool {
	fields, ok := v.(map[string]any)
	if !ok {
		return s.refuse(path, "must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, at := fields[name], path+"."+name
		if t.Kind() == reflect.Map {
			ok = s.takes(t.Elem(), value, at)
		} else if of, known := fieldOf(t, name); known {
			ok = s.takes(of, value, at)
		}
		if !ok {
			delete(fields, name)
		}
	}
	return true
}

func (s *sieve) takesItems(t reflect.Type, v any, path string) bool {
	items, ok := v.([]any)
	if !ok {
		return s.refuse(path, "must be a list")
	}
	for i, value := range items {
		if !s.takes(t.Elem(), value, fmt.Sprintf("%s[%d]", path, i)) {
			items[i] = nil
		}
	}
	return true
}

// decodes reports whether a value without fields of its own can be decoded.
func (s *sieve) decodes(t reflect.Type, v any, path string) bool {
	text, err := json.Marshal(v)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface())
	}
	switch wanted := describe(t); {
	case err == nil:
		return true
	case wanted != "":
		return s.refuse(path, "must be %s, not %.*s", wanted, maxValueBytes, text)
	}
	return s.refuse(path, "%v", err)
}

// describe returns what a type accepts if Go's own error is unclear, or "".
func describe(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		return "a duration such as 90s, 10m or 24h, of less than 292 years"
	case t == reflect.TypeFor[metav1.Time]():
		return "a time such as 2026-07-01T18:00:00Z"
	case t == reflect.TypeFor[intstr.IntOrString]():
		return "a whole number of at most 2147483647, or a percentage such as 25%"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return ""
	}
	switch t.Kind() {
	case reflect.Int32:
		return "a whole number of at most 2147483647"
	case reflect.Int64:
		return "a whole number of at most 9223372036854775807"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	}
	return ""
}

// fieldOf returns the field of a struct with a JSON name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type, true
		}
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			if found, ok := fieldOf(f.Type, name); ok {
				return found, true
			}
		}
	}
	return nil, false
}

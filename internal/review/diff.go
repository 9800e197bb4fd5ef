// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// maxValue is the size in bytes of JSON to which a shown value is shortened.
	maxValue = 400
	// maxFields is the maximum number of changed fields of one object that are reported.
	maxFields = 200
	// maxDiff limits the size of a unified diff, and maxDiffed the size of one object in it, in bytes.
	maxDiff, maxDiffed = 1 << 20, 256 << 10
	// diffContext is the number of context lines around each change.
	diffContext = 3
)

// diff returns the fields in which two objects differ, in the order of their paths at the head. A field that is not
// declared has its default. If the elements of lists are objects with unique names, diff compares the elements with the
// same name, and reports a different order as one change. It compares other objects in lists by index, and a list of
// scalars as one value.
func diff(base, head *compile.Object, class func(path string) Class) []FieldChange {
	d := &differ{base: base, head: head, class: class}
	was, is := admission.WithDefaults(base.Manifest.Object), admission.WithDefaults(head.Manifest.Object)
	for _, part := range []string{"metadata", "spec"} {
		d.compare(part, part, was[part], is[part])
	}
	return d.changes
}

// differ walks two objects in parallel and collects the changed fields.
type differ struct {
	base, head *compile.Object
	class      func(path string) Class
	changes    []FieldChange
}

// compare compares two values, either of which may be nil. basePath and headPath may differ, because an element can have
// another index in the head's list.
func (d *differ) compare(basePath, headPath string, before, after any) {
	if reflect.DeepEqual(before, after) || len(d.changes) >= maxFields {
		return
	}
	if was, is, ok := both[map[string]any](before, after); ok && len(was)+len(is) > 0 {
		for _, name := range names(was, is) {
			d.compare(compile.FieldOf(basePath, name), compile.FieldOf(headPath, name), was[name], is[name])
		}
		return
	}
	if was, is, ok := both[[]any](before, after); ok && (hasStructs(was) || hasStructs(is)) {
		d.compareLists(basePath, headPath, was, is)
		return
	}
	d.note(basePath, headPath, before, after)
}

// both converts two values to a type. Either value may be nil. ok is false if a value has another type.
func both[T any](before, after any) (was, is T, ok bool) {
	was, wasT := before.(T)
	is, isT := after.(T)
	return was, is, (wasT || before == nil) && (isT || after == nil)
}

// names returns the sorted keys of two maps.
func names[T any](a, b map[string]T) []string {
	return sets.List(sets.KeySet(a).Union(sets.KeySet(b)))
}

// compareLists pairs elements by name or, if they have no names, by index. The order of named elements matters: containers
// start in that order, and a different order replaces runners.
func (d *differ) compareLists(basePath, headPath string, before, after []any) {
	was, is := namesOf(before), namesOf(after)
	if was == nil || is == nil {
		was, is = indexes(before), indexes(after)
	} else if a, b := common(was, is), common(is, was); !slices.Equal(a, b) {
		d.note(basePath, headPath, a, b)
	}
	removed := slices.DeleteFunc(slices.Clone(was), func(key any) bool { return slices.Contains(is, key) })
	for _, key := range slices.Concat(is, removed) {
		j, i := slices.Index(was, key), slices.Index(is, key)
		d.compare(compile.ElementOf(basePath, j), compile.ElementOf(headPath, i), elementAt(before, j), elementAt(after, i))
	}
}

// elementAt returns an element of a list; nil for the index -1.
func elementAt(list []any, i int) any {
	if i < 0 {
		return nil
	}
	return list[i]
}

func hasStructs(list []any) bool {
	return slices.ContainsFunc(list, func(v any) bool { _, ok := v.(map[string]any); return ok })
}

// namesOf returns the names of a list's elements; nil unless each element has a unique name.
func namesOf(list []any) []any {
	names := []any{}
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, _ := fields["name"].(string)
		if name == "" || slices.Contains(names, any(name)) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

func indexes(list []any) []any {
	all := make([]any, len(list))
	for i := range all {
		all[i] = i
	}
	return all
}

// common returns the elements of a list that the other list contains, too.
func common(list, other []any) []any {
	return slices.DeleteFunc(slices.Clone(list), func(v any) bool { return !slices.Contains(other, v) })
}

// note adds a changed field. Its path is the path at the head, or the path at the base if the head does not have the field.
func (d *differ) note(basePath, headPath string, before, after any) {
	change := FieldChange{Path: basePath}
	if before != nil {
		change.Before, change.BaseAt = shown(before), new(fieldPlace(d.base, basePath))
	}
	if after != nil {
		change.Path, change.After = headPath, shown(after)
		if !d.isRemoved(basePath, headPath) {
			change.HeadAt = new(fieldPlace(d.head, headPath))
		}
	}
	change.Class = d.class(change.Path)
	d.changes = append(d.changes, change)
}

// isRemoved reports whether the base sets a field and the head does not, so that the value at the head is a default.
func (d *differ) isRemoved(basePath, headPath string) bool {
	_, isWritten := d.head.Positions[headPath]
	_, wasWritten := d.base.Positions[basePath]
	return wasWritten && !isWritten
}

// shown returns a value as JSON. It shortens long lists and long texts.
func shown(v any) json.RawMessage {
	if text, ok := v.(string); ok {
		return encoded(wording.Truncate(text, maxValue))
	}
	data := encoded(v)
	list, _ := v.([]any)
	for n := len(list) - 1; n >= 0 && len(data) > maxValue; n-- {
		data = encoded(append(slices.Clone(list[:n]), fmt.Sprintf("… and %d more", len(list)-n)))
	}
	return data
}

func encoded(v any) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // v was decoded from JSON or YAML
	return bytes.TrimSpace(b.Bytes())
}

// ChangedObject is an object that differs between the sides. Base or Head is nil if the side does not have the object.
type ChangedObject struct {
	Name       string // KIND/NAMESPACE/NAME, for example RunnerPool/ci/linux
	Base, Head *compile.Object
}

// ChangedObjects lists the objects that differ, by name.
func ChangedObjects(base, head *Side) []ChangedObject {
	before, after := base.byName(), head.byName()
	var changed []ChangedObject
	for _, name := range names(before, after) {
		if was, is := before[name], after[name]; was == nil || is == nil || !reflect.DeepEqual(was.Manifest.Object, is.Manifest.Object) {
			changed = append(changed, ChangedObject{name, was, is})
		}
	}
	return changed
}

func (s *Side) byName() map[string]*compile.Object {
	objects := map[string]*compile.Object{}
	for i := range s.Objects {
		o := &s.Objects[i]
		objects[o.Manifest.GetKind()+"/"+wording.Qualified(o.Manifest.GetNamespace(), o.Manifest.GetName())] = o
	}
	return objects
}

// diffObjects returns a unified diff of the objects in YAML, as they are applied.
func diffObjects(base, head *Side) string {
	var b strings.Builder
	changed := ChangedObjects(base, head)
	for i, c := range changed {
		text := c.diff()
		if b.Len()+len(text) > maxDiff {
			fmt.Fprintf(&b, "# %s left out: a diff has at most %d bytes\n", wording.Count(len(changed)-i, "more object"), maxDiff)
			break
		}
		b.WriteString(text)
	}
	return b.String()
}

func (c *ChangedObject) diff() string {
	was, from := c.lines(c.Base, "base/")
	is, to := c.lines(c.Head, "head/")
	if len(strings.Join(slices.Concat(was, is), "")) > maxDiffed {
		return fmt.Sprintf("# %s differs, in more than %d bytes\n", c.Name, maxDiffed)
	}
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: was, B: is, FromFile: from, ToFile: to, Context: diffContext}) // writing to a string cannot fail
	return text
}

// lines returns the lines of the object on a side, in YAML, and its name in a diff.
func (c *ChangedObject) lines(o *compile.Object, side string) (lines []string, file string) {
	if o == nil {
		return nil, "/dev/null"
	}
	text, _ := yaml.Marshal(o.Manifest.Object) // the object was decoded from YAML or JSON
	return difflib.SplitLines(strings.TrimSuffix(string(text), "\n")), side + c.Name
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// maxValue is the size in bytes of JSON to which a shown value is shortened, and the size of a shown path.
	maxValue = 400
	// maxFields is the maximum number of changed fields of one object that are listed. All of them are classified.
	maxFields = 200
	// maxAlike is the maximum number of fields of one map or list that are listed before other fields of the same class.
	maxAlike = 10
	// maxDiff limits the size of a unified diff, and maxDiffed the size of one object in it, in bytes.
	maxDiff, maxDiffed = 1 << 20, 256 << 10
	// diffContext is the number of context lines around each change.
	diffContext = 3
)

// unlisted is the class of fields that diff leaves out of its result.
const unlisted Class = "Unlisted"

// diff compares two objects. A field that is not declared has its default. If the elements of lists are objects with unique
// names, diff compares the elements with the same name, and reports a different order as one change. It compares other
// objects in lists by index, and a list of scalars as one value.
func diff(base, head *compile.Object, class func(path string) Class) *differences {
	d := &differences{
		base: base, head: head, class: class, was: admission.WithDefaults(base.Manifest.Object), is: admission.WithDefaults(head.Manifest.Object),
		classes: sets.New[Class](), alike: map[string]int{}, kept: map[int][]difference{},
	}
	for _, part := range []string{"metadata", "spec"} {
		d.compare(part, part, d.was[part], d.is[part])
	}
	return d
}

// differences are the fields in which two objects differ. Only the fields that a report may list are kept.
type differences struct {
	base, head *compile.Object
	was, is    map[string]any // the objects with defaults
	class      func(path string) Class
	// below is a prefix that fields removes from paths.
	below string
	// total is the number of fields, and classes contains the classes of all of them.
	total   int
	classes sets.Set[Class]
	// kept contains the first fields of each rank, and alike counts fields, see rank.
	kept  map[int][]difference
	alike map[string]int
}

// difference is a field that differs.
type difference struct {
	basePath, headPath string
	before, after      any
	class              Class
}

// touches reports whether the field with a path, or a field below it, differs.
func (d *differences) touches(path string) bool {
	was, _, _ := unstructured.NestedFieldNoCopy(d.was, strings.Split(path, ".")...)
	is, _, _ := unstructured.NestedFieldNoCopy(d.is, strings.Split(path, ".")...)
	return !reflect.DeepEqual(was, is)
}

// fields returns the fields to list, in the order of their ranks and paths, and the number of the others.
func (d *differences) fields() (fields []FieldChange, more int) {
	for _, rank := range slices.Sorted(maps.Keys(d.kept)) {
		for _, f := range d.kept[rank][:min(len(d.kept[rank]), maxFields-len(fields))] {
			fields = append(fields, d.change(f))
		}
	}
	return fields, d.total - len(fields)
}

// compare compares two values, either of which may be nil. basePath and headPath may differ, because an element can have
// another index in the head's list.
func (d *differences) compare(basePath, headPath string, before, after any) {
	if reflect.DeepEqual(before, after) {
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
	d.note(difference{basePath: basePath, headPath: headPath, before: before, after: after})
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
func (d *differences) compareLists(basePath, headPath string, before, after []any) {
	was, is := namesOf(before), namesOf(after)
	isNamed := was != nil && is != nil
	if !isNamed {
		was, is = indexes(before), indexes(after)
	}
	wasAt, isAt := positions(was), positions(is)
	if a, b := common(was, isAt), common(is, wasAt); isNamed && !slices.Equal(a, b) {
		d.note(difference{basePath: basePath, headPath: headPath, before: a, after: b})
	}
	removed := slices.DeleteFunc(slices.Clone(was), func(key any) bool { _, isKept := isAt[key]; return isKept })
	for _, key := range slices.Concat(is, removed) {
		oldPath, old := elementAt(basePath, before, wasAt, key)
		newPath, now := elementAt(headPath, after, isAt, key)
		d.compare(oldPath, newPath, old, now)
	}
}

// positions returns the indexes of the elements of a list.
func positions(list []any) map[any]int {
	at := map[any]int{}
	for i, v := range list {
		at[v] = i
	}
	return at
}

// elementAt returns the path and the value of the element of a list that has a key. The index is -1 and the value nil if there
// is none.
func elementAt(path string, list []any, at map[any]int, key any) (string, any) {
	if i, ok := at[key]; ok {
		return compile.ElementOf(path, i), list[i]
	}
	return compile.ElementOf(path, -1), nil
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
		names = append(names, name)
	}
	at := positions(names)
	if _, isUnnamed := at[""]; isUnnamed || len(at) < len(list) {
		return nil
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
func common(list []any, other map[any]int) []any {
	return slices.DeleteFunc(slices.Clone(list), func(v any) bool { _, isCommon := other[v]; return !isCommon })
}

// note adds a field. It keeps at most maxFields of each rank.
func (d *differences) note(f difference) {
	f.class = d.class(f.path())
	if f.class == unlisted {
		return
	}
	d.total++
	d.classes.Insert(f.class)
	if rank := d.rank(&f); len(d.kept[rank]) < maxFields {
		d.kept[rank] = append(d.kept[rank], f)
	}
}

// path returns the path of the field at the head, or at the base if the head does not have the field.
func (f *difference) path() string {
	if f.after == nil {
		return f.basePath
	}
	return f.headPath
}

// rank returns the position of a field in a report. Far-reaching classes come first. Within a class, the fields that authors
// can add in any number come last: those after the first maxAlike of a map or list, and at the end metadata and data.
func (d *differences) rank(f *difference) int {
	rank := 3 * slices.Index(classes, f.class)
	if isWithin(f.path(), "metadata") || isWithin(f.path(), "spec.data") {
		return rank + 2
	}
	group := string(f.class) + groupOf(f.path())
	d.alike[group]++
	if d.alike[group] > maxAlike {
		return rank + 1
	}
	return rank
}

// index matches the index of an element in the path of a field.
var index = regexp.MustCompile(`\[\d+\]`)

// groupOf returns the path of the map or list that contains a field, without indexes.
func groupOf(path string) string {
	group, _, isQuoted := strings.Cut(path, `["`)
	if !isQuoted {
		group = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return index.ReplaceAllString(group, "")
}

// change converts a field for the result.
func (d *differences) change(f difference) FieldChange {
	change := FieldChange{Path: wording.Truncate(strings.TrimPrefix(f.path(), d.below), maxValue), Class: f.class}
	if f.before != nil {
		change.Before, change.BaseAt = shown(f.before), new(fieldPlace(d.base, f.basePath))
	}
	if f.after != nil {
		change.After = shown(f.after)
		if !d.isRemoved(&f) {
			change.HeadAt = new(fieldPlace(d.head, f.headPath))
		}
	}
	return change
}

// isRemoved reports whether the base sets a field and the head does not, so that the value at the head is a default.
func (d *differences) isRemoved(f *difference) bool {
	_, isWritten := d.head.Positions[f.headPath]
	_, wasWritten := d.base.Positions[f.basePath]
	return wasWritten && !isWritten
}

// shown returns a value as JSON. It shortens long values.
func shown(v any) json.RawMessage {
	if text, ok := v.(string); ok {
		return encoded(wording.Truncate(text, maxValue))
	}
	data := encoded(v)
	list, isList := v.([]any)
	switch {
	case len(data) <= maxValue:
		return data
	case !isList:
		return encoded(wording.Truncate(string(data), maxValue))
	}
	for n := range list {
		longer := encoded(append(slices.Clone(list[:n]), fmt.Sprintf("… and %d more", len(list)-n)))
		if n > 0 && len(longer) > maxValue {
			break
		}
		data = longer
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

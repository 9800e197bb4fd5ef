// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// maxDiff bounds a unified diff, and maxDiffed an object in it, in bytes.
	maxDiff, maxDiffed = 1 << 20, 256 << 10
	// diffContext is how many lines are around each change.
	diffContext = 3
)

// ChangedObject is an object that isn't the same on both sides; nil on a side without it.
type ChangedObject struct {
	Name       string // as RunnerPool/NAMESPACE/NAME
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

// diffObjects is a unified diff of the objects as they are applied, in YAML.
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
	was, is := manifest(c.Base), manifest(c.Head)
	if len(was)+len(is) > maxDiffed {
		return fmt.Sprintf("# %s differs, in more than %d bytes\n", c.Name, maxDiffed)
	}
	d := difflib.UnifiedDiff{A: difflib.SplitLines(was), B: difflib.SplitLines(is), FromFile: "base/" + c.Name, ToFile: "head/" + c.Name, Context: diffContext}
	if c.Base == nil {
		d.A, d.FromFile = nil, "/dev/null"
	}
	if c.Head == nil {
		d.B, d.ToFile = nil, "/dev/null"
	}
	text, err := difflib.GetUnifiedDiffString(d)
	if err != nil {
		return fmt.Sprintf("# %s differs: %v\n", c.Name, err)
	}
	return text
}

func manifest(o *compile.Object) string {
	if o == nil {
		return ""
	}
	text, err := yaml.Marshal(o.Manifest.Object)
	if err != nil {
		return "# " + err.Error() + "\n"
	}
	return strings.TrimSuffix(string(text), "\n")
}

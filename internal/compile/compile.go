// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package compile compiles a tree of CUE files into the objects that it declares, or into diagnostics with positions.
// Rego files in the tree become a policy.
//
// The package is pure: the same files, path and tags give the same bytes. It reads nothing outside the tree, and uses
// no network, environment or clock. CUE evaluation cannot be cancelled, and definitions can make it use any amount of
// time and memory. So compile untrusted trees with internal/worker, which runs this package in a limited child process.
package compile

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Limits of one compilation. Exceeding one of them is a diagnostic.
const (
	// MaxFiles is the maximum number of files, without the files below cue.mod.
	MaxFiles = 500
	// MaxFileBytes is the maximum size of a file.
	MaxFileBytes = 1 << 20
	// MaxTotalBytes is the maximum size of all files together.
	MaxTotalBytes = 8 << 20
	// MaxObjects is the maximum number of objects that a tree may declare.
	MaxObjects = 5000
	// MaxOutputBytes is the maximum size of the JSON of all objects together.
	MaxOutputBytes = 16 << 20
	// MaxDiagnostics is the maximum number of reported diagnostics. If there are more, another diagnostic contains the
	// number of the others.
	MaxDiagnostics = 100
)

// Options of a compilation.
type Options struct {
	// Path of the folder to compile, with slashes, relative to the root of the tree; "" and "." are the root. Every
	// package in it and below is compiled.
	Path string
	// Tags are values for fields marked @tag(NAME).
	Tags map[string]string
	// AllowEmpty accepts a tree that declares neither a pool nor a connection.
	AllowEmpty bool
	// PolicyName is the name of the RunnerPolicy for the tree's Rego files. Default: DefaultPolicyName.
	PolicyName string
	// Positions requests the positions of the objects' fields.
	Positions bool
	// Check validates an object that the schema accepts, as an API server would. Nil means no check.
	Check func(object map[string]any) field.ErrorList `json:"-"`
	// Begin is called before each package is evaluated, with its file, or its folder and a slash if it has several
	// files. If the evaluation never ends, the last call names the cause. Nil means no call.
	Begin func(place string) `json:"-"`
}

// Object is one declared object.
type Object struct {
	// Manifest is the object with the schema's defaults.
	Manifest unstructured.Unstructured `json:"manifest"`
	// File, Line and Column are the position of the declaration, as in a Diagnostic.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Path is the path of the field that declares the object, for example pools.linux.
	Path string `json:"path,omitempty"`
	// Positions holds the positions of fields by their path in the manifest, for example
	// spec.template.spec.containers[0].image. It is only set if the options request it, and not for fields that the
	// schema added; see PositionOf.
	Positions map[string]Position `json:"positions,omitempty"`
}

// Diagnostic returns a diagnostic about a field of the object, with the path relative to the object, for example
// .spec.url. Its position is the position of the field if the object has positions.
func (o *Object) Diagnostic(path, message string) v1alpha1.Diagnostic {
	at := o.PositionOf(strings.TrimPrefix(path, "."))
	return v1alpha1.Diagnostic{File: at.File, Line: v1alpha1.LineNumber(at.Line), Column: v1alpha1.LineNumber(at.Column), Path: o.Path + path, Message: message}
}

// Result of a compilation. If there are diagnostics, Objects contains only the objects that could be compiled despite
// them, and must not be applied.
type Result struct {
	// Objects are sorted by kind (connections, policies, ServiceAccounts, Roles, RoleBindings, pools), namespace and
	// name.
	Objects []Object `json:"objects,omitempty"`
	// Diagnostics are sorted by position. There are at most MaxDiagnostics, and one with the number of the others.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
}

// Format formats a diagnostic as file:line:col: path: message, and omits empty parts.
func Format(d v1alpha1.Diagnostic) string { return d.String() }

// Compile compiles every package at and below options.Path in fsys. Errors in the definitions are diagnostics in the
// result. Compile never panics.
func Compile(fsys fs.FS, options Options) (result Result) {
	defer func() {
		if r := recover(); r != nil {
			result = Result{Diagnostics: []v1alpha1.Diagnostic{{
				Message: fmt.Sprintf("the CUE evaluator crashed on these definitions, please report it: %v", r),
			}}}
		}
	}()
	tree, diagnostics := gather(fsys, options.Path)
	c := &compilation{cue: cuecontext.New(), begin: options.Begin, check: options.Check, positions: options.Positions, imports: map[string]token.Position{}}
	for _, d := range diagnostics {
		c.report(d)
	}
	if len(diagnostics) == 0 {
		c.compileTree(tree, options)
	}
	return c.result()
}

// compilation collects the results of one call of Compile.
type compilation struct {
	cue         *cue.Context
	objects     []Object
	outputBytes int
	problems    []problem
	begin       func(place string)
	check       func(object map[string]any) field.ErrorList
	// positions is true if field positions are requested; positionBytes is their size so far.
	positions     bool
	positionBytes int
	// module is the path of the current module, importable are the import paths of its folders, and files its files.
	module     string
	importable []string
	files      Files
	// imports holds the position at which each error of an import occurred first, by the key of the error.
	imports map[string]token.Position
}

func (c *compilation) compileTree(t *tree, options Options) {
	c.checkTags(t, options.Tags)
	for _, m := range t.modules {
		c.compileModule(m, options.Tags)
	}
	c.compilePolicy(t, options.PolicyName)
	c.dropDuplicates()
	c.addHooksAccounts()
	// A folder may hold only the connections that the pools of other folders use.
	isDeclared := func(o Object) bool {
		return slices.Contains([]string{"RunnerPool", "GitHubConnection"}, o.Manifest.GetKind())
	}
	if len(c.problems) == 0 && !options.AllowEmpty && !slices.ContainsFunc(c.objects, isDeclared) {
		c.report(v1alpha1.Diagnostic{Code: PoolsMissing, Message: t.poolsMissing()})
	}
}

// report adds a diagnostic that does not concern a single object.
func (c *compilation) report(d v1alpha1.Diagnostic) {
	c.problems = append(c.problems, problem{Diagnostic: short(d)})
}

// short shortens the texts of a diagnostic, because they may quote a megabyte of a definition.
func short(d v1alpha1.Diagnostic) v1alpha1.Diagnostic {
	d.File, d.Path, d.Message = shorten(d.File), shorten(d.Path), shorten(d.Message)
	return d
}

// shorten makes a text valid UTF-8, and keeps only the start and the end of a text with more than 1000 bytes.
func shorten(s string) string {
	const ends = 500
	if len(s) > 2*ends {
		s = s[:ends] + "…" + s[len(s)-ends:]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// result returns the sorted objects and diagnostics.
func (c *compilation) result() Result {
	slices.SortStableFunc(c.objects, func(a, b Object) int {
		return cmp.Or(
			cmp.Compare(applyOrder[a.Manifest.GetKind()], applyOrder[b.Manifest.GetKind()]),
			cmp.Compare(a.Manifest.GetNamespace(), b.Manifest.GetNamespace()),
			cmp.Compare(a.Manifest.GetName(), b.Manifest.GetName()))
	})
	return Result{Objects: c.objects, Diagnostics: limited(grouped(c.problems))}
}

// dropDuplicates keeps one of each object that two packages share, because a package includes the files of the same
// package in the folders above. It reports objects with the same kind, namespace and name that differ.
func (c *compilation) dropDuplicates() {
	type key struct{ kind, namespace, name string }
	first := map[key]Object{}
	var kept []Object
	for _, o := range c.objects {
		k := key{o.Manifest.GetKind(), o.Manifest.GetNamespace(), o.Manifest.GetName()}
		other, ok := first[k]
		if !ok {
			first[k] = o
			kept = append(kept, o)
			continue
		}
		if sameDeclaration(o, other) {
			continue
		}
		c.reportTwice(o, other)
		c.reportTwice(other, o)
	}
	c.objects = kept
}

func (c *compilation) reportTwice(o, other Object) {
	c.problems = append(c.problems, problem{object: o.Manifest.GetName(), rule: "twice, as in " + other.File, Diagnostic: short(o.Diagnostic("", twice(&o, &other)))})
}

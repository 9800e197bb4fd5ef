// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package compile turns a tree of CUE files into the objects they declare, or into
// diagnostics that say where and what is wrong. Rego files in it become a policy.
//
// It's pure: the same files, path and tags give the same bytes; nothing outside the
// tree is read, no network, no environment, no clock. CUE can't be cancelled and can be
// made to use any amount of time and memory, so what isn't trusted belongs into
// internal/worker, which runs this package in a limited child process.
package compile

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Bounds of one compilation. Beyond one of them there is a diagnostic.
const (
	// MaxFiles is the most files read, those below cue.mod not counted.
	MaxFiles = 500
	// MaxFileBytes is the largest file read.
	MaxFileBytes = 1 << 20
	// MaxTotalBytes is the most that is read in total.
	MaxTotalBytes = 8 << 20
	// MaxObjects is the most objects a tree may declare.
	MaxObjects = 5000
	// MaxOutputBytes bounds the JSON of all objects together.
	MaxOutputBytes = 16 << 20
	// MaxDiagnostics is how many diagnostics are reported, plus one that counts the rest.
	MaxDiagnostics = 100
)

// Options of a compilation.
type Options struct {
	// Path of the folder to compile, with slashes, relative to the root of the tree;
	// "" and "." are the root. Every package in it and below is compiled.
	Path string
	// Tags are values for fields marked @tag(NAME).
	Tags map[string]string
	// AllowEmpty accepts a tree that declares no pool.
	AllowEmpty bool
	// PolicyName names the RunnerPolicy that the tree's Rego files become. Default: DefaultPolicyName.
	PolicyName string
	// Positions asks for where each field is written, too.
	Positions bool
	// Check says what else is wrong with an object that the schema takes: what an API server would refuse. Nil asks nobody.
	Check func(object map[string]any) field.ErrorList
	// Begin is told of each package before it is evaluated, by its file, or its folder and a
	// slash if there are several; nil tells nobody. Should the evaluation never end, it was there.
	Begin func(place string)
}

// Object is one declared object.
type Object struct {
	// Manifest is the object with the schema's defaults filled in.
	Manifest unstructured.Unstructured `json:"manifest"`
	// File, Line and Column say where it's declared, as in a Diagnostic.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Path of the field that declares it, as pools.linux.
	Path string `json:"path,omitempty"`
	// Positions say where fields are written, by their path in the manifest, as spec.template.spec.containers[0].image. They are there
	// if the options ask for them, and not of fields that the schema filled in; see PositionOf.
	Positions map[string]Position `json:"positions,omitempty"`
}

// Diagnostic reports a problem of a field of the object, by its path from there, as
// .spec.url. Its place is where the field is written if the object has positions.
func (o *Object) Diagnostic(path, message string) v1alpha1.Diagnostic {
	at := o.PositionOf(strings.TrimPrefix(path, "."))
	return v1alpha1.Diagnostic{File: at.File, Line: at.Line, Column: at.Column, Path: o.Path + path, Message: message}
}

// Result of a compilation. With any diagnostic, Objects holds what could be compiled
// nevertheless, and must not be applied.
type Result struct {
	// Objects sorted by kind (connections, policies, what pools need, pools), namespace and name.
	Objects []Object `json:"objects,omitempty"`
	// Diagnostics sorted by position, at most MaxDiagnostics and a count of the rest.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
}

// Format writes a diagnostic as file:line:col: path: message, without the parts it lacks.
func Format(d v1alpha1.Diagnostic) string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.File)
		if d.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
		}
		b.WriteString(": ")
	}
	if d.Path != "" {
		b.WriteString(d.Path + ": ")
	}
	b.WriteString(d.Message)
	return b.String()
}

// Compile compiles every package at and below options.Path in fsys. What is wrong with
// the definitions is in the result's diagnostics; it never panics.
func Compile(fsys fs.FS, options Options) (result Result) {
	defer func() {
		if r := recover(); r != nil {
			result = Result{Diagnostics: []v1alpha1.Diagnostic{{
				Message: fmt.Sprintf("the CUE evaluator crashed on these definitions, please report it: %v", r),
			}}}
		}
	}()
	tree, diagnostics := gather(fsys, options.Path)
	c := &compilation{cue: cuecontext.New(), begin: options.Begin, check: options.Check, positions: options.Positions}
	for _, d := range diagnostics {
		c.report(d)
	}
	if len(diagnostics) == 0 {
		c.compileTree(tree, options)
	}
	return c.result()
}

// compilation collects what one call of Compile finds.
type compilation struct {
	cue         *cue.Context
	objects     []Object
	outputBytes int
	problems    []problem
	begin       func(place string)
	check       func(object map[string]any) field.ErrorList
	// positions is true when fields' places are asked for; positionBytes is what they take.
	positions     bool
	positionBytes int
}

func (c *compilation) compileTree(t *tree, options Options) {
	c.checkTags(t, options.Tags)
	for _, m := range t.modules {
		c.compileModule(m, options.Tags)
	}
	c.compilePolicy(t, options.PolicyName)
	c.dropDuplicates()
	c.addHooksAccounts()
	isPool := func(o Object) bool { return o.Manifest.GetKind() == "RunnerPool" }
	if len(c.problems) == 0 && !options.AllowEmpty && !slices.ContainsFunc(c.objects, isPool) {
		c.report(v1alpha1.Diagnostic{Code: PoolsMissing, Message: fmt.Sprintf(
			"no pools found in %s: declare at least one RunnerPool, as `pools: schema.#Pools & {NAME: spec: …}`", t.path)})
	}
}

// report adds a diagnostic that is about no object.
func (c *compilation) report(d v1alpha1.Diagnostic) {
	c.problems = append(c.problems, problem{Diagnostic: short(d)})
}

// short shortens what a diagnostic quotes: a definition may hold a megabyte of it.
func short(d v1alpha1.Diagnostic) v1alpha1.Diagnostic {
	d.File, d.Path, d.Message = shorten(d.File), shorten(d.Path), shorten(d.Message)
	return d
}

// shorten makes a text valid, and keeps the start and the end of one of more than a kilobyte.
func shorten(s string) string {
	const ends = 500
	if len(s) > 2*ends {
		s = s[:ends] + "…" + s[len(s)-ends:]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// result sorts what was found.
func (c *compilation) result() Result {
	slices.SortStableFunc(c.objects, func(a, b Object) int {
		return cmp.Or(
			cmp.Compare(applyOrder[a.Manifest.GetKind()], applyOrder[b.Manifest.GetKind()]),
			cmp.Compare(a.Manifest.GetNamespace(), b.Manifest.GetNamespace()),
			cmp.Compare(a.Manifest.GetName(), b.Manifest.GetName()))
	})
	return Result{Objects: c.objects, Diagnostics: limited(grouped(c.problems))}
}

// dropDuplicates keeps one of each object that two packages share, because a package
// includes the files of the same package in the folders above, and reports objects of
// one kind, namespace and name that differ.
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
	c.report(o.Diagnostic("", twice(&o, &other)))
}

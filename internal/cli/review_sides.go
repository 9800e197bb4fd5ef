// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// pricesFile is the name of the price file in a folder.
	pricesFile = "prices.yaml"
	// workTree is the name of the head in the review if --head is not set.
	workTree = "the work tree"
)

// namedTree is the tree of one side, with the name of the side in the review.
type namedTree struct {
	tree
	name string
	// absent is true if the revision does not contain the folder.
	absent bool
	// refusal is the reason why the tree cannot be compared, for example that the controller could not read it; empty if it
	// can.
	refusal string
	// notes on files that are not compared.
	notes []string
}

// sides reads and compiles both sides concurrently. It returns notes on files that are not compared.
func (o *reviewOptions) sides(ctx context.Context, args []string, in *review.Input) (notes []string, err error) {
	base, head, err := o.trees(ctx, args)
	if err != nil {
		return nil, err
	}
	var results [2]compiled
	var covering [2]*declaredSource
	var sources [2][]*declaredSource
	covering[0], sources[0] = base.sourcesAround()
	covering[1], sources[1] = head.sourcesAround()
	group, groupCtx := errgroup.WithContext(ctx)
	for i, t := range []namedTree{base, head} {
		group.Go(func() (err error) {
			set := o.definitions.tags
			if s := cmp.Or(covering[i], covering[1-i]); s != nil { // a new source does not appear to change pools
				set = o.definitions.tagsOver(s)
			}
			results[i], err = t.compile(groupCtx, set)
			return err
		})
	}
	err = group.Wait()
	// A single source without tags does not affect the comparison, because all pools are then in the same namespace.
	in.ManySources = o.policies.namespace == "" && max(len(sources[0]), len(sources[1])) > 1
	areTagged := slices.ContainsFunc(slices.Concat(sources[0], sources[1]), (*declaredSource).isTagged)
	if err == nil && (in.ManySources || areTagged && o.policies.namespace == "") {
		err = assignSides(ctx, sources, o.definitions.tags, &results)
	}
	if err != nil {
		return nil, err
	}
	before := namespacesOf(results[0].Objects)
	if len(before) < 2 && !in.ManySources { // objects without a namespace belong to the namespace of the pools
		o.policies.namespace = cmp.Or(o.policies.namespace, slices.Concat(before, namespacesOf(results[1].Objects), []string{""})[0])
	}
	unpriced, err := o.side(ctx, base, results[0], &in.Base)
	if err != nil {
		return nil, err
	}
	notes = append(slices.Concat(head.notes, sourceNotes(covering, sources)), converted(unpriced, func(d v1alpha1.Diagnostic) string { return "The base's costs aren't known: " + compile.Format(d) })...)
	unpriced, err = o.side(ctx, head, results[1], &in.Head)
	in.Head.Diagnostics = append(in.Head.Diagnostics, unpriced...)
	return notes, err
}

// sourcesAround returns the PoolSource that applies the reviewed folder itself or a folder above it, or else the PoolSources
// that apply folders below.
func (t namedTree) sourcesAround() (covering *declaredSource, below []*declaredSource) {
	if t.absent || t.refusal != "" {
		return nil, nil
	}
	sources, _ := t.sources()
	covering = coveringSource(sources, t.path)
	if covering != nil {
		return covering, nil
	}
	return nil, slices.DeleteFunc(sources, func(s *declaredSource) bool { return !isWithin(t.path, s.folder) })
}

// sourceNotes returns notes on PoolSources that the base has and the head does not, and on tags that differ. The tags select
// what is reviewed, and the cluster may have the source from elsewhere, with other tags. covering and below are the results of
// sourcesAround for the base and the head.
func sourceNotes(covering [2]*declaredSource, below [2][]*declaredSource) (notes []string) {
	for i, s := range covering {
		if s != nil {
			below[i] = []*declaredSource{s}
		}
	}
	base, head, before := below[0], below[1], map[string]*declaredSource{}
	for _, s := range base {
		before[s.name()] = s
		if !slices.ContainsFunc(head, func(o *declaredSource) bool { return o.name() == s.name() }) {
			notes = append(notes, fmt.Sprintf("The head declares no %s for a folder of this repository. Its spec.deletionPolicy decides what happens to its pools.", s.name()))
		}
	}
	for _, s := range head {
		if other := otherTags(cmp.Or(before[s.name()], &declaredSource{}).Spec.Tags, s.Spec.Tags); len(other) > 0 {
			notes = append(notes, fmt.Sprintf("The head changes tags of %s: %s. Definitions that need other tags are not reviewed.", s.name(), wording.List(other, maxTagsNamed)))
		}
	}
	return notes
}

// otherTags returns the tags of the head that differ from those of the base.
func otherTags(base, head map[string]string) (other []string) {
	for _, name := range slices.Sorted(maps.Keys(head)) {
		if value, isSet := base[name]; !isSet || value != head[name] {
			other = append(other, fmt.Sprintf("%.60s=%.60s", name, head[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if _, isSet := head[name]; !isSet {
			other = append(other, fmt.Sprintf("%.60s is not set", name))
		}
	}
	return other
}

// maxTagsNamed is the maximum number of tags that a note names.
const maxTagsNamed = 3

// assignSides sets the namespaces of the objects of both sides to the namespaces of their PoolSources. If a side has no
// source for a folder, assignSides uses the source of the other side, so that a new source does not appear to move pools.
// The head gets a diagnostic for each object that the head's own source refuses, and each side for a folder that does not
// compile with the tags of its own source.
func assignSides(ctx context.Context, sources [2][]*declaredSource, set tags, results *[2]compiled) error {
	for i := range results {
		if len(results[i].Diagnostics) > 0 {
			continue
		}
		for _, from := range []int{i, 1 - i} {
			kept := results[i].Diagnostics
			d := definitions{sources: sources[from], tags: set}
			if from != i {
				d.sources = untouchedBy(sources[i], d.sources)
			}
			if err := d.assign(ctx, &results[i]); err != nil {
				return err
			}
			if i == 0 || from == 0 {
				results[i].Diagnostics = kept
			}
			if i == 0 && from == 0 {
				results[i].Diagnostics = slices.Concat(kept, d.badTags)
			}
		}
	}
	return nil
}

// untouchedBy returns the sources of the other side without those that have tags and apply a folder that one of a side's own
// sources applies, because the side's objects are then compiled as that source does.
func untouchedBy(own, other []*declaredSource) []*declaredSource {
	return slices.DeleteFunc(slices.Clone(other), func(s *declaredSource) bool {
		return s.isTagged() && slices.ContainsFunc(own, func(o *declaredSource) bool { return isWithin(s.folder, o.folder) || isWithin(o.folder, s.folder) })
	})
}

// compile compiles the tree. For a refused tree, it returns a diagnostic with the reason, and for an absent tree an empty
// result.
func (t namedTree) compile(ctx context.Context, set tags) (compiled, error) {
	switch {
	case t.refusal != "":
		return compiled{Result: compile.Result{Diagnostics: []v1alpha1.Diagnostic{{Message: t.refusal}}}}, nil
	case t.absent:
		return compiled{tree: t.tree}, nil
	}
	return compileTree(ctx, t.tree, compile.Options{Tags: set, AllowEmpty: true, Positions: true})
}

// trees opens the trees to compare: two folders, two revisions of a folder, or a revision and the work tree. If only the
// base does not contain the folder, the base is refused.
func (o *reviewOptions) trees(ctx context.Context, args []string) (base, head namedTree, err error) {
	if len(args) == 2 {
		base, err = wholeTree(args[0], args[0])
		head, headErr := wholeTree(args[1], args[1])
		return base, head, cmp.Or(err, headErr)
	}
	folder := folderOf(args)
	if base, err = revisionTree(ctx, folder, cmp.Or(o.base, "HEAD")); err != nil {
		return base, head, err
	}
	if o.head == "" {
		head, err = committedTree(folder)
	} else if head, err = revisionTree(ctx, folder, o.head); errors.Is(err, gitsource.ErrTooLarge) || errors.Is(err, gitsource.ErrUnusable) {
		head.name, head.refusal = o.head, err.Error()
		err = nil
	}
	switch {
	case base.absent && head.absent:
		err = fmt.Errorf("there is no folder %s, neither at %s nor at %s", folder, base.name, head.name)
	case base.absent:
		base.refusal = fmt.Sprintf("there is no folder %s at %s", folder, base.name)
	}
	return base, head, err
}

// folderOf returns the argument DIR, or the current folder.
func folderOf(args []string) string { return slices.Concat(args, []string{"."})[0] }

// wholeTree opens a folder. The tree is refused if a sparse checkout leaves out some of its files.
func wholeTree(folder, name string) (namedTree, error) {
	opened, err := openTree(folder)
	t := namedTree{tree: opened, name: filepath.ToSlash(name)}
	if err != nil {
		return t, err
	}
	if err := t.checkWhole(); err != nil {
		t.refusal = err.Error()
	}
	return t, nil
}

// committedTree opens the work tree of a folder as a source would read it.
func committedTree(folder string) (namedTree, error) {
	t, err := wholeTree(folder, workTree)
	if err != nil {
		return t, err
	}
	c, err := t.asCommitted()
	t.fsys, t.notes = c, c.notes(t.root)
	if err != nil {
		t.notes = append(t.notes, unknownToGit+err.Error())
	}
	return t, nil
}

// revisionTree reads a folder of a revision. Its files have the names that they would have in the work tree.
func revisionTree(ctx context.Context, folder, name string) (namedTree, error) {
	r, err := gitsource.ReadRevision(ctx, folder, name, gitsource.Limits{})
	if err != nil {
		return namedTree{}, fmt.Errorf("reading revision %s: %w", name, err)
	}
	shown := r.Commit[:min(8, len(r.Commit))]
	if name != r.Commit {
		shown = name + " (" + shown + ")"
	}
	return namedTree{tree: tree{r.FS, filepath.Join(r.Top, filepath.FromSlash(r.Module)), r.Path}, name: shown, absent: r.Absent}, nil
}

// side fills in one side of the review, with its policies and prices. It returns the diagnostics of the price file.
func (o *reviewOptions) side(ctx context.Context, t namedTree, result compiled, side *review.Side) (unpriced []v1alpha1.Diagnostic, err error) {
	side.Name, side.Diagnostics = t.name, result.Diagnostics
	w, err := newWorkspace(result, o.policies)
	if err != nil || len(result.Diagnostics) > 0 {
		return nil, err
	}
	policies, err := policiesAmong(w.Objects, w.root, w.options.namespace)
	if err == nil && len(policies) == 0 && !t.absent {
		policies, side.Diagnostics, err = policiesAbove(ctx, t.tree, w.options.namespace)
	}
	if err != nil || len(side.Diagnostics) > 0 {
		return nil, err
	}
	err = w.loadPolicies(ctx, policies)
	side.Objects, side.Diagnostics = w.Objects, w.Diagnostics
	if err != nil || len(side.Diagnostics) > 0 {
		return nil, err
	}
	side.Policies = converted(w.deciding(), func(p *declaredPolicy) review.Policy {
		return review.Policy{Policy: p.loaded, At: p.origin, Locate: p.locate}
	})
	side.Prices, unpriced, err = o.readPrices(t)
	side.Unpriced = len(unpriced) > 0
	return unpriced, err
}

// policiesAbove returns the policies of the closest folder with the name policies in a folder above the definitions, up to
// the top of the module. It skips such folders if they contain CUE files.
func policiesAbove(ctx context.Context, t tree, namespace string) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	for folder := path.Clean(t.path); folder != "." && folder != "/"; {
		folder = path.Dir(folder)
		candidate := path.Join(folder, "policies")
		if definitions, err := fs.Glob(t.fsys, candidate+"/*.cue"); err != nil || len(definitions) > 0 {
			continue
		}
		policies, diagnostics, err := policiesOfFolder(ctx, t, candidate, namespace)
		if err != nil || len(policies)+len(diagnostics) > 0 {
			return policies, diagnostics, err
		}
	}
	return nil, nil, nil
}

// policiesOfFolder returns the policy that is created from the Rego files in a folder of a tree.
func policiesOfFolder(ctx context.Context, t tree, folder, namespace string) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	if info, err := fs.Stat(t.fsys, folder); err != nil || !info.IsDir() {
		return nil, nil, nil //nolint:nilerr // the folder does not exist
	}
	files, diagnostics := compile.Gather(t.fsys, folder)
	if len(diagnostics) > 0 {
		return nil, diagnostics, nil
	}
	maps.DeleteFunc(files, func(name string, _ []byte) bool {
		return folder != "." && !strings.HasPrefix(name, folder+"/") || path.Ext(name) != ".rego" && !compile.IsPolicyData(name)
	})
	if len(files) == 0 {
		return nil, nil, nil
	}
	return compileRego(ctx, files, t.root, namespace, "")
}

// readPrices reads the price file of --prices or, without the flag, the price file of the definitions.
func (o *reviewOptions) readPrices(t namedTree) (*review.Prices, []v1alpha1.Diagnostic, error) {
	if o.prices != "" {
		file, err := os.Open(o.prices)
		return pricesIn(file, err, filepath.ToSlash(o.prices))
	}
	return t.prices()
}

// prices reads the closest price file in the folder of the definitions or above it. It returns nil if there is none.
func (t namedTree) prices() (*review.Prices, []v1alpha1.Diagnostic, error) {
	for folder := path.Clean(t.path); !t.absent; folder = path.Dir(folder) {
		// Report links and price files with other names, which are not read.
		for _, other := range [][2]string{{pricesFile, compile.Link}, {"prices.json", otherPrices}, {"prices.yml", otherPrices}} {
			name := path.Join(folder, other[0])
			if info, err := fs.Lstat(t.fsys, name); err == nil && (other[0] != pricesFile || info.Mode()&fs.ModeSymlink != 0) {
				return nil, []v1alpha1.Diagnostic{{File: displayPath(t.root, name), Message: other[1]}}, nil
			}
		}
		name := path.Join(folder, pricesFile)
		if file, err := t.fsys.Open(name); !errors.Is(err, fs.ErrNotExist) {
			return pricesIn(file, err, displayPath(t.root, name))
		}
		if folder == "." || folder == "/" {
			break
		}
	}
	return nil, nil, nil
}

// otherPrices is the diagnostic for a price file with another name.
const otherPrices = "only " + pricesFile + " is read; rename it, or remove it"

// pricesIn reads an open price file. err is the error of opening the file.
func pricesIn(file fs.File, err error, name string) (*review.Prices, []v1alpha1.Diagnostic, error) {
	var data []byte
	if err == nil {
		defer file.Close()
		data, err = io.ReadAll(io.LimitReader(file, review.MaxPriceBytes+1))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading prices: %w", err)
	}
	prices, diagnostics := review.ReadPrices(name, data)
	return prices, diagnostics, nil
}

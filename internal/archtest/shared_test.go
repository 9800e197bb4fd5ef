// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sharedTypes are types with which goroutines share resources: locks, limits, queues and caches. An empty list stands
// for all types of a package.
var sharedTypes = map[string][]string{
	"sync":                            {"Mutex", "RWMutex", "Map", "Pool", "Cond"},
	"golang.org/x/sync/singleflight":  {"Group"},
	"golang.org/x/sync/semaphore":     {"Weighted"},
	"golang.org/x/time/rate":          {"Limiter"},
	"k8s.io/client-go/util/workqueue": {},
	module + "internal/share":         {"Map", "Bytes"},
	module + "internal/turns":         {"Limiter", "queue"},
}

// sharing finds the shared resources of one package.
type sharing struct {
	name     string            // the package's path in the module
	imported map[string]string // paths by name, in the current file
	buffered map[string]bool   // fields and variables that are set to a buffered channel
	found    []string
}

// sharedIn returns the shared fields and package variables in a package's source, as package.Type.field or
// package.variable.
func sharedIn(name string, files []*ast.File) []string {
	s := &sharing{name: name, buffered: map[string]bool{}}
	for _, file := range files {
		ast.Inspect(file, s.noteBuffers)
	}
	for _, file := range files {
		s.imported = map[string]string{}
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			local := filepath.Base(path)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			s.imported[local] = path
		}
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok {
				s.declaration(d)
			}
		}
	}
	slices.Sort(s.found)
	return slices.Compact(s.found)
}

// noteBuffers records the targets of buffered channels: a field of a literal, an assigned expression, or a variable.
func (s *sharing) noteBuffers(n ast.Node) bool {
	note := func(to, value ast.Expr) {
		call, ok := value.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return
		}
		if _, isChannel := call.Args[0].(*ast.ChanType); !isChannel {
			return
		}
		switch to := to.(type) {
		case *ast.Ident:
			s.buffered[to.Name] = true
		case *ast.SelectorExpr:
			s.buffered[to.Sel.Name] = true
		}
	}
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		note(n.Key, n.Value)
	case *ast.AssignStmt:
		for i := range min(len(n.Lhs), len(n.Rhs)) {
			note(n.Lhs[i], n.Rhs[i])
		}
	case *ast.ValueSpec:
		for i := range min(len(n.Names), len(n.Values)) {
			note(n.Names[i], n.Values[i])
		}
	}
	return true
}

func (s *sharing) declaration(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			ast.Inspect(spec.Type, func(n ast.Node) bool {
				if inner, ok := n.(*ast.StructType); ok {
					s.fields(spec.Name.Name, inner)
				}
				return true
			})
		case *ast.ValueSpec:
			for i, name := range spec.Names {
				shares := spec.Type != nil && s.shares(name.Name, spec.Type)
				if i < len(spec.Values) {
					shares = shares || s.holds(name.Name, spec.Values[i])
				}
				if shares {
					s.found = append(s.found, s.name+"."+name.Name)
				}
			}
		}
	}
}

// fields adds the shared fields of a struct, including structs within it.
func (s *sharing) fields(of string, inner *ast.StructType) {
	for _, field := range inner.Fields.List {
		names := field.Names
		if len(names) == 0 { // embedded
			if at, ok := field.Type.(*ast.SelectorExpr); ok {
				names = []*ast.Ident{at.Sel}
			}
		}
		for _, name := range names {
			if s.shares(name.Name, field.Type) {
				s.found = append(s.found, s.name+"."+of+"."+name.Name)
			}
		}
	}
}

// shares reports whether a value of a type is shared: the type is one of sharedTypes, a buffered channel, or has one as
// its element.
func (s *sharing) shares(name string, t ast.Expr) (shares bool) {
	ast.Inspect(t, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType, *ast.FuncType, *ast.InterfaceType:
			return false
		case *ast.ChanType:
			shares = shares || s.buffered[name]
		case *ast.SelectorExpr:
			shares = shares || s.isShared(n)
		}
		return true
	})
	return shares
}

// holds does the same for the initial value of a variable without a type.
func (s *sharing) holds(name string, value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CompositeLit:
		return v.Type != nil && s.shares(name, v.Type)
	case *ast.UnaryExpr:
		return s.holds(name, v.X)
	case *ast.CallExpr: // a constructor of the package, such as share.New, or make
		if of, ok := v.Fun.(*ast.IndexListExpr); ok {
			return s.holds(name, &ast.CallExpr{Fun: of.X})
		}
		if of, ok := v.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(of.Sel.Name, "New") {
			local, ok := of.X.(*ast.Ident)
			return ok && sharedTypes[s.imported[local.Name]] != nil
		}
		return s.buffered[name] && len(v.Args) == 2
	}
	return false
}

// isShared reports whether a name in the current file is one of sharedTypes.
func (s *sharing) isShared(n *ast.SelectorExpr) bool {
	of, ok := n.X.(*ast.Ident)
	if !ok {
		return false
	}
	types, known := sharedTypes[s.imported[of.Name]]
	return known && (len(types) == 0 || slices.Contains(types, n.Sel.Name))
}

// sharedThings returns everything that the controller's goroutines share. It excludes the command line, which has one
// user.
func sharedThings(t *testing.T) (all []string) {
	t.Helper()
	for _, pkg := range deps(t, "cmd/corral") {
		folder, ours := strings.CutPrefix(pkg, module)
		inLayer := func(l Layer) bool {
			return slices.ContainsFunc(l.Packages, func(p string) bool { return strings.HasPrefix(folder+"/", p+"/") })
		}
		if !ours || inLayer(Commands) {
			continue
		}
		names, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		all = append(all, sharedIn(folder, files)...)
	}
	return all
}

// architecture is the page with the table of resources that tenants share.
const architecture = "../../docs/architecture.md"

// tables returns the rows of the tables in a section of the page, by the first cell of their headings.
func tables(t *testing.T) map[string][][]string {
	t.Helper()
	page, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What tenants share\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all, head := map[string][][]string{}, ""
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			head = ""
		case head == "":
			head = cells[0] + ", " + cells[1]
		case strings.Trim(cells[0], "-") != "":
			all[head] = append(all[head], cells)
		}
	}
	return all
}

var goName = regexp.MustCompile("`((?:controllers|internal)[\\w/]*\\.[\\w.]+)`")

// Each shared resource is in the page's table, or in its list of resources that do not depend on a tenant's size. The
// page lists no resource that no longer exists.
func TestWhatTenantsShareIsInTheTable(t *testing.T) {
	rows, listed := tables(t), map[string]bool{}
	list := func(cell string) {
		names := goName.FindAllStringSubmatch(cell, -1)
		if len(names) == 0 {
			t.Errorf("%q names nothing", cell)
		}
		for _, name := range names {
			if listed[name[1]] {
				t.Errorf("%s is listed twice", name[1])
			}
			listed[name[1]] = true
		}
	}
	isRow := func(shared string) bool {
		return slices.ContainsFunc(rows["shared, bound for one namespace"], func(row []string) bool { return row[0] == shared })
	}
	for _, row := range rows["shared, in Go"] {
		if !isRow(row[0]) {
			t.Errorf("the table has no row %q", row[0])
		}
		list(row[1])
	}
	for _, row := range rows["in Go, why"] {
		if list(row[0]); row[1] == "" {
			t.Errorf("nothing says why no tenant's size matters for %s", row[0])
		}
	}
	for _, name := range sharedThings(t) {
		if !listed[name] {
			t.Errorf("%s is shared, and docs/architecture.md does not say how tenants share it: add it to the table, or to the list of what no tenant's size matters for", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("docs/architecture.md names %s, which is not there", name)
	}
}

// Each test that the table names exists.
func TestTheTableOfWhatTenantsShareNamesTests(t *testing.T) {
	there := map[string]bool{}
	for _, pattern := range []string{"../../*/*_test.go", "../../*/*/*_test.go", "../../*/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok {
					there["`"+f.Name.Name+"`"] = true
				}
			}
		}
	}
	for _, row := range tables(t)["shared, bound for one namespace"] {
		for name := range strings.SplitSeq(row[len(row)-1], ", ") {
			if !there[name] {
				t.Errorf("%s: there is no test %s", row[0], name)
			}
		}
	}
}

// The analysis finds each kind of shared resource, wherever it is declared, and nothing that a single goroutine uses.
func TestTheLookForWhatIsSharedFindsIt(t *testing.T) {
	const source = `package p

import (
	"sync"
	turn "` + module + `internal/turns"
	"` + module + `internal/share"
	"golang.org/x/sync/semaphore"
)

var (
	lock   sync.Mutex
	table  = share.New[string, int](3, nil)
	queue  = make(chan int, 3)
	signal = make(chan int)
	pool   = sync.Pool{New: func() any { return nil }}
	once   sync.Once
)

type a struct {
	sync.RWMutex
	inner struct{ mu sync.Mutex }
	by    map[string]*turn.Limiter
	few   []*semaphore.Weighted
	ahead, never chan int
	call  func(*sync.Mutex)
	n     int
}

func newA() *a { return &a{ahead: make(chan int, 1), never: make(chan int)} }
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"p.a.RWMutex", "p.a.ahead", "p.a.by", "p.a.few", "p.a.mu", "p.lock", "p.pool", "p.queue", "p.table"}
	if got := sharedIn("p", []*ast.File{file}); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

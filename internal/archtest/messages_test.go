// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/corral-dev/corral/internal/catalog"
)

// matchers are functions that search in a text: functions of the standard library, and methods of regular expressions.
var matchers = []string{
	"strings.Contains", "strings.HasPrefix", "strings.HasSuffix", "strings.Cut", "strings.CutPrefix", "strings.CutSuffix", "strings.EqualFold", "strings.Index",
	"strings.TrimPrefix", "strings.TrimSuffix", "FindStringSubmatch", "FindString", "FindAllString", "MatchString", "ReplaceAllString",
}

// foreign lists matches of messages that other programs or users wrote, by file and expression, with their author.
var foreign = map[string]string{
	"controllers/sources/flux_watch.go: conditions.GetMessage(before, meta.ReadyCondition) != conditions.GetMessage(now, meta.ReadyCondition)": "Flux",
	"internal/cli/expect.go: strings.Contains(v.Message, want.Message)":                                                                        "the policies and tests of users",
	"internal/policy/compile.go: strings.Contains(e.Message, answers)":                                                                         "OPA",
	`internal/policy/diagnose.go: strings.HasPrefix(message, "undefined function ")`:                                                           "OPA",
	`internal/policy/diagnose.go: strings.TrimPrefix(message, "undefined function ")`:                                                          "OPA",
	`internal/policy/diagnose.go: strings.Contains(message, "may be recursive")`:                                                               "OPA",
	"internal/policy/diagnose.go: strings.Contains(message, answers)":                                                                          "OPA",
	`internal/policy/diagnose.go: strings.Contains(message, "unexpected")`:                                                                     "OPA",
	"internal/poolstatus/observe.go: strings.Cut(message, pullFailed)":                                                                         "the kubelet",
	"internal/review/judge.go: f.Message == o.Message":                                                                                         "the policies of users",
	`internal/policy/diagnose.go: strings.Contains(message, "illegal token")`:                                                                  "OPA",
	"internal/yamldoc/problems.go: unknownAnchor.FindStringSubmatch(p.Message)":                                                                "yaml.v3",
	"internal/yamldoc/problems.go: setTwice.FindStringSubmatch(p.Message)":                                                                     "yaml.v3",
	`internal/yamldoc/problems.go: strings.Contains(p.Message, "a tab character")`:                                                             "yaml.v3",
	`internal/yamldoc/problems.go: strings.HasPrefix(p.Message, "did not find expected")`:                                                      "yaml.v3",
	`internal/yamldoc/problems.go: strings.HasPrefix(p.Message, "could not find expected ':'")`:                                                "yaml.v3",
	`internal/yamldoc/problems.go: strings.HasPrefix(p.Message, "mapping values are not allowed")`:                                             "yaml.v3",
	"internal/review/prices.go: unknownField.FindStringSubmatch(p.Message)":                                                                    "encoding/json",
	"internal/review/prices.go: noNumber.FindStringSubmatch(p.Message)":                                                                        "encoding/json",
}

// unnoticed lists places that still parse the project's own sentences and that the test does not find, by file and
// expression. The list must only shrink: each entry needs a code or a field instead.
var unnoticed = map[string]string{
	"controllers/sources/report_controller.go": "withoutCommit(last.refused) != withoutCommit(message)",
	"internal/explain/pool.go":                 "strings.Cut(d.Reason, ",
	"internal/github/errors.go":                "strings.Replace(err.Error(), e.passing()",
	"internal/poolstatus/runner.go":            "strings.TrimSuffix(reason, jobWillFail)",
}

// readsOf returns the uses in a file of messages of conditions and events, or of texts rendered by the catalog, other
// than passing them on.
func readsOf(file *ast.File) (reads []string) {
	for _, decl := range file.Decls {
		named := map[string]bool{} // variables that contain a message
		isText := func(e ast.Expr) bool { return isMessage(e, named) }
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, value := range n.Rhs {
					if name, isName := n.Lhs[i].(*ast.Ident); isName && len(n.Lhs) == len(n.Rhs) && isText(value) {
						named[name.Name] = true
					}
				}
			case *ast.CallExpr:
				if isMatcher(types.ExprString(n.Fun)) && slices.ContainsFunc(n.Args, isText) {
					reads = append(reads, types.ExprString(n))
				}
			case *ast.BinaryExpr:
				isCompared := (n.Op == token.EQL || n.Op == token.NEQ) && (isText(n.X) || isText(n.Y))
				if isCompared && types.ExprString(n.X) != `""` && types.ExprString(n.Y) != `""` {
					reads = append(reads, types.ExprString(n))
				}
			}
			return true
		})
	}
	return reads
}

func isMatcher(name string) bool {
	return slices.ContainsFunc(matchers, func(m string) bool { return name == m || !strings.Contains(m, ".") && strings.HasSuffix(name, "."+m) })
}

// isMessage reports whether an expression is a message: a field or a variable that contains one, or a call that renders
// one.
func isMessage(e ast.Expr, named map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return named[e.Name]
	case *ast.SelectorExpr:
		return e.Sel.Name == "Message"
	case *ast.CallExpr:
		name := types.ExprString(e.Fun)
		if name == "strings.ToLower" && len(e.Args) == 1 {
			return isMessage(e.Args[0], named)
		}
		return slices.Contains([]string{"conditions.GetMessage", "catalog.Message", "catalog.Messages", "catalog.Problem", "catalog.Remedy"}, name)
	}
	return false
}

// Program logic reads codes, subjects and parameters of causes, because messages may be reworded at any time.
func TestNoProgramLogicReadsMessages(t *testing.T) {
	used := map[string]bool{}
	eachFile(t, func(name string, file *ast.File) {
		for _, read := range readsOf(file) {
			key := name + ": " + read
			if used[key] = true; foreign[key] == "" {
				t.Errorf("%s: read status.causes instead", key)
			}
		}
	})
	for name, expression := range unnoticed {
		if text, err := os.ReadFile(filepath.Join("..", "..", name)); err != nil || !strings.Contains(string(text), expression) {
			t.Errorf("%s has no %s any more: remove it from the list", name, expression)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(foreign)) {
		if !used[key] {
			t.Errorf("%s is not there any more: remove it from the list", key)
		}
	}
}

// eachFile parses each file of the product except tests.
func eachFile(t *testing.T, visit func(name string, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, folder := range []string{"apis", "cmd/corral", "controllers", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			short, _ := filepath.Rel(root, name)
			visit(filepath.ToSlash(short), file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheLookForReadMessagesFindsThem(t *testing.T) {
	for body, want := range map[string]int{
		`strings.Contains(c.Message, "x")`: 1, `text := c.Message; _ = strings.HasPrefix(strings.ToLower(text), "x")`: 1, `_ = a.Message == b.Message`: 1,
		`re.MatchString(conditions.GetMessage(o, "Ready"))`: 1, `strings.Cut(catalog.Message(c), ":")`: 1,
		`_ = c.Message != ""`: 0, `print(c.Message)`: 0, `strings.Contains(c.Reason, "x")`: 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() { "+body+" }", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := readsOf(file); len(got) != want {
			t.Errorf("%s: found %q", body, got)
		}
	}
}

// byCode are rows that are looked up by their code, for example by the code of a diagnostic or by a runner's state.
var byCode = []string{"FolderMissing", "PoolsMissing", "RunnerFailed", "RunnerFinished"}

// A cause is created with a value for each parameter of its row, and only causes that a retry cannot fix stall.
func TestCausesAreMadeAsTheirRowsSay(t *testing.T) {
	rows := map[string]*catalog.Row{}
	for _, row := range catalog.Rows() {
		rows[row.Code] = row
	}
	used := map[string]bool{}
	eachFile(t, func(name string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, isSelector := n.(*ast.SelectorExpr); isSelector && types.ExprString(s.X) == "catalog" {
				used[s.Sel.Name] = true
			}
			call, isCall := n.(*ast.CallExpr)
			if !isCall {
				return true
			}
			if row, values := rows[rowOf(call)], len(call.Args); row != nil && values != len(row.Parameters()) {
				t.Errorf("%s: %s has %d values, want those of %q", name, types.ExprString(call), values, row.Parameters())
			}
			if types.ExprString(call.Fun) == "kube.Stall" && len(call.Args) > 0 {
				if row := rows[firstRow(call.Args[0])]; row != nil && !row.Stalls {
					t.Errorf("%s: %s stalls, and its row does not", name, row.Code)
				}
			}
			return true
		})
	})
	for name, values := range advised(t) {
		used[name] = true
		if row := rows[name]; row == nil || values != len(row.Parameters()) {
			t.Errorf("a template has %d values for %s, want those of %+v", values, name, row)
		}
	}
	for code, row := range rows {
		if !used[code] && row.Code != row.Reason && !slices.Contains(byCode, code) {
			t.Errorf("nothing uses the row %s", code)
		}
	}
}

// advised returns the rows whose remedies the templates of corral explain render, each with how many values it gets there.
func advised(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "explain", "answers.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	trees, rows := map[string]*parse.Tree{}, map[string]int{}
	book := parse.New("answers")
	book.Mode = parse.SkipFuncCheck
	if _, err := book.Parse(string(text), "", "", trees); err != nil {
		t.Fatal(err)
	}
	for _, tree := range trees {
		eachCommand(tree.Root, func(c *parse.CommandNode) {
			if c.Args[0].String() == "advice" {
				rows[c.Args[1].(*parse.StringNode).Text] = len(c.Args) - 2
			}
		})
	}
	return rows
}

// eachCommand visits the commands of a template.
func eachCommand(node parse.Node, visit func(*parse.CommandNode)) {
	var within []parse.Node
	branch := func(b *parse.BranchNode) {
		within = []parse.Node{b.Pipe, b.List}
		if b.ElseList != nil {
			within = append(within, b.ElseList)
		}
	}
	switch n := node.(type) {
	case *parse.ListNode:
		within = n.Nodes
	case *parse.ActionNode:
		within = []parse.Node{n.Pipe}
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			within = append(within, c)
		}
	case *parse.CommandNode:
		visit(n)
		within = n.Args
	}
	for _, n := range within {
		eachCommand(n, visit)
	}
}

// rowOf returns the name of the row in a call of catalog.ROW.With or Advice; "" for another call.
func rowOf(call *ast.CallExpr) string {
	name, isRow := strings.CutPrefix(types.ExprString(call.Fun), "catalog.")
	name, method, _ := strings.Cut(name, ".")
	if !isRow || method != "With" && method != "Advice" {
		return ""
	}
	return name
}

// firstRow returns the name of the row in a chain of calls that begins with catalog.ROW.With; "" for another
// expression.
func firstRow(e ast.Expr) string {
	for {
		call, isCall := e.(*ast.CallExpr)
		if !isCall {
			return ""
		}
		if name := rowOf(call); name != "" {
			return name
		}
		method, isMethod := call.Fun.(*ast.SelectorExpr)
		if !isMethod {
			return ""
		}
		e = method.X
	}
}

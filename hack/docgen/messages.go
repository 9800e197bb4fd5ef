// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// messagesIntro says how to read the page.
const messagesIntro = `# Messages

What Corral says to its users, as the code has it, to be read in one go: a verb such as ` + "`%s`" + ` stands for a value, and … for text that
is put together elsewhere. What to do about each reason: [operations](../operations.md).
`

// calls are the functions whose formats users read, by the index of the argument that is the reason, or -1, and of the format.
var calls = map[string]struct{ reason, format int }{
	"kube.Stall": {0, 1}, "kube.Wait": {0, 2}, "kube.Progress": {-1, 1},
}

// deciding are the packages whose texts are the reasons of numbers and states.
var deciding = []string{"internal/poolstatus", "internal/rollout", "internal/scaling"}

// said is a message with its place.
type said struct{ reason, message, file string }

// messages are what the code says.
type messages struct {
	constants  map[string]string // by FOLDER.NAME
	reasons    []string          // rows of conditions and reasons
	conditions []said
	events     []said
	decisions  []said
	errors     []said
}

// messagesPage lists the messages of the code of a repository.
func messagesPage(repository fs.FS) (string, error) {
	m := &messages{constants: map[string]string{}}
	files := map[string]*ast.File{}
	for _, folder := range []string{"apis", "controllers", "internal"} {
		err := fs.WalkDir(repository, folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(repository, name)
			if err != nil {
				return err
			}
			files[name], err = parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("reading the code: %w", err)
		}
	}
	names := slices.Sorted(maps.Keys(files)) // those of apis first, which others name
	for _, name := range names {
		m.addConstants(name, files[name])
	}
	for _, name := range names {
		m.addMessages(name, files[name])
	}
	slices.Sort(m.reasons)
	return notice + messagesIntro +
		"\n## Reasons\n\n| reason | is |\n|---|---|\n" + strings.Join(m.reasons, "") +
		section("Conditions", m.conditions) + section("Events", m.events) +
		section("Reasons of numbers and states", m.decisions) + section("Errors of the command line", m.errors), nil
}

// addConstants remembers texts by their name, and what the API says of its reasons.
func (m *messages) addConstants(file string, parsed *ast.File) {
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != len(spec.Names) {
			return true
		}
		for i, name := range spec.Names {
			text := m.text(file, spec.Values[i])
			m.constants[path.Dir(file)+"."+name.Name] = text
			if path.Base(file) == "conditions.go" && strings.HasSuffix(name.Name, "Reason") {
				m.reasons = append(m.reasons, fmt.Sprintf("| `%s` | %s |\n", text, cell(strings.TrimPrefix(spec.Doc.Text(), name.Name+" "))))
			}
		}
		return true
	})
}

func (m *messages) addMessages(file string, parsed *ast.File) {
	decides := slices.Contains(deciding, path.Dir(file))
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			m.addCall(file, n)
		case *ast.BasicLit:
			if text := m.text(file, n); decides && strings.Contains(text, " ") && says(text) {
				m.decisions = append(m.decisions, said{"", text, file})
			}
		}
		return true
	})
}

func (m *messages) addCall(file string, call *ast.CallExpr) {
	name := callee(call)
	at, isOutcome := calls[name]
	add := func(to *[]said, reason string, message ast.Expr) {
		if text := m.text(file, message); says(text) {
			*to = append(*to, said{reason, text, file})
		}
	}
	switch {
	case isOutcome && len(call.Args) > at.format:
		reason := ""
		if at.reason >= 0 {
			reason = m.text(file, call.Args[at.reason])
		}
		add(&m.conditions, reason, call.Args[at.format])
	case strings.HasSuffix(name, ".Event") && len(call.Args) == 4:
		m.events = append(m.events, said{m.text(file, call.Args[2]), m.text(file, call.Args[3]), file})
	case (name == "fmt.Errorf" || name == "errors.New") && path.Dir(file) == "internal/cli":
		add(&m.errors, "", call.Args[0])
	}
}

// verb is one of a format.
var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0-9.]*[a-zA-Z]`)

// says reports whether a format has words of its own.
func says(format string) bool {
	return strings.ContainsFunc(verb.ReplaceAllString(format, ""), unicode.IsLetter)
}

// callee is the name of what is called, such as kube.Stall or x.Event.
func callee(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		return types.ExprString(f.X) + "." + f.Sel.Name
	}
	return ""
}

// text is the text that an expression is, as far as the code says: … stands for the rest.
func (m *messages) text(file string, e ast.Expr) string {
	const rest = "…"
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return m.text(file, e.X) + m.text(file, e.Y)
	case *ast.Ident:
		return cmp.Or(m.constants[path.Dir(file)+"."+e.Name], rest)
	case *ast.SelectorExpr:
		return cmp.Or(m.constants["apis/v1alpha1."+e.Sel.Name], rest)
	case *ast.CallExpr:
		if name := callee(e); len(e.Args) > 0 && (name == "fmt.Sprintf" || name == "" && len(e.Args) == 1) {
			return m.text(file, e.Args[0]) // a format, or a conversion
		}
	}
	return rest
}

// section is a table of messages, by their place.
func section(title string, all []said) string {
	slices.SortFunc(all, func(a, b said) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.reason, b.reason), cmp.Compare(a.message, b.message))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n| message | reason | file |\n|---|---|---|\n", title)
	for _, s := range slices.Compact(all) {
		message := strings.NewReplacer("\n", `\n`, "|", `\|`).Replace(s.message)
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", message, s.reason, s.file)
	}
	return b.String()
}

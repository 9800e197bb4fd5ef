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

	"github.com/corral-dev/corral/internal/catalog"
)

// messagesIntro is the introduction of the page.
const messagesIntro = `# Messages

All messages that users read. In ` + "`status.causes`" + `, a cause has one of the codes below; a name in braces is one of its parameters, and {next} or
{nextBy} the time of the next attempt. The detail of a cause, which another program wrote, follows its message. Alert on codes and parameters:
messages may change with each release. In the other tables a verb such as ` + "`%s`" + ` stands for a value, and … for text that is put together
elsewhere. What to do about each reason: [operations](../operations.md).
`

// deciding are the packages whose texts are the reasons for numbers and states.
var deciding = []string{"internal/poolstatus", "internal/rollout", "internal/scaling"}

// entry is a message with the file that it is in.
type entry struct{ reason, message, file string }

// messages are the messages in the code.
type messages struct {
	constants map[string]string // by FOLDER.NAME
	reasons   []string          // rows of conditions and reasons
	events    []entry
	decisions []entry
	errors    []entry
}

// messagesPage lists the messages in the code of a repository.
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
	names := slices.Sorted(maps.Keys(files)) // apis first, because others refer to its constants
	for _, name := range names {
		m.addConstants(name, files[name])
	}
	for _, name := range names {
		m.addMessages(name, files[name])
	}
	slices.Sort(m.reasons)
	return notice + messagesIntro +
		"\n## Reasons\n\n| reason | is |\n|---|---|\n" + strings.Join(m.reasons, "") +
		causes() + section("Events", m.events) +
		section("Reasons of numbers and states", m.decisions) + section("Errors of the command line", m.errors), nil
}

// addConstants records string constants by name, and the API's descriptions of its reasons.
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
				m.decisions = append(m.decisions, entry{"", text, file})
			}
		}
		return true
	})
}

func (m *messages) addCall(file string, call *ast.CallExpr) {
	name := callee(call)
	add := func(to *[]entry, reason string, message ast.Expr) {
		if text := m.text(file, message); says(text) {
			*to = append(*to, entry{reason, text, file})
		}
	}
	switch {
	case strings.HasSuffix(name, ".Event") && len(call.Args) == 4:
		m.events = append(m.events, entry{m.text(file, call.Args[2]), m.text(file, call.Args[3]), file})
	case (name == "fmt.Errorf" || name == "errors.New") && path.Dir(file) == "internal/cli":
		add(&m.errors, "", call.Args[0])
	}
}

// verb matches a verb of a format string.
var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0-9.]*[a-zA-Z]`)

// says reports whether a format string contains words.
func says(format string) bool {
	return strings.ContainsFunc(verb.ReplaceAllString(format, ""), unicode.IsLetter)
}

// callee returns the name of the called function, such as kube.Stall or x.Event.
func callee(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		return types.ExprString(f.X) + "." + f.Sel.Name
	}
	return ""
}

// text returns the constant parts of an expression, with … for the rest.
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
			return m.text(file, e.Args[0]) // a format string, or a conversion
		}
	}
	return rest
}

// causes returns a table of the catalog's rows.
func causes() string {
	var b strings.Builder
	b.WriteString("\n## Causes\n\n| code | reason | severity | message | what to do |\n|---|---|---|---|---|\n")
	escape := strings.NewReplacer("\n", `\n`, "|", `\|`)
	for _, r := range catalog.Rows() {
		base, message := catalog.Of(r.Reason), r.Message
		if message == "" {
			message = "{detail}"
		}
		stalls := ""
		if r.Stalls {
			stalls = ", stalls"
		}
		if r.Reason == "" {
			base = &catalog.Row{Severity: "adds to another"}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s%s | `%s` | %s |\n", r.Code, r.Reason, cmp.Or(r.Severity, base.Severity), stalls,
			escape.Replace(message), escape.Replace(cmp.Or(r.Remedy+r.Meanwhile, base.Remedy+base.Meanwhile)))
	}
	return b.String()
}

// section returns a table of messages, sorted by place.
func section(title string, all []entry) string {
	slices.SortFunc(all, func(a, b entry) int {
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

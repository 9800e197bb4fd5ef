// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const top = "../.."

// files returns the files of the repository with an extension, below some folders.
func files(t *testing.T, extension string, folders ...string) []string {
	t.Helper()
	var found []string
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(top, folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains([]string{".cache", ".git", "bin", "dist"}, entry.Name()):
				return fs.SkipDir
			case filepath.Ext(path) == extension:
				found = append(found, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]+`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are the ids that a page's headings get on GitHub.
func anchors(page string) map[string]bool {
	ids := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		ids[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return ids
}

func TestLinksResolve(t *testing.T) {
	for _, page := range files(t, ".md", ".") {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", page, m[1])
			}
		}
	}
}

// handWritten is the text of all pages that are not generated.
func handWritten(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, page := range files(t, ".md", "docs") {
		if text := read(t, page); !strings.HasPrefix(text, notice) {
			all.WriteString(text)
		}
	}
	return all.String()
}

func TestEachReasonIsExplained(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top, "apis/v1alpha1/conditions.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	docs, reasons := handWritten(t), 0
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			value, isLiteral := spec.Values[i].(*ast.BasicLit)
			if !isLiteral || !strings.HasSuffix(name.Name, "Reason") {
				continue
			}
			reasons++
			if reason, err := strconv.Unquote(value.Value); err != nil || !strings.Contains(docs, "`"+reason+"`") {
				t.Errorf("no page explains the reason %s", value.Value)
			}
		}
		return true
	})
	if reasons == 0 {
		t.Error("no reasons were found")
	}
}

func TestEachMetricIsExplained(t *testing.T) {
	metric := regexp.MustCompile(`"(corral_[a-z_]+)"`)
	docs, metrics := read(t, filepath.Join(top, "docs/operations.md")), 0
	for _, source := range files(t, ".go", "controllers", "internal") {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, m := range metric.FindAllStringSubmatch(read(t, source), -1) {
			metrics++
			if !strings.Contains(docs, "`"+m[1]+"`") {
				t.Errorf("docs/operations.md does not explain %s", m[1])
			}
		}
	}
	if metrics == 0 {
		t.Error("no metrics were found")
	}
}

// maxRunbook is how many lines a runbook has at most, empty ones not counted.
const maxRunbook = 10

func TestEachAlertLinksToItsRunbook(t *testing.T) {
	page := read(t, filepath.Join(top, "docs/operations.md"))
	runbooks := map[string]string{}
	for _, section := range strings.Split(page, "\n### Corral")[1:] {
		text, _, _ := strings.Cut(section, "\n## ")
		name, body, _ := strings.Cut(text, "\n")
		runbooks["Corral"+name] = body
	}
	alert := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	const url = "runbook_url: https://github.com/corral-dev/corral/blob/main/docs/operations.md#"
	rules := alert.Split(read(t, filepath.Join(top, "charts/corral/files/alerts.yaml")), -1)
	names := alert.FindAllStringSubmatch(read(t, filepath.Join(top, "charts/corral/files/alerts.yaml")), -1)
	for i, m := range names {
		name := m[1]
		if !strings.Contains(rules[i+1], url+strings.ToLower(name)+"\n") {
			t.Errorf("the alert %s has no %s%s", name, url, strings.ToLower(name))
		}
		lines := slices.DeleteFunc(strings.Split(runbooks[name], "\n"), func(l string) bool { return l == "" })
		if len(lines) == 0 || len(lines) > maxRunbook {
			t.Errorf("the runbook of %s in docs/operations.md has %d lines, want 1 to %d", name, len(lines), maxRunbook)
		}
		delete(runbooks, name)
	}
	if len(names) == 0 || len(runbooks) > 0 {
		t.Errorf("%d alerts; runbooks of none: %v", len(names), runbooks)
	}
	if begin := page[:strings.Index(page, "\n## Flags")]; !strings.Contains(begin, "$ corral status") {
		t.Error("docs/operations.md doesn't begin with corral status")
	}
}

func TestCommandsAreReadFromTheAnswerToAShell(t *testing.T) {
	got := parseCommands("build\tPrint\nhelp\tHelp about any command\nvet\tCheck\n:4\n")
	if want := []command{{"build", "Print"}, {"vet", "Check"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

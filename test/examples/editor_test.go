// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/corral-dev/corral/schema"
)

// asked matches the fields for which an editor requests documentation and completion. They range from the top of a
// pool down to its container.
var asked = regexp.MustCompile(`(?m)\b(connectionRef|scale|max|schedules|template|containers|image|resources|secretRef|url):`)

// An editor that uses cue lsp shows documentation and completions for the fields of each example, as the example
// writes them.
func TestEditorsExplainAndCompleteTheExamples(t *testing.T) {
	folder := newModule(t)
	server := startLSP(t, buildCUE(t), folder)
	examples, err := filepath.Glob("../../examples/*/pools.cue")
	if err != nil || len(examples) < 20 {
		t.Fatalf("%d examples, %v", len(examples), err)
	}
	for _, file := range examples {
		name := filepath.Base(filepath.Dir(file))
		if name == "sizes" {
			continue // its pools come from a table whose columns are defined by the example itself
		}
		text, err := os.ReadFile(file)
		must(t, err)
		uri := "file://" + filepath.Join(folder, name, "pools.cue")
		write(t, strings.TrimPrefix(uri, "file://"), text)
		server.open(uri, string(text))
		for i, line := range strings.Split(string(text), "\n") {
			found := asked.FindStringSubmatchIndex(line)
			if found == nil || strings.Contains(line[:found[0]], "//") {
				continue
			}
			field := line[found[2]:found[3]]
			offers := server.completion(uri, i, found[2])
			if hover := server.hover(uri, i, found[2]); hover == "" || !slices.Contains(offers, field) {
				t.Errorf("%s:%d: %s is not explained (%q) or not offered among %d", file, i+1, field, hover, len(offers))
			}
		}
	}
}

// authored is a file as its author writes it. The editor offers each word in «», and the author types the rest. Within lists, cue lsp offers the
// fields of a struct only after its brace.
const authored = `package pools

import "corral.dev/schema@v0"

connections: schema.«#Connections»
connections: acme: schema.«#GitHubConnection» & {
	«spec»: {
		«url»: "https://github.com/acme"
		«secretRef»: «name»: "github"
	}
}

pools: schema.«#Pools»
pools: "linux-small": schema.«#RunnerPool» & {
	«spec»: {
		«connectionRef»: «name»: "acme"
		«stopPolicy»: "Hold"
		«scale»: {
			«max»: 20
			«schedules»: [{
				«name»: "night"
				«weekly»: {«from»: "20:00", «to»: "06:00"}
				«scale»: {«max»: 5}
			}]
		}
		«template»: «spec»: {
			«containers»: [{
				«name»: "runner"
				«image»: "ghcr.io/actions/actions-runner:latest"
				«resources»: {«requests»: cpu: "1"}
			}]
			«volumes»: [{
				«name»: "work"
				«emptyDir»: {«sizeLimit»: "10Gi"}
			}]
		}
	}
	«#containers»: docker: schema.«#Container» & {
		«image»: "docker:dind"
	}
	«#schedules»: day: schema.«#Schedule» & {
		«timeZone»: "UTC"
	}
}
`

// From an empty file, an author finds each word of a pool in the list of the editor, and learns the words of an enum from the documentation.
func TestAPoolIsWrittenByCompletion(t *testing.T) {
	folder := newModule(t)
	server := startLSP(t, buildCUE(t), folder)
	uri := "file://" + filepath.Join(folder, "pools", "pools.cue")
	write(t, strings.TrimPrefix(uri, "file://"), nil)
	server.open(uri, "")
	typed, parts := "", strings.Split(authored, "«")
	for i, part := range parts {
		word, rest, isWord := strings.Cut(part, "»")
		if i == 0 || !isWord {
			typed += part
			server.change(uri, strings.TrimSuffix(typed, "connections: schema."))
			continue
		}
		line, column := strings.Count(typed, "\n"), len(typed)-1-strings.LastIndex(typed, "\n")
		server.change(uri, typed+closers(typed))
		if offers := server.completion(uri, line, column); !slices.Contains(offers, word) {
			t.Errorf("after %q, %s is not offered among %d", typed[strings.LastIndex(typed, "\n")+1:], word, len(offers))
		}
		typed += word + rest
		server.change(uri, typed+closers(typed))
		if hover := server.hover(uri, line, column); word == "stopPolicy" && !strings.Contains(hover, "None (default), Hold or Drain") {
			t.Errorf("%s is explained as %q", word, hover)
		}
	}
}

// closers returns the brackets that a text leaves open, as editors add them.
func closers(text string) string {
	var open []byte
	for i := range len(text) {
		switch text[i] {
		case '{':
			open = append(open, '}')
		case '[':
			open = append(open, ']')
		case '}', ']':
			open = open[:len(open)-1]
		}
	}
	slices.Reverse(open)
	return "\n" + string(open) + "\n"
}

// buildCUE builds the cue command and returns its path.
func buildCUE(t *testing.T) string {
	t.Helper()
	cue := filepath.Join(t.TempDir(), "cue")
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile=hack/tools/go.mod", "-o", cue, "cuelang.org/go/cmd/cue")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return cue
}

// newModule returns the folder of a CUE module with a copy of Corral's schema. It has the name of the examples' module, because examples may
// import their own packages.
func newModule(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "cue.mod/module.cue"), []byte("module: \"corral.dev/examples@v0\"\nlanguage: version: \"v0.16.0\"\n"))
	must(t, fs.WalkDir(schema.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "cue.mod") {
			return err
		}
		text, err := schema.FS.ReadFile(name)
		write(t, filepath.Join(folder, "cue.mod/pkg", schema.ImportPath, name), text)
		return err
	}))
	return folder
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must(t, os.WriteFile(name, text, 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lsp is a client of a language server: https://microsoft.github.io/language-server-protocol.
type lsp struct {
	*testing.T
	in      io.Writer
	out     *bufio.Reader
	calls   int
	version int // of the last change
}

// message is a JSON-RPC 2.0 message.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      *int            `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func startLSP(t *testing.T, program, folder string) *lsp {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, "lsp")
	c.Dir = folder
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() { _ = c.Wait() })
	s := &lsp{T: t, in: in, out: bufio.NewReader(out)}
	folders := []map[string]any{{"uri": "file://" + folder, "name": "pools"}}
	s.call("initialize", map[string]any{"processId": nil, "rootUri": "file://" + folder, "workspaceFolders": folders, "capabilities": map[string]any{}}, nil)
	s.notify("initialized", map[string]any{})
	return s
}

func (s *lsp) send(m message) {
	s.Helper()
	m.Version = "2.0"
	text, err := json.Marshal(m)
	must(s.T, err)
	_, err = fmt.Fprintf(s.in, "Content-Length: %d\r\n\r\n%s", len(text), text)
	must(s.T, err)
}

func (s *lsp) notify(method string, params any) {
	s.Helper()
	s.send(message{Method: method, Params: params})
}

// open shows the server a file.
func (s *lsp) open(uri, text string) {
	s.Helper()
	s.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": "cue", "version": 1, "text": text}})
}

// change replaces the text of an open file.
func (s *lsp) change(uri, text string) {
	s.Helper()
	s.version++
	s.notify("textDocument/didChange", map[string]any{
		"textDocument": map[string]any{"uri": uri, "version": s.version}, "contentChanges": []map[string]any{{"text": text}},
	})
}

func place(uri string, line, column int) map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": uri}, "position": map[string]any{"line": line, "character": column}}
}

// hover returns the documentation at a place.
func (s *lsp) hover(uri string, line, column int) string {
	s.Helper()
	var hover struct{ Contents struct{ Value string } }
	s.call("textDocument/hover", place(uri, line, column), &hover)
	return hover.Contents.Value
}

// completion returns the words that the server offers at a place.
func (s *lsp) completion(uri string, line, column int) (words []string) {
	s.Helper()
	var completion struct{ Items []struct{ Label string } }
	s.call("textDocument/completion", place(uri, line, column), &completion)
	for _, item := range completion.Items {
		words = append(words, item.Label)
	}
	return words
}

// call sends a request and waits for the result. It answers requests from the server with an empty result.
func (s *lsp) call(method string, params, result any) {
	s.Helper()
	s.calls++
	s.send(message{ID: &s.calls, Method: method, Params: params})
	for {
		header, err := textproto.NewReader(s.out).ReadMIMEHeader()
		must(s.T, err)
		size, err := strconv.Atoi(header.Get("Content-Length"))
		must(s.T, err)
		text := make([]byte, size)
		_, err = io.ReadFull(s.out, text)
		must(s.T, err)
		var m message
		must(s.T, json.Unmarshal(text, &m))
		switch {
		case m.Method != "" && m.ID != nil:
			s.send(message{ID: m.ID, Result: json.RawMessage("null")})
		case m.Method == "" && m.ID != nil && *m.ID == s.calls:
			if len(m.Error) > 0 {
				s.Fatalf("%s: %s", method, m.Error)
			}
			if result != nil && len(m.Result) > 0 {
				must(s.T, json.Unmarshal(m.Result, result))
			}
			return
		}
	}
}

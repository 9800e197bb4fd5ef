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

// asked are the fields at which an editor asks for documentation and completion, from the top of a pool down to its container.
var asked = regexp.MustCompile(`(?m)\b(connectionRef|scale|max|schedules|template|containers|image|resources|secretRef|url):`)

// An editor with cue lsp explains and completes the fields of each example, in the form that they are written in.
func TestEditorsExplainAndCompleteTheExamples(t *testing.T) {
	cue := filepath.Join(t.TempDir(), "cue")
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile=hack/tools/go.mod", "-o", cue, "cuelang.org/go/cmd/cue")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	folder := t.TempDir()
	write(t, filepath.Join(folder, "cue.mod/module.cue"), []byte("module: \"acme.test/pools@v0\"\nlanguage: version: \"v0.16.0\"\n"))
	must(t, fs.WalkDir(schema.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "cue.mod") {
			return err
		}
		text, err := schema.FS.ReadFile(name)
		write(t, filepath.Join(folder, "cue.mod/pkg", schema.ImportPath, name), text)
		return err
	}))
	server := startLSP(t, cue, folder)
	examples, err := filepath.Glob("../../examples/*/pools.cue")
	if err != nil || len(examples) < 20 {
		t.Fatalf("%d examples, %v", len(examples), err)
	}
	for _, file := range examples {
		name := filepath.Base(filepath.Dir(file))
		if name == "sizes" {
			continue // its pools come from a table, whose columns are its own
		}
		text, err := os.ReadFile(file)
		must(t, err)
		uri := "file://" + filepath.Join(folder, name, "pools.cue")
		write(t, strings.TrimPrefix(uri, "file://"), text)
		server.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": uri, "languageId": "cue", "version": 1, "text": string(text)}})
		for i, line := range strings.Split(string(text), "\n") {
			found := asked.FindStringSubmatchIndex(line)
			if found == nil || strings.Contains(line[:found[0]], "//") {
				continue
			}
			field := line[found[2]:found[3]]
			at := map[string]any{"textDocument": map[string]any{"uri": uri}, "position": map[string]any{"line": i, "character": found[2]}}
			var hover struct{ Contents struct{ Value string } }
			server.call("textDocument/hover", at, &hover)
			var completion struct{ Items []struct{ Label string } }
			server.call("textDocument/completion", at, &completion)
			isOffered := slices.ContainsFunc(completion.Items, func(item struct{ Label string }) bool { return item.Label == field })
			if hover.Contents.Value == "" || !isOffered {
				t.Errorf("%s:%d: %s is not explained (%q) or not offered among %d", file, i+1, field, hover.Contents.Value, len(completion.Items))
			}
		}
	}
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

// lsp is a language server that is spoken to as an editor does: https://microsoft.github.io/language-server-protocol.
type lsp struct {
	*testing.T
	in    io.Writer
	out   *bufio.Reader
	calls int
}

// message is one of JSON-RPC 2.0.
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

// call asks, and answers what the server asks meanwhile with nothing.
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

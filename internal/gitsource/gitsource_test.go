// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"
)

// signature is the author of all commits in these tests.
var signature = &object.Signature{Name: "Test", Email: "test@example.com", When: time.Unix(1_000_000_000, 0)}

// repo is a repository under test.
type repo struct {
	t   *testing.T
	dir string
	git *git.Repository
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	made, err := git.PlainInitWithOptions(dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: "refs/heads/main"}})
	if err != nil {
		t.Fatal(err)
	}
	return &repo{t: t, dir: dir, git: made}
}

// commit adds files to the existing ones.
func (r *repo) commit(files map[string]string) string {
	r.t.Helper()
	for name, content := range files {
		file := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.commitAll()
}

func (r *repo) commitAll() string {
	r.t.Helper()
	tree, err := r.git.Worktree()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := tree.AddGlob("."); err != nil {
		r.t.Fatal(err)
	}
	hash, err := tree.Commit("change", &git.CommitOptions{Author: signature})
	if err != nil {
		r.t.Fatal(err)
	}
	return hash.String()
}

func (r *repo) tag(name string) {
	r.t.Helper()
	head, err := r.git.Head()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.git.CreateTag(name, head.Hash(), &git.CreateTagOptions{Tagger: signature, Message: name}); err != nil {
		r.t.Fatal(err)
	}
}

// serve serves the repository with git's own HTTP backend.
func (r *repo) serve() http.Handler {
	r.t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		r.t.Fatalf("git is needed to serve a repository: %v", err)
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env: []string{
			"GIT_PROJECT_ROOT=" + r.dir, "GIT_HTTP_EXPORT_ALL=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}
}

// start serves over TLS and returns the repository's URL and the certificate to trust.
func start(t *testing.T, handler http.Handler) (string, []byte) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server.URL + "/.git", certificate
}

func contents(t *testing.T, files fs.FS) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		got[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFetchOverTLSAndFromDisk(t *testing.T) {
	r := newRepo(t)
	first := r.commit(map[string]string{"pools/linux.cue": "old", "cue.mod/module.cue": "module: \"x\""})
	r.tag("v1")
	second := r.commit(map[string]string{"pools/linux.cue": "new"})
	url, certificate := start(t, r.serve())

	oldFiles := map[string]string{"pools/linux.cue": "old", "cue.mod/module.cue": "module: \"x\""}
	newFiles := map[string]string{"pools/linux.cue": "new", "cue.mod/module.cue": "module: \"x\""}
	cases := map[string]struct {
		ref      Ref
		revision string
		files    map[string]string
	}{
		"the tip of a branch": {Ref{Branch: "main"}, "main@sha1:" + second, newFiles},
		"an annotated tag":    {Ref{Tag: "v1"}, "v1@sha1:" + first, oldFiles},
		"a commit":            {Ref{Commit: second}, "sha1:" + second, newFiles},
	}
	for name, tc := range cases {
		for via, request := range map[string]Request{
			"https": {URL: url, Ref: tc.ref, Auth: Auth{CAPEM: certificate}},
			"file":  {URL: "file://" + r.dir, Ref: tc.ref},
		} {
			t.Run(name+" by "+via, func(t *testing.T) {
				c := &Client{AllowFile: true}
				resolved, err := c.Resolve(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.Fetch(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				if resolved != tc.revision || got.Revision != tc.revision {
					t.Errorf("resolved %s, fetched %s, want %s", resolved, got.Revision, tc.revision)
				}
				if diff := cmp.Diff(tc.files, contents(t, got.FS)); diff != "" {
					t.Error(diff)
				}
				if err := fstest.TestFS(got.FS, "pools/linux.cue"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Git stores a later version of a file as a delta to an earlier one. Both are received if both are in the tree.
func TestFetchUnpacksDeltas(t *testing.T) {
	r := newRepo(t)
	long := strings.Repeat("a line that both files have, number N\n", 500)
	files := map[string]string{"a.txt": long, "b.txt": long + "and one more"}
	r.commit(files)
	if out, err := exec.Command("git", "-C", r.dir, "gc", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	url, certificate := start(t, r.serve())
	got, err := (&Client{}).Fetch(t.Context(), Request{URL: url, Ref: Ref{Branch: "main"}, Auth: Auth{CAPEM: certificate}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files, contents(t, got.FS)); diff != "" {
		t.Error(diff)
	}
}

// Links are not omitted either: reading one is an error.
func TestLinksAreNotFollowed(t *testing.T) {
	r := newRepo(t)
	if err := os.Symlink("a.cue", filepath.Join(r.dir, "b.cue")); err != nil {
		t.Fatal(err)
	}
	r.commit(map[string]string{"a.cue": "a"})
	got, err := (&Client{AllowFile: true}).Fetch(t.Context(), Request{URL: "file://" + r.dir, Ref: Ref{Branch: "main"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a.cue": "a"}, contents(t, got.FS)); diff != "" {
		t.Error(diff)
	}
	info, err := fs.Lstat(got.FS, "b.cue")
	if err != nil || info.Mode() != fs.ModeSymlink {
		t.Errorf("the link is %v, %v", info, err)
	}
	if _, err := fs.Stat(got.FS, "b.cue"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link is followed: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": "a"})
	backend := r.serve()
	url, certificate := start(t, http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		user, password, _ := request.BasicAuth()
		switch {
		case user == "known" && password == "wrong":
			http.Error(w, "no", http.StatusForbidden)
		case user == "git" && password == "secret", request.Header.Get("Authorization") == "Bearer token":
			backend.ServeHTTP(w, request)
		default:
			http.Error(w, "who?", http.StatusUnauthorized)
		}
	}))
	cases := map[string]struct {
		auth Auth
		want error
	}{
		"none":                  {Auth{}, ErrAuthRefused},
		"unknown":               {Auth{Username: "git", Password: "old"}, ErrAuthRefused},
		"without the right":     {Auth{Username: "known", Password: "wrong"}, ErrAuthRefused},
		"username and password": {Auth{Username: "git", Password: "secret"}, nil},
		"bearer token":          {Auth{BearerToken: "token"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.auth.CAPEM = certificate
			_, err := (&Client{}).Fetch(t.Context(), Request{URL: url, Ref: Ref{Branch: "main"}, Auth: tc.auth})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// Many servers do not know a path with two slashes, and some redirect from it to another host.
func TestAURLMayEndWithASlash(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": "a"})
	backend := r.serve()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if strings.Contains(request.URL.Path, "//") {
			http.NotFound(w, request)
			return
		}
		backend.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	for _, end := range []string{"", "/", "//"} {
		if _, err := (&Client{AllowHTTP: true}).Fetch(t.Context(), Request{URL: server.URL + "/.git" + end, Ref: Ref{Branch: "main"}}); err != nil {
			t.Errorf("with %q at the end: %v", end, err)
		}
	}
}

func TestRedirects(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": "a"})
	backend := r.serve()
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(elsewhere.Close)
	for name, tc := range map[string]struct{ to, want string }{
		"to another path": {"", ""},
		"to another host": {strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), "not allowed: the server redirects to another host, HOST; if that is right, name it in the URL"},
		"to another port": {elsewhere.URL, "not allowed: the server redirects to another host, HOST; if that is right, name it in the URL"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				if path, old := strings.CutPrefix(request.URL.Path, "/old"); old {
					http.Redirect(w, request, tc.to+path+"?"+request.URL.RawQuery, http.StatusFound)
					return
				}
				backend.ServeHTTP(w, request)
			}))
			t.Cleanup(server.Close)
			_, err := (&Client{AllowHTTP: true}).Fetch(t.Context(), Request{
				URL: server.URL + "/old/.git", Ref: Ref{Branch: "main"}, Auth: Auth{Username: "git", Password: "secret"},
			})
			got := ""
			if err != nil {
				got = strings.Replace(err.Error(), tc.to, "HOST", 1)
			}
			if got != tc.want || asked > 0 {
				t.Errorf("got %q, not %q; the other host was asked %d times", got, tc.want, asked)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": strings.Repeat("a", 5000), "b/c.cue": "c"})
	url, certificate := start(t, r.serve())
	missing := strings.Repeat("0", 39) + "1"
	main := Ref{Branch: "main"}
	cases := map[string]struct {
		client Client
		url    string
		ref    Ref
		want   error
	}{
		"no such repository":        {Client{}, strings.Replace(url, ".git", "none.git", 1), main, ErrNotFound},
		"no such folder":            {Client{AllowFile: true}, "file:///none", main, ErrNotFound},
		"no such branch":            {Client{}, url, Ref{Branch: "next"}, ErrRefNotFound},
		"no such tag":               {Client{}, url, Ref{Tag: "v9"}, ErrRefNotFound},
		"no such commit":            {Client{}, url, Ref{Commit: missing}, ErrRefNotFound},
		"no such branch on disk":    {Client{AllowFile: true}, "file://" + r.dir, Ref{Branch: "next"}, ErrRefNotFound},
		"no such commit on disk":    {Client{AllowFile: true}, "file://" + r.dir, Ref{Commit: missing}, ErrRefNotFound},
		"file is not allowed":       {Client{}, "file://" + r.dir, main, ErrNotAllowed},
		"http is not allowed":       {Client{}, "http://example.com/x.git", main, ErrNotAllowed},
		"another scheme":            {Client{}, "ssh://example.com/x.git", main, ErrNotAllowed},
		"credentials in the URL":    {Client{}, "https://a:b@example.com/x.git", main, ErrNotAllowed},
		"no host":                   {Client{}, "https:///x.git", main, ErrNotAllowed},
		"malformed URL":             {Client{}, "https://%zz", main, ErrNotAllowed},
		"no reference":              {Client{}, url, Ref{}, ErrNotAllowed},
		"two references":            {Client{}, url, Ref{Branch: "a", Tag: "b"}, ErrNotAllowed},
		"not a commit":              {Client{}, url, Ref{Commit: "main"}, ErrNotAllowed},
		"download beyond the limit": {Client{Limits: Limits{DownloadBytes: 100}}, url, main, ErrTooLarge},
		"file beyond the limit":     {Client{Limits: Limits{FileBytes: 4999}}, url, main, ErrTooLarge},
		"total beyond the limit":    {Client{Limits: Limits{TotalBytes: 4999}}, url, main, ErrTooLarge},
		"objects beyond the limit":  {Client{Limits: Limits{Objects: 4}}, url, main, ErrTooLarge},
		"files beyond the limit":    {Client{AllowFile: true, Limits: Limits{Objects: 2}}, "file://" + r.dir, main, ErrTooLarge},
		"file on disk too large":    {Client{AllowFile: true, Limits: Limits{FileBytes: 4999}}, "file://" + r.dir, main, ErrTooLarge},
		"total on disk too large":   {Client{AllowFile: true, Limits: Limits{TotalBytes: 4999}}, "file://" + r.dir, main, ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := tc.client.Fetch(t.Context(), Request{URL: tc.url, Ref: tc.ref, Auth: Auth{CAPEM: certificate}})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestUntrustedCertificateIsRefused(t *testing.T) {
	url, _ := start(t, http.NotFoundHandler())
	_, err := (&Client{}).Resolve(t.Context(), Request{URL: url, Ref: Ref{Branch: "main"}})
	if err == nil || !strings.Contains(err.Error(), "unknown authority; put the authority's certificate under ca.crt") {
		t.Errorf("got %v", err)
	}
	_, err = (&Client{}).Resolve(t.Context(), Request{URL: url, Ref: Ref{Branch: "main"}, Auth: Auth{CAPEM: []byte("none")}})
	if !errors.Is(err, ErrNotAllowed) {
		t.Errorf("ca.crt without a certificate: %v", err)
	}
}

// Bundles of certificates contain comments, and sometimes blocks that are not valid certificates.
func TestCertificatesOfABundleAreTrusted(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	certified := func(bits int) string {
		modulus := new(big.Int).SetBit(big.NewInt(1), bits-1, 1)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, server.Certificate(), &rsa.PublicKey{N: modulus, E: 65537}, server.TLS.Certificates[0].PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		return block("CERTIFICATE", der)
	}
	good, unreadable := block("CERTIFICATE", server.Certificate().Raw), block("CERTIFICATE", []byte("none"))
	for name, tc := range map[string]struct {
		bundle string
		isFine bool
	}{
		"one":                    {good, true},
		"two":                    {good + certified(maxKeyBits), true},
		"with other things":      {"# ours\n" + unreadable + block("PRIVATE KEY", []byte("x")) + good + "# end\n", true},
		"a large key":            {good + certified(maxKeyBits+1), false},
		"only an unreadable one": {unreadable, false},
		"none":                   {"none", false},
	} {
		roots := x509.NewCertPool()
		err := trust(roots, []byte(tc.bundle))
		if !tc.isFine {
			if !errors.Is(err, ErrNotAllowed) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		want := x509.NewCertPool()
		if !want.AppendCertsFromPEM([]byte(tc.bundle)) || err != nil || !roots.Equal(want) {
			t.Errorf("%s: crypto/x509 reads other certificates: %v", name, err)
		}
	}
}

// A server may hang before it answers or in the middle of a packfile.
func TestHangEndsAtTheDeadline(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": "a"})
	backend := r.serve()
	for name, hangs := range map[string]func(*http.Request) bool{
		"at once":         func(*http.Request) bool { return true },
		"in the packfile": func(request *http.Request) bool { return request.Method == http.MethodPost },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, expire := context.WithCancelCause(t.Context())
			defer expire(nil)
			url, certificate := start(t, http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				if !hangs(request) {
					backend.ServeHTTP(w, request)
					return
				}
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				expire(nil)
				<-request.Context().Done()
			}))
			_, err := (&Client{}).Fetch(deadline{ctx}, Request{URL: url, Ref: Ref{Branch: "main"}, Auth: Auth{CAPEM: certificate}})
			if !errors.Is(err, ErrTimeout) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The local port differs between connections, but the error text must not.
func TestABrokenConnectionIsToldAlike(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": "a"})
	backend := r.serve()
	reset := func(w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	for name, breaks := range map[string]func(w http.ResponseWriter, post bool) bool{
		"before the references": func(http.ResponseWriter, bool) bool { return true },
		"in the references": func(w http.ResponseWriter, _ bool) bool {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "001e# service=git-upload-pack\n00")
			w.(http.Flusher).Flush()
			return true
		},
		"before the objects": func(_ http.ResponseWriter, post bool) bool { return post },
		"in the answer about objects": func(w http.ResponseWriter, post bool) bool {
			if post {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "00")
				w.(http.Flusher).Flush()
			}
			return post
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				if breaks(w, request.Method == http.MethodPost) {
					reset(w)
					return
				}
				backend.ServeHTTP(w, request)
			}))
			defer server.Close()
			want := "talking to the Git server: read tcp " + server.Listener.Addr().String() + ": read: connection reset by peer"
			_, err := (&Client{AllowHTTP: true}).Fetch(t.Context(), Request{URL: server.URL + "/.git", Ref: Ref{Branch: "main"}})
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// deadline is a context that has already reached its deadline.
type deadline struct{ context.Context }

func (d deadline) Err() error {
	if d.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

func TestServeHandsOutOnlyTips(t *testing.T) {
	r := newRepo(t)
	old := r.commit(map[string]string{"a.cue": "a"})
	r.commit(map[string]string{"a.cue": "b"})
	url, certificate := start(t, r.serve())
	request := Request{URL: url, Ref: Ref{Commit: old}, Auth: Auth{CAPEM: certificate}}
	if _, err := (&Client{}).Fetch(t.Context(), request); !errors.Is(err, ErrRefNotFound) {
		t.Errorf("a commit below the tip: %v", err)
	}

	settings, err := r.git.Config()
	if err != nil {
		t.Fatal(err)
	}
	settings.Raw.SetOption("uploadpack", "", "allowReachableSHA1InWant", "true")
	if err := r.git.SetConfig(settings); err != nil {
		t.Fatal(err)
	}
	got, err := (&Client{}).Fetch(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a.cue": "a"}, contents(t, got.FS)); diff != "" {
		t.Error(diff)
	}
}

func TestResolveOfACommitAsksNobody(t *testing.T) {
	commit := plumbing.ComputeHash(plumbing.BlobObject, nil).String()
	got, err := (&Client{}).Resolve(t.Context(), Request{URL: "https://192.0.2.1/x.git", Ref: Ref{Commit: commit}})
	if err != nil || got != "sha1:"+commit {
		t.Errorf("got %s, %v", got, err)
	}
}

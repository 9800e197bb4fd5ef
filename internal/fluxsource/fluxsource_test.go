// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package fluxsource_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/corral-dev/corral/internal/fluxsource"
)

// entry is one entry of an archive: a file unless kind is set.
type entry struct {
	name, content string
	kind          byte
}

// archive packs entries as source-controller does.
func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	packed := &bytes.Buffer{}
	compressed := gzip.NewWriter(packed)
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o600, Size: int64(len(e.content))}
		switch e.kind {
		case tar.TypeSymlink, tar.TypeLink:
			header.Linkname, header.Size = e.content, 0
		case tar.TypeXGlobalHeader:
			header = &tar.Header{Typeflag: e.kind, PAXRecords: map[string]string{"comment": e.content}}
		}
		must(t, w.WriteHeader(header))
		if header.Size > 0 {
			_, err := w.Write([]byte(e.content))
			must(t, err)
		}
	}
	must(t, errors.Join(w.Close(), compressed.Close()))
	return packed.Bytes()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func file(name, content string) entry { return entry{name: name, content: content, kind: tar.TypeReg} }

// serve serves one artifact and returns it with its correct digest.
func serve(t testing.TB, content []byte) fluxsource.Artifact {
	t.Helper()
	return served(t, digest.FromBytes(content), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
}

func served(t testing.TB, sum digest.Digest, answer http.HandlerFunc) fluxsource.Artifact {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return fluxsource.Artifact{URL: server.URL + "/gitrepository/ci/pools/latest.tar.gz", Digest: sum.String()}
}

func read(t testing.TB, files fs.FS) map[string]string {
	t.Helper()
	got := map[string]string{}
	must(t, fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Type() == fs.ModeSymlink {
			got[name] = "a link"
			return nil
		}
		content, err := fs.ReadFile(files, name)
		got[name] = string(content)
		return err
	}))
	return got
}

// A folder counts once, whether it has an entry or not.
func TestAnArtifactOfAsManyFilesAndFoldersAsAllowed(t *testing.T) {
	content := archive(t, entry{name: "pools/", kind: tar.TypeDir}, file("pools/a.cue", "a"), file("pools/b.cue", "b"), file("c/d.cue", "d"))
	for limit, cause := range map[int]error{5: nil, 4: fluxsource.ErrTooLarge} {
		if _, err := fluxsource.Unpack(t.Context(), content, fluxsource.Limits{Files: limit}); !errors.Is(err, cause) {
			t.Errorf("limited to %d: %v, want %v", limit, err, cause)
		}
	}
}

func TestAnArtifactIsUnpacked(t *testing.T) {
	cases := map[string]struct {
		entries []entry
		want    map[string]string
	}{
		"files and folders": {
			[]entry{{name: "pools/", kind: tar.TypeDir}, file("pools/a.cue", "a"), file("b.cue", "")},
			map[string]string{"pools/a.cue": "a", "b.cue": ""},
		},
		"names are cleaned": {
			[]entry{file("./pools//a.cue", "a"), file("x/../b.cue", "b")},
			map[string]string{"pools/a.cue": "a", "b.cue": "b"},
		},
		"links are kept and not followed, and what is neither file nor folder is left out": {
			[]entry{
				file("a.cue", "a"), {name: "policies/b.rego", content: "/etc/passwd", kind: tar.TypeSymlink},
				{name: "hard", content: "a.cue", kind: tar.TypeLink}, {name: "pipe", kind: tar.TypeFifo}, {content: "of git archive", kind: tar.TypeXGlobalHeader},
			},
			map[string]string{"a.cue": "a", "policies/b.rego": "a link", "hard": "a link"},
		},
		"the last of one name counts": {[]entry{file("a.cue", "old"), file("a.cue", "new")}, map[string]string{"a.cue": "new"}},
		"nothing":                     {nil, map[string]string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files, err := new(fluxsource.Client).Fetch(t.Context(), serve(t, archive(t, tc.entries...)))
			must(t, err)
			if diff := cmp.Diff(tc.want, read(t, files)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEachDigestIsVerifiedBeforeAnythingIsUnpacked(t *testing.T) {
	content := archive(t, file("a.cue", "a"))
	cases := map[string]struct {
		digest string
		cause  error
	}{
		"sha256":            {digest.SHA256.FromBytes(content).String(), nil},
		"sha384":            {digest.SHA384.FromBytes(content).String(), nil},
		"sha512":            {digest.SHA512.FromBytes(content).String(), nil},
		"of something else": {digest.FromString("other").String(), fluxsource.ErrDigest},
		"too short":         {"sha256:abcd", fluxsource.ErrUnusable},
		"unknown":           {"blake3:" + strings.Repeat("0", 64), fluxsource.ErrUnusable},
		"none":              {"", fluxsource.ErrUnusable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			artifact := serve(t, content)
			artifact.Digest = tc.digest
			if _, err := new(fluxsource.Client).Fetch(t.Context(), artifact); !errors.Is(err, tc.cause) {
				t.Errorf("got %v, want %v", err, tc.cause)
			}
		})
	}
}

func TestABadArchiveIsRefused(t *testing.T) {
	limits := fluxsource.Limits{DownloadBytes: 4 << 10, UnpackedBytes: 64 << 10, Files: 20}
	many := make([]entry, 21)
	for i := range many {
		many[i] = entry{name: fmt.Sprint("folder-", i, "/"), kind: tar.TypeDir}
	}
	whole := archive(t, file("a.cue", "a"))
	cases := map[string]struct {
		content []byte
		cause   error
	}{
		"a name above the root":    {archive(t, file("../a.cue", "a")), fluxsource.ErrUnusable},
		"a name that climbs":       {archive(t, file("a/../../b.cue", "a")), fluxsource.ErrUnusable},
		"an absolute name":         {archive(t, file("/a.cue", "a")), fluxsource.ErrUnusable},
		"a backslash":              {archive(t, file(`..\a.cue`, "a")), fluxsource.ErrUnusable},
		"a long name":              {archive(t, file(strings.Repeat("a", 256), "a")), fluxsource.ErrUnusable},
		"the root as a file":       {archive(t, file(".", "a")), fluxsource.ErrUnusable},
		"a file that is a folder":  {archive(t, file("a", "a"), file("a/b.cue", "b")), fluxsource.ErrUnusable},
		"a folder that is a file":  {archive(t, file("a/b.cue", "b"), file("a", "a")), fluxsource.ErrUnusable},
		"the root as a link":       {archive(t, entry{name: ".", content: "b", kind: tar.TypeSymlink}), fluxsource.ErrUnusable},
		"no gzip":                  {[]byte("pools: {}"), fluxsource.ErrUnusable},
		"nothing at all":           {nil, fluxsource.ErrUnusable},
		"gzip of no archive":       {compressed(t, strings.Repeat("x", 1024)), fluxsource.ErrUnusable},
		"an end that is missing":   {whole[:len(whole)/2], fluxsource.ErrUnusable},
		"deep folders":             {archive(t, file(strings.Repeat("a/", 64)+"b.cue", "b")), fluxsource.ErrTooLarge},
		"too many folders":         {archive(t, many...), fluxsource.ErrTooLarge},
		"folders without entries":  {archive(t, file(strings.Repeat("a/", 20)+"b.cue", "b")), fluxsource.ErrTooLarge},
		"files that inflate":       {archive(t, file("zeros", strings.Repeat("\x00", 65<<10))), fluxsource.ErrTooLarge},
		"many files that inflate":  {archive(t, file("a", strings.Repeat("a", 40<<10)), file("b", strings.Repeat("b", 40<<10))), fluxsource.ErrTooLarge},
		"headers that inflate":     {archive(t, entry{kind: tar.TypeXGlobalHeader, content: strings.Repeat("a", 90<<10)}), fluxsource.ErrTooLarge},
		"more than is received":    {archive(t, file("noise", noise(8<<10))), fluxsource.ErrTooLarge},
		"a file larger than told":  {compressed(t, string(sparse(t))), fluxsource.ErrTooLarge},
		"a size beyond everything": {compressed(t, string(huge(t))), fluxsource.ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := (&fluxsource.Client{Limits: limits}).Fetch(t.Context(), serve(t, tc.content))
			if !errors.Is(err, tc.cause) {
				t.Errorf("got %v, want %v", err, tc.cause)
			}
		})
	}
}

func compressed(t testing.TB, content string) []byte {
	t.Helper()
	b := &bytes.Buffer{}
	w := gzip.NewWriter(b)
	_, err := io.WriteString(w, content)
	must(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// noise returns a text that compresses badly.
func noise(n int) string {
	b := &strings.Builder{}
	for state := uint32(1); b.Len() < n; {
		state = state*1664525 + 1013904223
		b.WriteByte(byte(state >> 24))
	}
	return b.String()
}

// sparse returns an archive with a file of 1 GiB that takes no space, as GNU tar writes it.
func sparse(t testing.TB) []byte {
	t.Helper()
	header := make([]byte, 512)
	copy(header, "sparse")
	copy(header[100:], "0000600\x00")
	copy(header[124:], "00000000000\x00") // bytes in the archive
	header[156] = tar.TypeGNUSparse
	copy(header[257:], "ustar  \x00")
	copy(header[386:], "10000000000\x0000000000000\x00") // one piece at the end, with no bytes
	copy(header[483:], "10000000000\x00")                // 1 GiB
	copy(header[148:], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(header, make([]byte, 1024)...)
}

// huge returns an archive whose only file is declared as 4 GiB.
func huge(t testing.TB) []byte {
	t.Helper()
	b := &bytes.Buffer{}
	must(t, tar.NewWriter(b).WriteHeader(&tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 4 << 30}))
	return b.Bytes()
}

func TestAServerThatMisbehaves(t *testing.T) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	cases := map[string]struct {
		answer http.HandlerFunc
		cause  error
	}{
		"it is gone":                {http.NotFound, fluxsource.ErrNotFound},
		"410":                       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, fluxsource.ErrNotFound},
		"500":                       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, fluxsource.ErrUnavailable},
		"a redirect to another":     {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, fluxsource.ErrUnusable},
		"redirects without an end":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, fluxsource.ErrUnusable},
		"an answer that never ends": {endless, fluxsource.ErrTooLarge},
		"a header that is large": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 64<<10))
			http.NotFound(w, r)
		}, fluxsource.ErrUnavailable},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-gone:
			case <-r.Context().Done():
			}
		}, fluxsource.ErrTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if errors.Is(tc.cause, fluxsource.ErrTimeout) {
				ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			defer cancel()
			client := &fluxsource.Client{Limits: fluxsource.Limits{DownloadBytes: 64 << 10}}
			if _, err := client.Fetch(ctx, served(t, digest.FromString(""), tc.answer)); !errors.Is(err, tc.cause) {
				t.Errorf("got %v, want %v", err, tc.cause)
			}
		})
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 32<<10)); err != nil {
			return
		}
	}
}

func TestAURLThatIsNoneIsNotAsked(t *testing.T) {
	for _, url := range []string{"", "file:///etc/passwd", "http:///x", "::", "gopher://host/x"} {
		if _, err := new(fluxsource.Client).Fetch(t.Context(), fluxsource.Artifact{URL: url, Digest: digest.FromString("").String()}); !errors.Is(err, fluxsource.ErrUnusable) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestTheHostIsReplacedOutsideOfTheCluster(t *testing.T) {
	artifact := serve(t, archive(t, file("a.cue", "a")))
	host := strings.TrimPrefix(strings.TrimSuffix(artifact.URL, "/gitrepository/ci/pools/latest.tar.gz"), "http://")
	artifact.URL = strings.Replace(artifact.URL, host, "source-controller.flux-system.svc.cluster.local.", 1)
	files, err := (&fluxsource.Client{Host: host}).Fetch(t.Context(), artifact)
	must(t, err)
	if got := read(t, files); got["a.cue"] != "a" {
		t.Errorf("got %v", got)
	}
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	artifact := fluxsource.Artifact{URL: "http://" + listener.Addr().String() + "/x.tar.gz", Digest: digest.FromString("").String()}
	if _, err := new(fluxsource.Client).Fetch(t.Context(), artifact); !errors.Is(err, fluxsource.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// The local port differs between connections, but the error text must not.
func TestABrokenConnectionIsToldAlike(t *testing.T) {
	artifact := served(t, digest.FromString(""), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	host := strings.TrimSuffix(strings.TrimPrefix(artifact.URL, "http://"), "/gitrepository/ci/pools/latest.tar.gz")
	want := "server unavailable: " + host + ": read tcp " + host + ": read: connection reset by peer"
	if _, err := new(fluxsource.Client).Fetch(t.Context(), artifact); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// FuzzUnpack checks that no content exceeds the limits or causes a panic.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, file("pools/a.cue", "a"), entry{name: "b", content: "a", kind: tar.TypeSymlink}))
	f.Add(compressed(f, string(sparse(f))))
	f.Add(compressed(f, string(huge(f))))
	f.Fuzz(func(t *testing.T, content []byte) {
		const limit = 1 << 20
		files, err := fluxsource.Unpack(t.Context(), content, fluxsource.Limits{DownloadBytes: limit, UnpackedBytes: limit, Files: 100})
		if err != nil {
			return
		}
		total := 0
		for name, text := range read(t, files) {
			if total += len(text); !fs.ValidPath(name) || total > limit {
				t.Errorf("%q is in it, with %d bytes up to there", name, total)
			}
		}
	})
}

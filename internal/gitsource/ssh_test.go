// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/corral-dev/corral/test/sshgit"
)

const strangerSeed = 3

// authOf returns the credentials and the host key for a server.
func authOf(s *sshgit.Server) Auth { return Auth{Identity: s.Identity, KnownHosts: s.KnownHosts} }

func TestFetchOverSSH(t *testing.T) {
	r := newRepo(t)
	first := r.commit(map[string]string{"pools/linux.cue": "old"})
	r.tag("v1.0.0")
	r.tag("v1.1.0")
	second := r.commit(map[string]string{"pools/linux.cue": "new"})
	s := sshgit.Start(t)
	key := sshgit.UserKey(t)
	withPassphrase := authOf(s)
	withPassphrase.Identity, withPassphrase.Password = sshgit.Identity(t, key, "sesame"), "sesame"

	for name, tc := range map[string]struct {
		ref      Ref
		auth     Auth
		revision string
		files    map[string]string
	}{
		"the tip of a branch":      {Ref{Branch: "main"}, authOf(s), "main@sha1:" + second, map[string]string{"pools/linux.cue": "new"}},
		"an annotated tag":         {Ref{Tag: "v1.0.0"}, authOf(s), "v1.0.0@sha1:" + first, map[string]string{"pools/linux.cue": "old"}},
		"a range":                  {Ref{SemVer: "1.x"}, authOf(s), "v1.1.0@sha1:" + first, map[string]string{"pools/linux.cue": "old"}},
		"a commit":                 {Ref{Commit: second}, authOf(s), "sha1:" + second, map[string]string{"pools/linux.cue": "new"}},
		"by a key with passphrase": {Ref{Branch: "main"}, withPassphrase, "main@sha1:" + second, map[string]string{"pools/linux.cue": "new"}},
	} {
		t.Run(name, func(t *testing.T) {
			request := Request{URL: s.URL(r.dir), Ref: tc.ref, Auth: tc.auth}
			resolved, err := (&Client{}).Resolve(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			got, err := (&Client{}).Fetch(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			if resolved != tc.revision || got.Revision != tc.revision {
				t.Errorf("resolved %s, fetched %s, want %s", resolved, got.Revision, tc.revision)
			}
			if diff := cmp.Diff(tc.files, contents(t, got.FS)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefusalsOverSSH(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": strings.Repeat("a", 5000), "b/c.cue": "c"})
	empty := newRepo(t)
	s := sshgit.Start(t)
	other, strange := sshgit.Key(t, strangerSeed)
	key := sshgit.UserKey(t)
	main := Ref{Branch: "main"}
	line := string(s.KnownHosts)
	cases := map[string]struct {
		limits Limits
		url    string
		auth   func(*Auth)
		ref    Ref
		cause  error
		says   string
	}{
		"no such repository":         {url: s.URL("/none"), ref: main, cause: ErrNotFound, says: "does not appear to be a git repository"},
		"an empty repository":        {url: s.URL(empty.dir), ref: main, cause: ErrRefNotFound, says: "empty"},
		"no such branch":             {url: s.URL(r.dir), ref: Ref{Branch: "next"}, cause: ErrRefNotFound, says: "refs/heads/next"},
		"no such version":            {url: s.URL(r.dir), ref: Ref{SemVer: ">=2"}, cause: ErrRefNotFound, says: "none of the repository's 0 tags"},
		"another key":                {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.Identity = sshgit.Identity(t, strange, "") }, cause: ErrAuthRefused, says: "does not accept the key"},
		"another user":               {url: strings.Replace(s.URL(r.dir), "git@", "root@", 1), ref: main, cause: ErrAuthRefused, says: "for this user"},
		"no user":                    {url: strings.Replace(s.URL(r.dir), "git@", "", 1), ref: main, cause: ErrNotAllowed, says: "ssh://git@" + s.Address},
		"a password in the URL":      {url: strings.Replace(s.URL(r.dir), "git@", "git:x@", 1), ref: main, cause: ErrNotAllowed, says: "carries credentials"},
		"a line break in the path":   {url: s.URL("/a%0ab"), ref: main, cause: ErrNotAllowed, says: "control characters"},
		"no key":                     {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.Identity = nil }, cause: ErrAuthRefused, says: "no private key (identity)"},
		"a malformed key":            {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.Identity = []byte("secret") }, cause: ErrAuthRefused, says: "identity is not a private key in a format of ssh-keygen"},
		"a passphrase that is amiss": {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.Identity = sshgit.Identity(t, key, "sesame") }, cause: ErrAuthRefused, says: "put it under password"},
		"another passphrase":         {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.Identity, a.Password = sshgit.Identity(t, key, "sesame"), "open" }, cause: ErrAuthRefused, says: "does not open identity"},
		"a key hashed for ever": {url: s.URL(r.dir), ref: main, auth: func(a *Auth) {
			a.Identity, a.Password = hashedFor(t, sshgit.Identity(t, key, "sesame"), 1<<30), "sesame"
		}, cause: ErrAuthRefused, says: "in 1073741824 rounds"},
		"no known hosts":  {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.KnownHosts = []byte(" \n") }, cause: ErrUntrusted, says: "no host keys (known_hosts)"},
		"an unknown host": {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.KnownHosts = []byte(strings.ReplaceAll(line, "127.0.0.1", "127.0.0.2")) }, cause: ErrUntrusted, says: fmt.Sprintf("is not in known_hosts; it shows the ssh-ed25519 key %s; if that is right, add the line %q", ssh.FingerprintSHA256(s.Host.PublicKey()), line)},
		"another host key": {url: s.URL(r.dir), ref: main, auth: func(a *Auth) {
			a.KnownHosts = []byte("# ours\n" + knownhosts.Line([]string{s.Address}, other.PublicKey()))
		}, cause: ErrUntrusted, says: " shows the ssh-ed25519 key " + ssh.FingerprintSHA256(s.Host.PublicKey()) +
			", and line 2 of known_hosts has " + ssh.FingerprintSHA256(other.PublicKey()) + ": the key changed, or another server intercepts the connection"},
		"a revoked host key":        {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.KnownHosts = []byte(line + "\n@revoked " + line) }, cause: ErrUntrusted, says: "revoked"},
		"malformed known hosts":     {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.KnownHosts = []byte("# ours\nexample.com ssh-rsa x") }, cause: ErrUntrusted, says: "known_hosts:2"},
		"patterns without end":      {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.KnownHosts = []byte(strings.Repeat("*1", 60) + line) }, cause: ErrUntrusted, says: "more than 2 * in one pattern"},
		"known hosts without end":   {url: s.URL(r.dir), ref: main, auth: func(a *Auth) { a.KnownHosts = bytes.Repeat([]byte("#\n"), maxKnownHostsBytes) }, cause: ErrUntrusted, says: "more than 65536 bytes"},
		"download beyond the limit": {url: s.URL(r.dir), ref: main, limits: Limits{DownloadBytes: 100}, cause: ErrTooLarge, says: "more than 100 bytes"},
		"file beyond the limit":     {url: s.URL(r.dir), ref: main, limits: Limits{FileBytes: 4999}, cause: ErrTooLarge},
		"total beyond the limit":    {url: s.URL(r.dir), ref: main, limits: Limits{TotalBytes: 4999}, cause: ErrTooLarge},
		"objects beyond the limit":  {url: s.URL(r.dir), ref: main, limits: Limits{Objects: 4}, cause: ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request := Request{URL: tc.url, Ref: tc.ref, Auth: authOf(s)}
			if tc.auth != nil {
				tc.auth(&request.Auth)
			}
			_, err := (&Client{Limits: tc.limits}).Fetch(t.Context(), request)
			if !errors.Is(err, tc.cause) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v that says %q", err, tc.cause, tc.says)
			}
		})
	}
}

// hashedFor changes the number of rounds with which a key's passphrase is hashed.
func hashedFor(t *testing.T, data []byte, rounds uint32) []byte {
	t.Helper()
	block, _ := pem.Decode(data)
	salted := bytes.Index(block.Bytes, []byte("bcrypt")) + len("bcrypt") + 4
	salt := int(binary.BigEndian.Uint32(block.Bytes[salted:]))
	binary.BigEndian.PutUint32(block.Bytes[salted+4+salt:], rounds)
	return pem.EncodeToMemory(block)
}

// What a hostile server may do once it is trusted.
func TestHostileSSHServers(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a.cue": "a"})
	endless := bytes.Repeat([]byte("0"), 1<<15)
	for name, tc := range map[string]struct {
		run  func(context.CancelCauseFunc) func(ssh.Channel)
		want error
		says string
	}{
		"hangs at once": {func(expire context.CancelCauseFunc) func(ssh.Channel) {
			return func(channel ssh.Channel) { expire(nil); _, _ = io.Copy(io.Discard, channel) }
		}, ErrTimeout, ""},
		"hangs in the packfile": {func(expire context.CancelCauseFunc) func(ssh.Channel) {
			return func(channel ssh.Channel) {
				git := exec.Command("git-upload-pack", r.dir)
				git.Stdout = channel
				stdin, _ := git.StdinPipe()
				_ = git.Start()
				_, _ = io.ReadFull(channel, make([]byte, 60)) // part of the request
				expire(nil)
				_, _ = io.Copy(io.Discard, channel)
				_ = stdin.Close()
				_ = git.Wait()
			}
		}, ErrTimeout, ""},
		"never ends its references": {func(context.CancelCauseFunc) func(ssh.Channel) {
			return func(channel ssh.Channel) {
				for {
					if _, err := fmt.Fprintf(channel, "%04x%s", 1004, endless[:1000]); err != nil {
						return
					}
				}
			}
		}, nil, ""},
		"talks without end": {func(context.CancelCauseFunc) func(ssh.Channel) {
			return func(channel ssh.Channel) {
				for {
					if _, err := channel.Stderr().Write(endless); err != nil {
						return
					}
				}
			}
		}, ErrTooLarge, ""},
		"says why not": {func(context.CancelCauseFunc) func(ssh.Channel) {
			return func(channel ssh.Channel) { _, _ = io.WriteString(channel.Stderr(), "\nERROR: Repository not found.\n") }
		}, ErrNotFound, "ERROR: Repository not found."},
		"says something else": {func(context.CancelCauseFunc) func(ssh.Channel) {
			return func(channel ssh.Channel) { _, _ = io.WriteString(channel.Stderr(), "closed for today") }
		}, nil, `the server says "closed for today"`},
		"says nothing": {func(context.CancelCauseFunc) func(ssh.Channel) { return func(ssh.Channel) {} }, nil, "talking to the Git server"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, expire := context.WithCancelCause(t.Context())
			defer expire(nil)
			s := sshgit.Start(t)
			s.Run = tc.run(expire)
			client := &Client{Limits: Limits{DownloadBytes: 1 << 20}}
			_, err := client.Fetch(deadline{ctx}, Request{URL: s.URL(r.dir), Ref: Ref{Branch: "main"}, Auth: authOf(s)})
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
		})
	}
}

func TestCommandsAreQuoted(t *testing.T) {
	for path, want := range map[string]string{
		"/team/pools.git":   "git-upload-pack '/team/pools.git'",
		"/~ops/pools":       "git-upload-pack '~ops/pools'",
		"/a'; rm -rf /; '!": `git-upload-pack '/a'\''; rm -rf /; '\'''\!''`,
	} {
		if got, err := uploadPack(path); err != nil || got != want {
			t.Errorf("%s: got %s, want %s, %v", path, got, want, err)
		}
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"crypto/dsa" //nolint:staticcheck // to show that such keys are refused
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"

	"github.com/corral-dev/corral/test/sshgit"
)

// signers generates keys and signs with them as users do: SSH keys with git and ssh-keygen, OpenPGP keys with go-git,
// because gpg would leave an agent running.
type signers struct {
	t   *testing.T
	dir string // of the SSH keys
	pgp map[string]*openpgp.Entity
}

func newSigners(t *testing.T) *signers {
	t.Helper()
	s := &signers{t: t, dir: t.TempDir(), pgp: map[string]*openpgp.Entity{}}
	for name, seed := range map[string]byte{"alice": 11, "mallory": 12} {
		signer, key := sshgit.Key(t, seed)
		s.write(name, sshgit.Identity(t, key, ""))
		s.write(name+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()))
		s.addPGP(name, nil)
	}
	s.addPGP("old", &packet.Config{
		Time: func() time.Time { return time.Unix(1_000_000_000, 0) }, KeyLifetimeSecs: 3600, Algorithm: packet.PubKeyAlgoEdDSA,
	})
	return s
}

func (s *signers) write(name string, data []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *signers) addPGP(name string, config *packet.Config) {
	s.t.Helper()
	if config == nil {
		config = &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA}
	}
	entity, err := openpgp.NewEntity(name, "", name+"@example.com", config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.pgp[name] = entity
}

// asc returns an armored OpenPGP public key.
func (s *signers) asc(name string) []byte {
	s.t.Helper()
	buffer := &bytes.Buffer{}
	w, err := armor.Encode(buffer, openpgp.PublicKeyType, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(s.pgp[name].Serialize(w), w.Close()); err != nil {
		s.t.Fatal(err)
	}
	return buffer.Bytes()
}

// pub returns an SSH public key.
func (s *signers) pub(name string) []byte {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, name+".pub"))
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

func (s *signers) fingerprint(name string) string {
	key, _, _, _, err := ssh.ParseAuthorizedKey(s.pub(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return ssh.FingerprintSHA256(key)
}

// git runs git in a repository, configured to sign with the named SSH key.
func (s *signers) git(r *repo, name string, args ...string) {
	s.t.Helper()
	c := exec.Command("git", append([]string{
		"-C", r.dir, "-c", "gpg.format=ssh", "-c", "user.signingKey=" + filepath.Join(s.dir, name), "-c", "user.name=" + name, "-c", "user.email=" + name + "@example.com",
	}, args...)...)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (r *repo) branch(name string) {
	r.t.Helper()
	head, err := r.git.Head()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.git.Storer.SetReference(plumbing.NewHashReference(plumbing.NewBranchReferenceName(name), head.Hash())); err != nil {
		r.t.Fatal(err)
	}
}

func (s *signers) commitPGP(r *repo, name string) plumbing.Hash {
	s.t.Helper()
	tree, err := r.git.Worktree()
	if err != nil {
		s.t.Fatal(err)
	}
	hash, err := tree.Commit("signed", &git.CommitOptions{Author: signature, Signer: pgpSigner{s.pgp[name]}, AllowEmptyCommits: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return hash
}

// pgpSigner signs at the time when its key was created, because the key may have expired since.
type pgpSigner struct{ key *openpgp.Entity }

func (p pgpSigner) Sign(message io.Reader) ([]byte, error) {
	buffer := &bytes.Buffer{}
	config := &packet.Config{Time: func() time.Time { return p.key.PrimaryKey.CreationTime }}
	err := openpgp.ArmoredDetachSign(buffer, p.key, message, config)
	return buffer.Bytes(), err
}

// forge stores a copy of a commit with another message and the given signature.
func (r *repo) forge(of plumbing.Hash, signature string) {
	r.t.Helper()
	commit, err := r.git.CommitObject(of)
	if err != nil {
		r.t.Fatal(err)
	}
	if signature == "" {
		signature = commit.PGPSignature
	}
	forged := &object.Commit{Author: commit.Author, Committer: commit.Committer, TreeHash: commit.TreeHash, Message: "forged", PGPSignature: signature}
	hash := store(r.t, r.git.Storer, forged)
	if err := r.git.Storer.SetReference(plumbing.NewHashReference("refs/heads/main", hash)); err != nil {
		r.t.Fatal(err)
	}
}

// aliceSigned returns a repository with signed and unsigned branches and tags.
func aliceSigned(t *testing.T, s *signers) *repo {
	t.Helper()
	r := newRepo(t)
	at := func(branch string) { r.branch(branch) }
	r.commit(map[string]string{"a.cue": "1"})
	at("unsigned")
	r.tag("v0.9.0")
	s.git(r, "alice", "tag", "-s", "-m", "first", "v1.0.0")
	s.git(r, "alice", "tag", "v1.5.0")
	s.git(r, "mallory", "tag", "-s", "-m", "mine", "v1.6.0")
	s.git(r, "alice", "update-ref", "refs/tags/v1.7.0", "refs/tags/v1.0.0")
	s.git(r, "alice", "commit", "-S", "--allow-empty", "-m", "by ssh")
	at("ssh")
	s.git(r, "alice", "tag", "-s", "-m", "second", "v2.0.0")
	s.git(r, "mallory", "commit", "-S", "--allow-empty", "-m", "by ssh of mallory")
	at("ssh-mallory")
	by := s.commitPGP(r, "alice")
	at("pgp")
	s.commitPGP(r, "mallory")
	at("pgp-mallory")
	s.commitPGP(r, "old")
	at("pgp-expired")
	r.forge(by, "")
	at("pgp-forged")
	commit, err := r.git.CommitObject(by)
	if err != nil {
		t.Fatal(err)
	}
	r.forge(by, commit.PGPSignature+commit.PGPSignature)
	at("pgp-twice")
	r.forge(by, "-----BEGIN SIGNED MESSAGE-----\nx\n-----END SIGNED MESSAGE-----\n")
	at("x509")
	r.forge(by, "-----BEGIN SSH SIGNATURE-----\nU1NI\n-----END SSH SIGNATURE-----\n")
	at("ssh-malformed")
	ssh, err := r.git.ResolveRevision("ssh")
	if err != nil {
		t.Fatal(err)
	}
	r.forge(*ssh, "")
	at("ssh-forged")
	return r
}

func TestVerification(t *testing.T) {
	s := newSigners(t)
	r := aliceSigned(t, s)
	known, err := ParseSigners(map[string][]byte{"alice.pub": s.pub("alice"), "alice.asc": s.asc("alice"), "old.asc": s.asc("old"), "README": []byte("none")})
	if err != nil {
		t.Fatal(err)
	}
	head, tag, both := Verification{Commit: true, Signers: known}, Verification{Tag: true, Signers: known}, Verification{Commit: true, Tag: true, Signers: known}
	fingerprint := func(name string) string { return fmt.Sprintf("%X", s.pgp[name].PrimaryKey.Fingerprint) }
	cases := map[string]struct {
		verify Verification
		ref    Ref
		cause  error
		says   string
	}{
		"an SSH signature":                {head, Ref{Branch: "ssh"}, nil, ""},
		"an OpenPGP signature":            {head, Ref{Branch: "pgp"}, nil, ""},
		"none":                            {head, Ref{Branch: "unsigned"}, ErrUnsigned, `COMMIT by "Test" <test@example.com> is not signed`},
		"an SSH signature of another":     {head, Ref{Branch: "ssh-mallory"}, ErrUnsigned, `by "mallory" <mallory@example.com> is signed by SSH key ` + s.fingerprint("mallory") + " (ssh-ed25519), which is not among the 2 OpenPGP and 1 SSH keys of those who may sign"},
		"an OpenPGP signature, another's": {head, Ref{Branch: "pgp-mallory"}, ErrUnsigned, "is signed by OpenPGP key " + fingerprint("mallory") + ", which is not among the 2 OpenPGP and 1 SSH keys"},
		"a key that expired":              {head, Ref{Branch: "pgp-expired"}, ErrUnsigned, "is signed by OpenPGP key " + fingerprint("old") + ", which has expired"},
		"an OpenPGP signature, copied":    {head, Ref{Branch: "pgp-forged"}, ErrUnsigned, "claims to be signed by OpenPGP key " + fingerprint("alice")},
		"an SSH signature, copied":        {head, Ref{Branch: "ssh-forged"}, ErrUnsigned, "claims to be signed by SSH key " + s.fingerprint("alice")},
		"two signatures":                  {head, Ref{Branch: "pgp-twice"}, ErrUnsigned, "several signatures"},
		"an X.509 signature":              {head, Ref{Branch: "x509"}, ErrUnsigned, "neither OpenPGP nor an SSH key"},
		"a malformed signature":           {head, Ref{Branch: "ssh-malformed"}, ErrUnsigned, "malformed SSH signature"},
		"a signed tag":                    {tag, Ref{Tag: "v1.0.0"}, nil, ""},
		"a signed tag, by range":          {tag, Ref{SemVer: ">=2"}, nil, ""},
		"a signed tag of a signed commit": {both, Ref{Tag: "v2.0.0"}, nil, ""},
		"a signed tag of another":         {both, Ref{Tag: "v1.0.0"}, ErrUnsigned, `commit COMMIT by "Test" <test@example.com> is not signed`},
		"an annotated tag":                {tag, Ref{Tag: "v0.9.0"}, ErrUnsigned, `tag v0.9.0 by "Test" <test@example.com> is not signed`},
		"a lightweight tag":               {tag, Ref{Tag: "v1.5.0"}, ErrUnsigned, "is a lightweight tag"},
		"a tag by another":                {tag, Ref{Tag: "v1.6.0"}, ErrUnsigned, "is signed by SSH key " + s.fingerprint("mallory")},
		"an old tag as a new version":     {tag, Ref{SemVer: "1.x"}, ErrUnsigned, `tag v1.7.0 was signed under the name "v1.0.0"`},
		"a tag wanted of a branch":        {tag, Ref{Branch: "ssh"}, ErrNotAllowed, "ref names no tag"},
	}
	url, certificate := start(t, r.serve())
	commit := regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	for name, tc := range cases {
		for via, request := range map[string]Request{
			"https": {URL: url, Ref: tc.ref, Auth: Auth{CAPEM: certificate}, Verify: &tc.verify},
			"file":  {URL: "file://" + r.dir, Ref: tc.ref, Verify: &tc.verify},
		} {
			t.Run(name+" by "+via, func(t *testing.T) {
				_, err := (&Client{AllowFile: true}).Fetch(t.Context(), request)
				if !errors.Is(err, tc.cause) {
					t.Fatalf("got %v, want %v", err, tc.cause)
				}
				if err != nil && !strings.Contains(commit.ReplaceAllString(err.Error(), "COMMIT"), tc.says) {
					t.Errorf("got %v, which does not say %q", err, tc.says)
				}
			})
		}
	}
}

func TestSignersThatCannotBeRead(t *testing.T) {
	s := newSigners(t)
	large := &bytes.Buffer{}
	w, err := armor.Encode(large, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), 2*maxKeyBits)
	if err := errors.Join(packet.NewRSAPublicKey(time.Unix(1, 0), &rsa.PublicKey{N: modulus, E: 65537}).Serialize(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	armored := func(serialize ...func(io.Writer) error) map[string][]byte {
		text := &bytes.Buffer{}
		w, err := armor.Encode(text, openpgp.PublicKeyType, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range serialize {
			err = errors.Join(err, to(w))
		}
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return map[string][]byte{"a.asc": text.Bytes()}
	}
	one, huge := big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), 65_000)
	alice := s.pgp["alice"]
	identity := alice.PrimaryIdentity()
	again := slices.Repeat([]func(io.Writer) error{identity.SelfSignature.Serialize}, maxOwnSignatures+1)
	for name, tc := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"a DSA key":              {armored(packet.NewDSAPublicKey(time.Unix(1, 0), &dsa.PublicKey{Parameters: dsa.Parameters{P: one, Q: huge, G: huge}, Y: huge}).Serialize), "DSA"},
		"many signatures":        {armored(append([]func(io.Writer) error{alice.PrimaryKey.Serialize, identity.UserId.Serialize}, again...)...), "more than 100"},
		"an OpenPGP secret key":  {armored(func(w io.Writer) error { return alice.SerializePrivateWithoutSigning(w, nil) }), "private key"},
		"none":                   {nil, "no public key under a name that ends in .asc (OpenPGP) or .pub (SSH)"},
		"under another name":     {map[string][]byte{"alice": s.pub("alice")}, "no public key"},
		"a private key":          {map[string][]byte{"alice.pub": []byte("-----BEGIN OPENSSH PRIVATE KEY-----")}, "alice.pub: line 1 is not an SSH public key"},
		"with options":           {map[string][]byte{"a.pub": []byte("# ours\n\ncert-authority " + string(s.pub("alice")))}, "a.pub: line 3 has options (cert-authority)"},
		"not armored":            {map[string][]byte{"a.asc": []byte("none")}, "a.asc: is not an armored OpenPGP public key"},
		"one of two":             {map[string][]byte{"a.asc": append(s.asc("alice"), "more"...)}, "a.asc: is not an armored OpenPGP public key"},
		"more bits than allowed": {map[string][]byte{"a.asc": large.Bytes()}, "has 16385 bits, more than 8192"},
		"larger than allowed":    {map[string][]byte{"a.pub": bytes.Repeat([]byte("#\n"), maxSignersBytes)}, "more than 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseSigners(tc.files); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	both, err := ParseSigners(map[string][]byte{"team.asc": append(s.asc("alice"), s.asc("mallory")...)})
	if err != nil || len(both.pgp) != 2 {
		t.Errorf("two keys in one file: %v, %v", both, err)
	}
}

// Digests differ by keys and by mode, so that a revision accepted under one verification is not accepted under another.
func TestDigestsTellVerificationsApart(t *testing.T) {
	s := newSigners(t)
	seen := map[string]string{"": "nothing"}
	parse := func(name string) *Signers {
		known, err := ParseSigners(map[string][]byte{name + ".pub": s.pub(name)})
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	alice, mallory := parse("alice"), parse("mallory")
	for name, v := range map[string]*Verification{
		"alice's commit": {Commit: true, Signers: alice}, "alice's tag": {Tag: true, Signers: alice},
		"both": {Commit: true, Tag: true, Signers: alice}, "mallory's": {Commit: true, Signers: mallory},
	} {
		if other, ok := seen[v.Digest()]; ok {
			t.Errorf("%s is taken for %s", name, other)
		}
		seen[v.Digest()] = name
	}
	if got := (*Verification)(nil).Digest(); got != "" {
		t.Errorf("of nothing: %s", got)
	}
}

// Only the highest versions of a repository with very many are compared with a range.
func TestHighestVersionOfMany(t *testing.T) {
	var tags []string
	for i := range 2*maxVersions + 2 {
		tags = append(tags, fmt.Sprintf("1.0.%d", i))
	}
	lowest := maxVersions + 2 // of those that count
	for text, want := range map[string]string{
		"1.x": fmt.Sprintf("1.0.%d", len(tags)-1), fmt.Sprintf("<=1.0.%d", lowest): fmt.Sprintf("1.0.%d", lowest), fmt.Sprintf("<1.0.%d", lowest): "",
	} {
		for range 2 {
			got, err := highest(text, tags)
			if got != want || (want == "") != errors.Is(err, ErrRefNotFound) {
				t.Errorf("%s: got %s, %v, want %q", text, got, err, want)
			}
			slices.Reverse(tags)
		}
	}
}

func TestHighestVersion(t *testing.T) {
	tags := []string{"v1.0.0", "1.2.0", "v1.2.0", "v1.10.0", "v2.0.0-rc.1", "1.3", "latest", "v01.9.0", "release-3.0.0"}
	for wanted, want := range map[string]string{
		"*": "v1.10.0", "1.2.x": "v1.2.0", "~1.0": "v1.0.0", ">=1.0.0 <1.10.0": "v1.2.0", ">=2.0.0-0": "v2.0.0-rc.1", ">=2": "", "=1.3": "",
	} {
		if got, err := highest(wanted, tags); got != want || (err == nil) == (want == "") {
			t.Errorf("%s: got %q, %v; want %q", wanted, got, err, want)
		}
	}
	if err := checkRange("newest"); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), `semver "newest" is no range of versions`) {
		t.Errorf("got %v", err)
	}
}

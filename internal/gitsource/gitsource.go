// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package gitsource reads one revision of a Git repository into memory, within hard limits and without a git binary.
// Repositories and Git servers are not trusted. The package limits the received bytes, the inflated bytes, the number
// of objects and files, and the time.
package gitsource

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/corral-dev/corral/internal/neterr"
)

// Causes of errors. An error wraps its cause, and its text says what to do.
var (
	// ErrNotAllowed: the request itself is not allowed, for example because of a malformed URL, a scheme that is not
	// allowed, or credentials in the URL.
	ErrNotAllowed = errors.New("not allowed")
	// ErrNotFound: the repository does not exist or is not visible with these credentials.
	ErrNotFound = errors.New("repository not found")
	// ErrAuthRefused: the server refuses the credentials or requires some, or the ssh key cannot be used.
	ErrAuthRefused = errors.New("credentials refused")
	// ErrRefNotFound: the repository does not have the branch, tag or commit.
	ErrRefNotFound = errors.New("reference not found")
	// ErrTimeout: the server did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrTooLarge: the repository exceeds one of the Limits.
	ErrTooLarge = errors.New("too large")
	// ErrUntrusted: the server's host key is unknown or differs from the known key, or the known_hosts cannot be used.
	ErrUntrusted = errors.New("server not trusted")
	// ErrUnsigned: no known key has signed the commit or tag.
	ErrUnsigned = errors.New("not verified")
	// ErrUnknownSigner is an ErrUnsigned: the commit or tag is signed, but by an unknown key.
	ErrUnknownSigner = errors.New("the key is not known")
	// ErrUnusable: a tree or an answer cannot be used, for example because of a corrupt object or an invalid file name.
	ErrUnusable = errors.New("unusable")
)

// advice says what to do about a repository that is too large. The limits apply to all files of a revision and not only
// to the definitions, because Corral downloads all of them.
const advice = "keep definitions in a repository of their own"

// FetchBytes is the maximum memory that one call uses with the default Limits, in bytes.
const FetchBytes = 200 << 20

// Limits of one checkout. A field that is zero has its default.
type Limits struct {
	// ListBytes is the maximum size of the list of references in bytes. A reference takes at least 45 bytes. Default:
	// 16 MiB.
	ListBytes int64
	// DownloadBytes is the maximum size of the received objects in bytes. Default: 64 MiB.
	DownloadBytes int64
	// FileBytes is the maximum size of one inflated object in bytes. Default: 8 MiB.
	FileBytes int64
	// TotalBytes is the maximum size of all inflated objects, and of all files, in bytes. Default: 64 MiB.
	TotalBytes int64
	// Objects is the maximum number of objects in one revision, and of files and folders in it. Default: 50,000.
	Objects int
}

func (l Limits) orDefaults() Limits {
	return Limits{
		ListBytes:     cmp.Or(l.ListBytes, 16<<20),
		DownloadBytes: cmp.Or(l.DownloadBytes, 64<<20),
		FileBytes:     cmp.Or(l.FileBytes, 8<<20),
		TotalBytes:    cmp.Or(l.TotalBytes, 64<<20),
		Objects:       cmp.Or(l.Objects, 50_000),
	}
}

// Ref is the reference to check out. Exactly one of its fields is set.
type Ref struct {
	// Branch is the name of a branch, whose tip is checked out.
	Branch string
	// Tag is the name of an annotated or lightweight tag.
	Tag string
	// SemVer is a range of versions. The tag with the highest version in the range is checked out.
	SemVer string
	// Commit is a hash with 40 hexadecimal digits.
	Commit string
}

// Auth holds the credentials for a server and the keys that identify the server. The zero value is anonymous.
type Auth struct {
	// Username and Password are for basic authentication; a token goes into Password. With ssh, Password is the
	// passphrase of Identity, and the URL contains the user.
	Username, Password string
	// BearerToken is sent instead of Username and Password if it is set.
	BearerToken string
	// CAPEM holds certificates that are trusted in addition to the system's certificates.
	CAPEM []byte
	// Proxy is the proxy for https, with its credentials; if it is nil, the proxy variables of the environment apply.
	Proxy *url.URL
	// Identity is the private key for ssh, in the PEM format of ssh-keygen.
	Identity []byte
	// KnownHosts holds the host keys of ssh servers, in the format of known_hosts in sshd(8). Servers without a key in
	// it are refused.
	KnownHosts []byte
}

// Request names a revision of a repository, and the credentials to read it.
type Request struct {
	// URL of the repository: https:// or ssh://, and http:// or file:// if the Client allows it.
	URL string
	// Ref to check out.
	Ref Ref
	// Auth for the server.
	Auth Auth
	// Verify, if set, requires signatures.
	Verify *Verification
}

// Checkout is one revision with its files.
type Checkout struct {
	// Revision is NAME@sha1:COMMIT, or sha1:COMMIT if a commit was requested. NAME is the branch or tag; for a range,
	// it is the chosen tag.
	Revision string
	// FS holds the files. Symbolic links are memfs.Link, submodules memfs.Submodule.
	FS fs.FS
}

// Client reads repositories. The zero value has the default limits and allows https and ssh only. It keeps nothing
// between calls and is safe for concurrent use.
type Client struct {
	// Limits of each checkout.
	Limits Limits
	// AllowFile allows file:// URLs, which read this process's own file system.
	AllowFile bool
	// AllowHTTP allows http:// URLs, which transfer credentials and definitions unencrypted.
	AllowHTTP bool
}

// repository is an open repository.
type repository interface {
	// tags returns the names of all tags, in any order.
	tags() ([]string, error)
	// resolve returns the target of a reference, which must not be a range of versions.
	resolve(Ref) (target, error)
	// fetch returns a storage with the commit, all its trees and files, and the tag.
	fetch(context.Context, target) (storer.EncodedObjectStorer, error)
	close()
}

// target contains the objects to which a reference points.
type target struct {
	commit plumbing.Hash
	tag    plumbing.Hash // the hash of the annotated tag object; zero if there is none
}

// Resolve returns the current revision of the reference, in the form of Checkout.Revision. It needs one request, and
// none for a commit. It returns the same errors as Fetch.
func (c *Client) Resolve(ctx context.Context, request Request) (string, error) {
	if err := c.check(request); err != nil {
		return "", err
	}
	if request.Ref.Commit != "" {
		return revision(request.Ref, plumbing.NewHash(request.Ref.Commit)), nil
	}
	repo, err := c.open(ctx, request)
	if err != nil {
		return "", explain(ctx, err)
	}
	defer repo.close()
	ref, found, err := find(repo, request.Ref)
	if err != nil {
		return "", err
	}
	return revision(ref, found.commit), nil
}

// Fetch reads the current revision of the reference. An error wraps one of the causes above, or is a network error or
// the context's error.
func (c *Client) Fetch(ctx context.Context, request Request) (Checkout, error) {
	if err := c.check(request); err != nil {
		return Checkout{}, err
	}
	repo, err := c.open(ctx, request)
	if err != nil {
		return Checkout{}, explain(ctx, err)
	}
	defer repo.close()
	ref, found, err := find(repo, request.Ref)
	if err != nil {
		return Checkout{}, err
	}
	objects, err := repo.fetch(ctx, found)
	if err != nil {
		return Checkout{}, explain(ctx, err)
	}
	if err := request.Verify.check(objects, ref, found); err != nil {
		return Checkout{}, err
	}
	files, err := readTree(ctx, objects, found.commit, c.Limits.orDefaults())
	if err != nil {
		return Checkout{}, explain(ctx, err)
	}
	return Checkout{Revision: revision(ref, found.commit), FS: files}, nil
}

// find returns the target of a reference. For a range of versions, it also returns the chosen tag.
func find(repo repository, ref Ref) (Ref, target, error) {
	if ref.SemVer != "" {
		names, err := repo.tags()
		if err != nil {
			return ref, target{}, err
		}
		tag, err := highest(ref.SemVer, names)
		if err != nil {
			return ref, target{}, err
		}
		ref = Ref{Tag: tag}
	}
	found, err := repo.resolve(ref)
	return ref, found, err
}

func (c *Client) open(ctx context.Context, request Request) (repository, error) {
	location, err := url.Parse(request.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: the URL is malformed", ErrNotAllowed)
	}
	if location.Scheme == "file" {
		return openLocal(location.Path, c.Limits.orDefaults())
	}
	if location.Scheme == "ssh" {
		return openSSH(ctx, location, request.Auth, c.Limits.orDefaults())
	}
	return openHTTP(ctx, request, c.Limits.orDefaults())
}

// check refuses invalid requests before anything is sent.
func (c *Client) check(request Request) error {
	location, err := url.Parse(request.URL)
	if err != nil {
		return fmt.Errorf("%w: the URL is malformed", ErrNotAllowed)
	}
	if err := c.checkScheme(location.Scheme); err != nil {
		return err
	}
	if err := checkUser(location); err != nil {
		return err
	}
	if location.Scheme != "file" && location.Hostname() == "" {
		return fmt.Errorf("%w: the URL names no host", ErrNotAllowed)
	}
	if err := checkRef(request.Ref); err != nil {
		return err
	}
	return request.Verify.checkRef(request.Ref)
}

func (c *Client) checkScheme(scheme string) error {
	switch {
	case scheme == "file" && !c.AllowFile:
		return fmt.Errorf("%w: file:// URLs are switched off in this controller", ErrNotAllowed)
	case scheme == "http" && !c.AllowHTTP:
		return fmt.Errorf("%w: http:// URLs are switched off in this controller; use https:// or ssh://", ErrNotAllowed)
	case scheme != "file" && scheme != "http" && scheme != "https" && scheme != "ssh":
		return fmt.Errorf("%w: the URL's scheme is %q; use https:// or ssh://", ErrNotAllowed, scheme)
	}
	return nil
}

// checkUser allows a URL to contain the ssh user, but no other credentials.
func checkUser(location *url.URL) error {
	_, password := location.User.Password()
	switch {
	case location.Scheme != "ssh" && location.User != nil, password:
		return fmt.Errorf("%w: the URL carries credentials; put them into a Secret", ErrNotAllowed)
	case location.Scheme == "ssh" && location.User.Username() == "":
		return fmt.Errorf("%w: the URL names no user; most servers want git, as in ssh://git@%s", ErrNotAllowed, location.Host)
	}
	return nil
}

func checkRef(ref Ref) error {
	named := 0
	for _, name := range []string{ref.Branch, ref.Tag, ref.SemVer, ref.Commit} {
		if name != "" {
			named++
		}
	}
	if named != 1 {
		return fmt.Errorf("%w: exactly one of branch, tag, semver and commit must be named", ErrNotAllowed)
	}
	if ref.Commit != "" && !plumbing.IsHash(ref.Commit) {
		return fmt.Errorf("%w: the commit must have 40 hexadecimal digits", ErrNotAllowed)
	}
	if ref.SemVer != "" {
		return checkRange(ref.SemVer)
	}
	return nil
}

func revision(ref Ref, commit plumbing.Hash) string {
	if name := ref.Branch + ref.Tag; name != "" {
		return name + "@sha1:" + commit.String()
	}
	return "sha1:" + commit.String()
}

// explain adds one of this package's causes to an error of go-git or of the network, if one applies, and gives the
// error a text that does not change between attempts.
func explain(ctx context.Context, err error) error {
	switch {
	case isExplained(err):
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the server did not answer in time; check that it can be reached, or allow more time", ErrTimeout)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fmt.Errorf("%w: check the URL; a server may also answer so when the credentials give no access", ErrNotFound)
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return fmt.Errorf("%w: the server requires (other) credentials; a server may also answer so when the repository does not exist", ErrAuthRefused)
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return fmt.Errorf("%w: the credentials are known but may not read this repository", ErrAuthRefused)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fmt.Errorf("%w: the repository is empty; push a first commit", ErrRefNotFound)
	}
	text := neterr.Describe(err)
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		text += "; put the authority's certificate under ca.crt into the Secret of spec.git.secretRef"
	}
	return fmt.Errorf("talking to the Git server: %s", text)
}

func isExplained(err error) bool {
	causes := []error{ErrNotFound, ErrAuthRefused, ErrRefNotFound, ErrTimeout, ErrTooLarge, ErrUnusable, ErrNotAllowed, ErrUntrusted, ErrUnsigned}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

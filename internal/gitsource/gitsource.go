// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package gitsource reads one revision of a Git repository into memory, within
// hard limits and without a git binary. A repository and the server that holds it
// are not trusted: what is received, what it inflates to, how many objects and
// files there are and how long it takes are all bounded.
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

// What can be wrong with a source. Every error of this package that has one of
// these causes wraps it and says what to do.
var (
	// ErrNotAllowed is a request that can't be served as it stands: a malformed URL, a
	// scheme that is not allowed here, credentials in the URL.
	ErrNotAllowed = errors.New("not allowed")
	// ErrNotFound is a repository that is not there or not visible with these credentials.
	ErrNotFound = errors.New("repository not found")
	// ErrAuthRefused is a server that wants other credentials, or any.
	ErrAuthRefused = errors.New("credentials refused")
	// ErrRefNotFound is a branch, tag or commit that the repository does not have.
	ErrRefNotFound = errors.New("reference not found")
	// ErrTimeout is a server that did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrTooLarge is a repository beyond one of the Limits.
	ErrTooLarge = errors.New("too large")
	// ErrUntrusted is a server whose host key is not the one that is known.
	ErrUntrusted = errors.New("server not trusted")
	// ErrUnsigned is a commit or a tag that nobody signed whose key is known.
	ErrUnsigned = errors.New("not verified")
	// ErrUnknownSigner is of an ErrUnsigned that is signed with a key that is not known.
	ErrUnknownSigner = errors.New("the key is not known")
	// ErrUnusable is a tree or an answer that can't be used: a corrupt object, a file name that
	// is none.
	ErrUnusable = errors.New("unusable")
)

// advice is what to do about a repository that is too large: the limits hold for all of it, as
// all of it is received.
const advice = "keep definitions in a repository of their own"

// FetchBytes is the most memory that one call takes with the default Limits.
const FetchBytes = 200 << 20

// Limits bound one checkout. The zero value of a field stands for its default.
type Limits struct {
	// ListBytes is the most that is received as the list of references, in bytes. One takes 45 at least. Default: 16 MiB.
	ListBytes int64
	// DownloadBytes is the most that is received of objects, in bytes. Default: 64 MiB.
	DownloadBytes int64
	// FileBytes is the most that one object inflates to, in bytes. Default: 8 MiB.
	FileBytes int64
	// TotalBytes is the most that all objects inflate to, and all files hold, in bytes. Default: 64 MiB.
	TotalBytes int64
	// Objects is the most objects that one revision is made of, and the most files and folders in it. Default: 50,000.
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

// Ref names what to check out: exactly one of its fields is set.
type Ref struct {
	// Branch whose tip is meant.
	Branch string
	// Tag, annotated or not.
	Tag string
	// SemVer is a range of versions: the highest tag in it is meant.
	SemVer string
	// Commit, 40 hexadecimal digits.
	Commit string
}

// Auth is what a server is shown, and how it is known. The zero value is anonymous.
type Auth struct {
	// Username and Password of basic authentication; a token goes into Password. With ssh, Password
	// is the passphrase of Identity, and the user is in the URL.
	Username, Password string
	// BearerToken is sent instead of Username and Password when set.
	BearerToken string
	// CAPEM holds certificates to trust besides the system's.
	CAPEM []byte
	// Proxy that https goes through, with the credentials for it; that of the environment if nil.
	Proxy *url.URL
	// Identity is the private key for ssh, in PEM, as ssh-keygen writes it.
	Identity []byte
	// KnownHosts holds the host keys of ssh servers, as sshd(8) describes the file known_hosts. A
	// server that is not in it is refused.
	KnownHosts []byte
}

// Request says what to read and as whom.
type Request struct {
	// URL of the repository: https://, ssh://, and http:// or file:// where the Client allows it.
	URL string
	// Ref to check out.
	Ref Ref
	// Auth for the server.
	Auth Auth
	// Verify, if set, is what must be signed, and by whom.
	Verify *Verification
}

// Checkout is one revision.
type Checkout struct {
	// Revision as NAME@sha1:COMMIT (NAME is the branch or tag, of a range the tag that was chosen), or
	// sha1:COMMIT when a commit was asked for.
	Revision string
	// FS holds the files. Symbolic links are there as memfs.Link, submodules as memfs.Submodule.
	FS fs.FS
}

// Client reads repositories. Its zero value has the default limits and speaks https and ssh only.
// It keeps nothing between calls and may be used by several goroutines.
type Client struct {
	// Limits of each checkout.
	Limits Limits
	// AllowFile permits file:// URLs, which read this process's own file system.
	AllowFile bool
	// AllowHTTP permits http:// URLs, on which credentials and definitions travel in the clear.
	AllowHTTP bool
}

// repository is a repository that was found and whose references are known.
type repository interface {
	// tags returns the names of all tags, in any order.
	tags() ([]string, error)
	// resolve returns what a reference stands for. The reference is no range.
	resolve(Ref) (target, error)
	// fetch returns a storage that holds the commit with all its trees and files, and the tag.
	fetch(context.Context, target) (storer.EncodedObjectStorer, error)
	close()
}

// target is what a reference stands for.
type target struct {
	commit plumbing.Hash
	tag    plumbing.Hash // of the annotated tag's own object; zero if there is none
}

// Resolve returns the revision that the reference stands for now, in the form of
// Checkout.Revision. It costs one request, and none for a commit. The errors are
// those of Fetch.
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

// Fetch reads the revision that the reference stands for now. Its errors wrap one of the
// causes above, or are what the network said.
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

// find returns what a reference stands for, and the tag if it was a range of versions.
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

// check refuses what must not be asked for, before anything is asked.
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

// checkUser lets a URL name the user for ssh, and nothing else of whom it is.
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

// explain gives an error of go-git or of the network one of this package's causes
// where it has one, and a text that stays the same from one attempt to the next.
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
		return fmt.Errorf("%w: the server wants (other) credentials; a server may also answer so when the repository is not there", ErrAuthRefused)
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return fmt.Errorf("%w: the credentials are known but may not read this repository", ErrAuthRefused)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fmt.Errorf("%w: the repository is empty; push a first commit", ErrRefNotFound)
	}
	said := neterr.Describe(err)
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		said += "; put the authority's certificate under ca.crt into the Secret of spec.git.secretRef"
	}
	return fmt.Errorf("talking to the Git server: %s", said)
}

func isExplained(err error) bool {
	causes := []error{ErrNotFound, ErrAuthRefused, ErrRefNotFound, ErrTimeout, ErrTooLarge, ErrUnusable, ErrNotAllowed, ErrUntrusted, ErrUnsigned}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

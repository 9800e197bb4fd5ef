// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package gitsource reads one revision of a Git repository into memory, within
// hard limits and without a git binary. A repository and the server that holds it
// are not trusted: what is received, what it inflates to, how many objects and
// files there are and how long it takes are all bounded.
package gitsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
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
	// ErrUnusable is a tree or an answer that can't be used: a corrupt object, a file name that
	// is none, a definition that is a symbolic link.
	ErrUnusable = errors.New("unusable")
)

// advice is what to do about a repository that is too large: the limits hold for all of it, as
// all of it is received.
const advice = "keep definitions in a repository of their own"

// Limits bound one checkout. The zero value of a field stands for its default.
type Limits struct {
	// DownloadBytes is the most that is received from the server for one request, in bytes. Default: 64 MiB.
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
		DownloadBytes: orDefault(l.DownloadBytes, 64<<20),
		FileBytes:     orDefault(l.FileBytes, 8<<20),
		TotalBytes:    orDefault(l.TotalBytes, 64<<20),
		Objects:       orDefault(l.Objects, 50_000),
	}
}

func orDefault[N int | int64](n, fallback N) N {
	if n == 0 {
		return fallback
	}
	return n
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

// Auth is what a server is shown. The zero value is anonymous.
type Auth struct {
	// Username and Password of basic authentication; a token goes into Password.
	Username, Password string
	// BearerToken is sent instead of Username and Password when set.
	BearerToken string
	// CAPEM holds certificates to trust besides the system's.
	CAPEM []byte
}

// Request says what to read and as whom.
type Request struct {
	// URL of the repository: https://, and http:// or file:// where the Client allows it.
	URL string
	// Ref to check out.
	Ref Ref
	// Auth for the server.
	Auth Auth
}

// Checkout is one revision.
type Checkout struct {
	// Revision as NAME@sha1:COMMIT (NAME is the branch or tag), or sha1:COMMIT when a commit was asked for.
	Revision string
	// FS holds the files. Symbolic links and submodules are left out.
	FS fs.FS
}

// Client reads repositories. Its zero value has the default limits and speaks https only.
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
	// resolve returns the commit that a reference stands for.
	resolve(Ref) (plumbing.Hash, error)
	// fetch returns a storage that holds the commit with all its trees and files.
	fetch(context.Context, plumbing.Hash) (storer.EncodedObjectStorer, error)
	close()
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
	commit, err := repo.resolve(request.Ref)
	if err != nil {
		return "", err
	}
	return revision(request.Ref, commit), nil
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
	commit, err := repo.resolve(request.Ref)
	if err != nil {
		return Checkout{}, err
	}
	objects, err := repo.fetch(ctx, commit)
	if err != nil {
		return Checkout{}, explain(ctx, err)
	}
	files, err := readTree(ctx, objects, commit, c.Limits.orDefaults())
	if err != nil {
		return Checkout{}, explain(ctx, err)
	}
	return Checkout{Revision: revision(request.Ref, commit), FS: files}, nil
}

func (c *Client) open(ctx context.Context, request Request) (repository, error) {
	if location, err := url.Parse(request.URL); err == nil && location.Scheme == "file" {
		return openLocal(location.Path, c.Limits.orDefaults())
	}
	return openRemote(ctx, request, c.Limits.orDefaults())
}

// check refuses what must not be asked for, before anything is asked.
func (c *Client) check(request Request) error {
	location, err := url.Parse(request.URL)
	if err != nil {
		return fmt.Errorf("%w: the URL is malformed", ErrNotAllowed)
	}
	switch {
	case location.Scheme == "file" && !c.AllowFile:
		return fmt.Errorf("%w: file:// URLs are switched off in this controller", ErrNotAllowed)
	case location.Scheme == "http" && !c.AllowHTTP:
		return fmt.Errorf("%w: http:// URLs are switched off in this controller; use https://", ErrNotAllowed)
	case location.Scheme != "file" && location.Scheme != "http" && location.Scheme != "https":
		return fmt.Errorf("%w: the URL's scheme is %q; use https://", ErrNotAllowed, location.Scheme)
	case location.User != nil:
		return fmt.Errorf("%w: the URL carries credentials; put them into a Secret", ErrNotAllowed)
	case location.Scheme != "file" && location.Host == "":
		return fmt.Errorf("%w: the URL names no host", ErrNotAllowed)
	}
	return checkRef(request.Ref)
}

func checkRef(ref Ref) error {
	named := 0
	for _, name := range []string{ref.Branch, ref.Tag, ref.Commit} {
		if name != "" {
			named++
		}
	}
	if named != 1 {
		return fmt.Errorf("%w: exactly one of branch, tag and commit must be named", ErrNotAllowed)
	}
	if ref.Commit != "" && !plumbing.IsHash(ref.Commit) {
		return fmt.Errorf("%w: the commit must have 40 hexadecimal digits", ErrNotAllowed)
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
	operation := new(net.OpError)
	switch {
	case isExplained(err):
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the server did not answer in time; check that it can be reached, or allow more time", ErrTimeout)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fmt.Errorf("%w: check the URL; a server may also answer so when the credentials give no access", ErrNotFound)
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return fmt.Errorf("%w: the server wants (other) credentials; a server may also answer so when the repository is not there", ErrAuthRefused)
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return fmt.Errorf("%w: the credentials are known but may not read this repository", ErrAuthRefused)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fmt.Errorf("%w: the repository is empty; push a first commit", ErrRefNotFound)
	case errors.As(err, &operation):
		// The whole error names the local port, which differs each time.
		return fmt.Errorf("talking to the Git server: %s: %w", operation.Op, operation.Err)
	}
	return fmt.Errorf("talking to the Git server: %w", err)
}

func isExplained(err error) bool {
	for _, cause := range []error{ErrNotFound, ErrAuthRefused, ErrRefNotFound, ErrTimeout, ErrTooLarge, ErrUnusable, ErrNotAllowed} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

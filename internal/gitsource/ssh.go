// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
	"golang.org/x/net/proxy"
)

// maxStderr is the number of bytes of a server's standard error that are kept for error messages.
const maxStderr = 2048

// sshSession runs git-upload-pack on a server (gitprotocol-pack(5), "SSH Transport"). go-git's own transport supports
// neither deadlines nor limits, and reads files of the current user.
type sshSession struct {
	conn    *countedConn
	client  *ssh.Client
	session *ssh.Session
	release func() bool // stops watching the context

	download int64 // the limit for objects in bytes
	stdin    io.WriteCloser
	stdout   io.Reader
	stderr   boundedBuffer
	asked    bool // whether objects were requested
}

func openSSH(ctx context.Context, location *url.URL, auth Auth, limits Limits) (repository, error) {
	command, err := uploadPack(location.Path)
	if err != nil {
		return nil, err
	}
	identity, err := parseIdentity(auth.Identity, auth.Password)
	if err != nil {
		return nil, err
	}
	hosts, err := parseKnownHosts(auth.KnownHosts)
	if err != nil {
		return nil, err
	}
	address := location.Host
	if location.Port() == "" {
		address = net.JoinHostPort(location.Hostname(), "22")
	}
	dialled, err := proxy.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &sshSession{conn: &countedConn{Conn: dialled, limit: limits.ListBytes}, download: limits.DownloadBytes}
	s.conn.left.Store(s.conn.limit)
	s.release = context.AfterFunc(ctx, s.conn.drop)
	err = s.start(address, command, &ssh.ClientConfig{
		User: location.User.Username(), Auth: []ssh.AuthMethod{ssh.PublicKeys(identity)},
		HostKeyCallback: hosts.check, HostKeyAlgorithms: hosts.known.HostKeyAlgorithms(address),
	})
	if err != nil {
		s.close()
		return nil, s.explain(hosts.explain(err))
	}
	return newRemote(ctx, s, s, limits)
}

// uploadPack returns the command for a path, which is quoted for a POSIX shell in the same way as in Git
// (sq_quote_buf).
func uploadPack(path string) (string, error) {
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%w: the URL's path has control characters", ErrNotAllowed)
	}
	if strings.HasPrefix(path, "/~") {
		path = path[1:] // relative to a user's home, as in Git
	}
	return "git-upload-pack '" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'", nil
}

func (s *sshSession) start(address, command string, config *ssh.ClientConfig) error {
	conn, channels, requests, err := ssh.NewClientConn(s.conn, address, config)
	if err != nil {
		return err
	}
	s.client = ssh.NewClient(conn, channels, requests)
	if s.session, err = s.client.NewSession(); err != nil {
		return err
	}
	if s.stdin, err = s.session.StdinPipe(); err != nil {
		return err
	}
	if s.stdout, err = s.session.StdoutPipe(); err != nil {
		return err
	}
	s.session.Stderr = &s.stderr
	s.conn.left.Store(s.conn.limit)
	return s.session.Start(command)
}

// AdvertisedReferencesContext reads the server's references from its first message. When the context of openSSH ends,
// the connection is closed, so the call returns.
func (s *sshSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	advertised := packp.NewAdvRefs()
	err := advertised.Decode(s.output(ctx))
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && advertised.IsEmpty():
		return nil, transport.ErrEmptyRemoteRepository
	case err != nil:
		return nil, s.refusal(err)
	}
	transport.FilterUnsupportedCapabilities(advertised.Capabilities)
	return advertised, nil
}

// refusal returns the message that the server sent instead of its references, as an error.
func (s *sshSession) refusal(err error) error {
	message := ""
	line := &pktline.ErrorLine{}
	if errors.As(err, &line) {
		message = line.Text
	} else if errors.Is(err, packp.ErrEmptyInput) {
		_ = s.session.Wait() // wait until all output has arrived
		message = s.stderr.String()
	}
	message = strings.TrimSpace(message)
	if message == "" {
		return err
	}
	for _, known := range []string{"not found", "does not exist", "not appear to be a git repository", "could not be found", "no such"} {
		if strings.Contains(strings.ToLower(message), known) {
			return fmt.Errorf("%w: check the URL; a server may also answer so when the key gives no access; it says %.300q", ErrNotFound, message)
		}
	}
	return fmt.Errorf("the server says %.300q", message)
}

// UploadPack requests objects and returns the server's response. It announces no objects that the client already has.
func (s *sshSession) UploadPack(ctx context.Context, request *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	s.asked = true
	s.conn.limit = s.download
	s.conn.left.Store(s.conn.limit)
	buffer := &bytes.Buffer{}
	if err := request.UploadRequest.Encode(buffer); err != nil {
		return nil, fmt.Errorf("requesting objects: %w", err)
	}
	if err := pktline.NewEncoder(buffer).EncodeString("done\n"); err != nil {
		return nil, fmt.Errorf("requesting objects: %w", err)
	}
	if _, err := buffer.WriteTo(s.stdin); err != nil {
		return nil, fmt.Errorf("requesting objects: %w", err)
	}
	response := packp.NewUploadPackResponse(request)
	if err := response.Decode(io.NopCloser(s.output(ctx))); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return response, nil
}

// output returns a reader of the server's output. If the deadline or the limit ended the output, the reader returns an
// error for that instead of io.EOF.
func (s *sshSession) output(ctx context.Context) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := s.stdout.Read(p)
		switch {
		case err == nil:
		case s.conn.exceeded.Load():
			err = ErrTooLarge
		case ctx.Err() != nil:
			err = ctx.Err()
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

// Read calls the function.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// explain replaces an error that the limit or the key caused with a more specific one.
func (s *sshSession) explain(err error) error {
	switch {
	case s.conn.exceeded.Load():
		return sentTooMuch(s.conn.limit)
	case strings.Contains(err.Error(), "unable to authenticate"): // x/crypto has no type for this error
		return fmt.Errorf("%w: the server does not accept the key in identity for this user; a server may also answer so when the key is registered nowhere", ErrAuthRefused)
	}
	return err
}

func (s *sshSession) close() {
	if s.stdin != nil && !s.asked {
		_ = pktline.NewEncoder(s.stdin).Flush() // an empty request ends git-upload-pack
	}
	if s.client != nil {
		_ = s.client.Close()
	}
	s.release()
	s.conn.drop()
}

// countedConn is a connection that fails at the first byte beyond its limit.
type countedConn struct {
	net.Conn
	limit    int64
	left     atomic.Int64
	exceeded atomic.Bool
}

// Read fails with ErrTooLarge when more bytes arrive than the limit allows.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.left.Add(-int64(n)) < 0 {
		c.exceeded.Store(true)
		return 0, ErrTooLarge
	}
	return n, err
}

// drop closes the connection. An error of Close would have no consequence.
func (c *countedConn) drop() { _ = c.Close() }

// boundedBuffer keeps the first maxStderr bytes that are written to it.
type boundedBuffer struct {
	mu   sync.Mutex
	kept []byte
}

// Write drops the bytes beyond maxStderr.
func (w *boundedBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p[:min(len(p), maxStderr-len(w.kept))]...)
	return len(p), nil
}

func (w *boundedBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.kept)
}

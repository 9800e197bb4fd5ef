// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package sshgit serves Git repositories over SSH on the loopback interface, to one user with one key.
package sshgit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Server listens on Address until the test ends.
type Server struct {
	Address string
	// Host is the server's key, and KnownHosts is its known_hosts line.
	Host       ssh.Signer
	KnownHosts []byte
	// Identity is the private key of the user git, the only user with access.
	Identity []byte
	// Root is prepended to the requested path.
	Root string
	// Run replaces git-upload-pack if it is set.
	Run func(channel ssh.Channel)
}

// Seeds of the server's key and of the user's key.
const (
	hostSeed = 1
	userSeed = 2
)

// Key derives a key from a seed. The server uses seed 1, and its user seed 2.
func Key(t *testing.T, seed byte) (ssh.Signer, ed25519.PrivateKey) {
	t.Helper()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, private
}

// UserKey returns the key that the server accepts.
func UserKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key := Key(t, userSeed)
	return key
}

// Identity encodes a private key as ssh-keygen does.
func Identity(t *testing.T, key ed25519.PrivateKey, passphrase string) []byte {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

// Start starts a server.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{}
	s.Host, _ = Key(t, hostSeed)
	user, key := Key(t, userSeed)
	config := &ssh.ServerConfig{PublicKeyCallback: func(meta ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
		if meta.User() != "git" || !bytes.Equal(offered.Marshal(), user.PublicKey().Marshal()) {
			return nil, errors.New("unknown")
		}
		return nil, nil
	}}
	config.AddHostKey(s.Host)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s.Address = listener.Addr().String()
	s.Identity = Identity(t, key, "")
	s.KnownHosts = []byte(knownhosts.Line([]string{s.Address}, s.Host.PublicKey()))
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(t.Context(), conn, config)
		}
	}()
	return s
}

// URL returns the URL of the repository at a path.
func (s *Server) URL(path string) string { return "ssh://git@" + s.Address + path }

func (s *Server) serve(ctx context.Context, conn net.Conn, config *ssh.ServerConfig) {
	defer func() { _ = conn.Close() }()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		for request := range requests {
			if request.Type == "exec" && len(request.Payload) > 4 {
				_ = request.Reply(true, nil)
				s.exec(ctx, channel, string(request.Payload[4:]))
				break
			}
			_ = request.Reply(false, nil)
		}
	}
}

func (s *Server) exec(ctx context.Context, channel ssh.Channel, command string) {
	defer func() { _ = channel.Close() }()
	if s.Run != nil {
		s.Run(channel)
		return
	}
	git := exec.CommandContext(ctx, "sh", "-c", strings.Replace(command, "'/", "'"+s.Root+"/", 1))
	git.Stdout, git.Stderr = channel, channel.Stderr()
	stdin, err := git.StdinPipe()
	if err != nil || git.Start() != nil {
		return
	}
	go func() { _, _ = io.Copy(stdin, channel); _ = stdin.Close() }()
	status := uint32(0)
	if err := git.Wait(); err != nil {
		status = 128
	}
	_, _ = channel.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, status))
}

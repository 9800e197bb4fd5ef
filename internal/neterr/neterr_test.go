// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
)

func TestSilenceIsTheSameEachTime(t *testing.T) {
	server := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, tc := range map[string]struct {
		fail func(attempt int) error
		want string
	}{
		"a connection that is reset": {func(attempt int) error {
			return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 4711 + attempt}, Addr: server, Err: errors.New("connection reset by peer")}
		}, "no answer: read tcp 127.0.0.1:443: connection reset by peer"},
		"a name server that is away": {func(attempt int) error {
			return dial(&net.DNSError{Name: "git.example.com", Server: "10.0.0.10:53", Err: fmt.Sprintf("read udp 10.0.0.7:%d->10.0.0.10:53: read: connection refused", 4711+attempt)})
		}, "no answer: lookup git.example.com: connection refused"},
		"a name server that is slow": {func(attempt int) error {
			return dial(&net.DNSError{Name: "git.example.com", Err: fmt.Sprintf("read udp 10.0.0.7:%d->10.0.0.10:53: i/o timeout", 4711+attempt), IsTimeout: true})
		}, "no answer in time"},
		"a name that is none": {func(int) error {
			return dial(&net.DNSError{Name: "git.example.com", Server: "10.0.0.10:53", Err: "no such host", IsNotFound: true})
		}, "no answer: lookup git.example.com: no such host"},
		"a certificate that expired": {func(attempt int) error {
			return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: fmt.Sprintf("current time %d is after 0", attempt)}}
		}, "no answer: x509: certificate has expired or is not yet valid"},
		"time that is over": {func(int) error { return context.DeadlineExceeded }, "no answer in time"},
		"anything else":     {func(int) error { return errors.New("EOF") }, "no answer: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			for attempt := range 2 {
				err := &url.Error{Op: "Get", URL: "https://git.example.com/secret", Err: tc.fail(attempt)}
				if got := NoAnswer(fmt.Errorf("asking: %w", err)); got != tc.want {
					t.Errorf("attempt %d: %q, want %q", attempt, got, tc.want)
				}
			}
		})
	}
	if got := Describe(dial(&net.DNSError{Name: "git.example.com", Err: "read udp 10.0.0.7:4711->10.0.0.10:53: i/o timeout", IsTimeout: true})); got != "lookup git.example.com: i/o timeout" {
		t.Errorf("in words: %q", got)
	}
}

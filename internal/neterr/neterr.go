// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package neterr describes network errors in texts that do not change between attempts. Statuses contain these texts, and
// a controller would have to write the status after each attempt if the text changed. It is a separate package because
// several adapters need it, and adapters may not import each other.
package neterr

import (
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"strings"
)

// NoAnswer describes why a request got no response.
func NoAnswer(err error) string {
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	return "no answer: " + Describe(err)
}

// Describe returns the text of a network error without the local port, the time and the URL. It returns the text of any
// other error unchanged.
func Describe(err error) string {
	name, op, certificate, asked := new(net.DNSError), new(net.OpError), x509.CertificateInvalidError{}, new(url.Error)
	switch {
	case errors.As(err, &name):
		// The error may quote an OpError, whose text ends with the actual problem.
		return "lookup " + name.Name + ": " + name.Err[strings.LastIndex(": "+name.Err, ": "):]
	case errors.As(err, &op):
		bare := *op
		bare.Source = nil
		return bare.Error()
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		return "x509: certificate has expired or is not yet valid"
	case errors.As(err, &asked):
		return asked.Err.Error()
	}
	return err.Error()
}

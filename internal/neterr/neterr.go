// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package neterr says why a server gave no answer, in words that are the same at each attempt: they stand in a status, which is
// written when it changes. It is a package because five adapters need it, none of which imports another.
package neterr

import (
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"strings"
)

// NoAnswer says why there was no answer.
func NoAnswer(err error) string {
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	return "no answer: " + Describe(err)
}

// Describe returns the text of an error of the network without the local port, the time, and the URL that was asked. Another error's
// text is as it is.
func Describe(err error) string {
	name, op, certificate, asked := new(net.DNSError), new(net.OpError), x509.CertificateInvalidError{}, new(url.Error)
	switch {
	case errors.As(err, &name):
		// It may quote an OpError, which ends in what went wrong.
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

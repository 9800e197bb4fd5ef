// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

const (
	// maxConnections is how many connections are open at once.
	maxConnections = 2048
	// maxHead is the maximum size of a request's headers in bytes.
	maxHead = 16 << 10
	// Timeouts of a connection: for a request's headers, for the whole request, for the answer, and between two
	// requests.
	headWithin, requestWithin, writeWithin, idleFor = 5 * time.Second, 15 * time.Second, 15 * time.Second, 90 * time.Second
	// shutdownWithin is how long requests may take to finish when the server stops.
	shutdownWithin = 5 * time.Second
)

// Serve serves connections until ctx ends, and then lets active requests finish.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, MaxHeaderBytes: maxHead,
		ReadHeaderTimeout: headWithin, ReadTimeout: requestWithin, WriteTimeout: writeWithin, IdleTimeout: idleFor,
	}
	server.ErrorLog = stdlog.New(debugWriter{s.Log}, "", 0)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(newDoors(listener, time.Now)) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving webhooks: %w", err)
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWithin)
	defer cancel()
	if err := server.Shutdown(within); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ending the webhook server: %w", err)
	}
	return server.Close()
}

// debugWriter logs the HTTP server's messages at debug level only, because any client can cause them.
type debugWriter struct{ log logr.Logger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.log.V(1).Info(strings.TrimSpace(string(line)))
	return len(line), nil
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/netip"
)

// readOnlyFromAfar lets only this host, as by a port-forward to the pod, do more than read: whoever reaches the metrics could
// otherwise silence the log.
func readOnlyFromAfar(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		isNear := err == nil && from.Addr().Unmap().IsLoopback()
		if !isNear && r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "The level is changed from localhost, as by kubectl port-forward, unless the controller runs with --remote-log-level.", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestTheLogLevelIsChangedFromLocalhostOnly(t *testing.T) {
	for from, want := range map[string]int{
		"127.0.0.1:1": http.StatusOK, "[::1]:1": http.StatusOK, "[::ffff:127.0.0.1]:1": http.StatusOK,
		"10.0.0.1:1": http.StatusForbidden, "[fe80::1]:1": http.StatusForbidden, "": http.StatusForbidden,
	} {
		level := zap.NewAtomicLevel()
		send := func(method string) int {
			r, w := httptest.NewRequest(method, "/loglevel", strings.NewReader(`{"level":"error"}`)), httptest.NewRecorder()
			r.RemoteAddr = from
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
			readOnlyFromAfar(level).ServeHTTP(w, r)
			return w.Code
		}
		if got := send(http.MethodGet); got != http.StatusOK {
			t.Errorf("GET from %q is answered %d", from, got)
		}
		if got := send(http.MethodPut); got != want || (level.String() == "error") != (want == http.StatusOK) {
			t.Errorf("PUT from %q is answered %d, and the level is %s; want %d", from, got, level, want)
		}
	}
}

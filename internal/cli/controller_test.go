// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/net/http/httpproxy"
	"k8s.io/client-go/rest"
)

func TestAProxyBeforeTheAPIServerIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		environment httpproxy.Config
		config      rest.Config
		want        string
	}{
		"no proxy":                         {httpproxy.Config{}, rest.Config{Host: "https://10.96.0.1:443"}, ""},
		"a proxy for all":                  {httpproxy.Config{HTTPSProxy: "http://u:secret@proxy.example.com:3128"}, rest.Config{Host: "https://10.96.0.1:443"}, "http://u:xxxxx@proxy.example.com:3128"},
		"an address without a scheme":      {httpproxy.Config{HTTPSProxy: "http://proxy.example.com"}, rest.Config{Host: "10.96.0.1:443", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "http://proxy.example.com"},
		"the API server's range is exempt": {httpproxy.Config{HTTPSProxy: "http://proxy.example.com", NoProxy: "10.96.0.0/12,.svc"}, rest.Config{Host: "https://10.96.0.1:443"}, ""},
		"the kubeconfig names a proxy":     {httpproxy.Config{HTTPSProxy: "http://proxy.example.com"}, rest.Config{Host: "https://10.96.0.1:443", Proxy: http.ProxyFromEnvironment}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := proxyInTheWay(&tc.config, tc.environment.ProxyFunc()); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

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

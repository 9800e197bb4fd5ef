// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
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
		core, logs := observer.New(zap.InfoLevel)
		s := &levelSwitch{level: zap.NewAtomicLevel(), notices: zapr.NewLogger(zap.New(core))}
		send := func(method string) int {
			r, w := httptest.NewRequest(method, "/loglevel", strings.NewReader(`{"level":"error"}`)), httptest.NewRecorder()
			r.RemoteAddr = from
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
			s.ServeHTTP(w, r)
			return w.Code
		}
		if got := send(http.MethodGet); got != http.StatusOK || logs.Len() > 0 {
			t.Errorf("GET from %q got status %d and %d log lines", from, got, logs.Len())
		}
		if got := send(http.MethodPut); got != want || (s.level.String() == "error") != (want == http.StatusOK) {
			t.Errorf("PUT from %q is answered %d, and the level is %s; want %d", from, got, s.level, want)
		}
		if changes := logs.FilterMessage("Log level changed").FilterField(zap.String("from", "info")).FilterField(zap.String("to", "error")).Len(); changes == 1 != (want == http.StatusOK) {
			t.Errorf("PUT from %q: %d log lines", from, changes)
		}
	}
}

// Info messages of libraries are logged at debug. Their warnings and errors are kept.
func TestLibrariesAreQuiet(t *testing.T) {
	level := zap.NewAtomicLevel()
	observed, lines := observer.New(level)
	core := quietLibraries{observed}
	say := func(level zapcore.Level, function string) int {
		before := lines.Len()
		if to := core.Check(zapcore.Entry{Level: level}, nil); to != nil {
			to.Caller = zapcore.EntryCaller{Defined: true, Function: function}
			to.Write()
		}
		return lines.Len() - before
	}
	const theirs, ours = "sigs.k8s.io/controller-runtime/pkg/manager.(*x).Start", "github.com/corral-dev/corral/internal/kube.Warn"
	for name, tc := range map[string]struct {
		level    zapcore.Level
		function string
		at       zapcore.Level
		want     int
	}{
		"their talk at info":  {zap.InfoLevel, theirs, zap.InfoLevel, 0},
		"their talk at debug": {zap.InfoLevel, theirs, zap.DebugLevel, 1},
		"their errors":        {zap.ErrorLevel, theirs, zap.InfoLevel, 1},
		"ours":                {zap.InfoLevel, ours, zap.InfoLevel, 1},
		"our debugging":       {zap.DebugLevel, ours, zap.InfoLevel, 0},
		"ours at error":       {zap.InfoLevel, ours, zap.ErrorLevel, 0},
	} {
		level.SetLevel(tc.at)
		if got := say(tc.level, tc.function); got != tc.want {
			t.Errorf("%s: %d lines", name, got)
		}
	}
}

// Flag values that may contain credentials are not logged. This includes flags that take a URL.
func TestSecretFlagsAreNotLogged(t *testing.T) {
	c := newController("1.0.0")
	for _, f := range []string{"events-addr", "prometheus-server", "watch-namespaces"} {
		if err := c.Flags().Set(f, "a=https://u:hunter2@example.com?token=hunter2"); err != nil {
			t.Fatal(err)
		}
	}
	set := flagsSet(c.Flags())
	if want := map[string]string{"events-addr": "(not shown)", "prometheus-server": "(not shown)", "watch-namespaces": "[a=https://u:hunter2@example.com?token=hunter2]"}; !maps.Equal(set, want) {
		t.Errorf("got %v", set)
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Usage, "URL") && !slices.Contains(secretFlags, f.Name) {
			t.Errorf("--%s takes a URL, which may have a password, and is logged", f.Name)
		}
	})
}

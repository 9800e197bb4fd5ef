// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// secretFlags are flags whose values may contain credentials, for example in a URL. Their values are not logged.
var secretFlags = []string{"events-addr", "prometheus-server"}

// setLogger configures the logger that Corral and all libraries use. Each line of the log contains the version. notices is a
// separate logger for rare events such as the start: it always logs at level info.
func (f *controllerOptions) setLogger() (notices logr.Logger, err error) {
	level, err := zap.ParseAtomicLevel(f.logLevel)
	if err != nil {
		return notices, fmt.Errorf("reading --log-level: must be debug, info, warn or error, found %q", f.logLevel)
	}
	notices, _ = f.newLogger(zap.NewAtomicLevelAt(zap.InfoLevel)) // newLogger returns the same error in the next line
	log, err := f.newLogger(level)
	if err != nil {
		return notices, err
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	f.manager.LogLevel = &levelSwitch{level: level, notices: notices, remote: f.remoteLogLevel}
	return notices, nil
}

func (f *controllerOptions) newLogger(level zap.AtomicLevel) (logr.Logger, error) {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.TimeEncoderOfLayout(time.RFC3339Nano)
	encoder := map[string]zapcore.Encoder{"json": zapcore.NewJSONEncoder(config), "text": zapcore.NewConsoleEncoder(config)}[f.logEncoding]
	if encoder == nil {
		return logr.Logger{}, fmt.Errorf("reading --log-encoding: must be json or text, found %q", f.logEncoding)
	}
	core := quietLibraries{zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)}
	return zapr.NewLogger(zap.New(core, zap.AddCaller(), zap.Fields(zap.String("version", f.controllers.Version)))), nil
}

// libraries are the packages whose info messages describe only their own internals, such as the start of a worker. Their
// errors matter to users.
var libraries = []string{"sigs.k8s.io/controller-runtime/", "k8s.io/client-go/", "k8s.io/klog/", "k8s.io/apimachinery/"}

// quietLibraries is a zapcore.Core that logs the info messages of libraries at level debug.
type quietLibraries struct{ zapcore.Core }

// With implements zapcore.Core.
func (q quietLibraries) With(fields []zapcore.Field) zapcore.Core {
	return quietLibraries{q.Core.With(fields)}
}

// Check implements zapcore.Core. It accepts messages of libraries as well, because the caller is only known in Write.
func (q quietLibraries) Check(entry zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if q.Enabled(entry.Level) {
		return to.AddCore(entry, q)
	}
	return to
}

// Write implements zapcore.Core.
func (q quietLibraries) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Level == zapcore.InfoLevel && isOfLibrary(entry.Caller.Function) {
		entry.Level = zapcore.DebugLevel
		if !q.Enabled(entry.Level) {
			return nil
		}
	}
	return q.Core.Write(entry, fields)
}

func isOfLibrary(function string) bool {
	return slices.ContainsFunc(libraries, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}

// levelSwitch serves the log level to GET requests, and changes it for PUT requests. Unless remote is true, only requests
// from localhost can change it, because otherwise anyone with access to the metrics could silence the log. A port-forward to
// the pod counts as localhost.
type levelSwitch struct {
	level   zap.AtomicLevel
	notices logr.Logger
	// remote is true if other hosts may change the level, too.
	remote bool
}

// ServeHTTP implements http.Handler.
func (s *levelSwitch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	isNear := err == nil && from.Addr().Unmap().IsLoopback()
	if !isNear && !s.remote && r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "The log level can be changed only from localhost, for example with kubectl port-forward, unless the controller runs with --remote-log-level.", http.StatusForbidden)
		return
	}
	before := s.level.Level()
	s.level.ServeHTTP(w, r)
	now := s.level.Level()
	if now != before {
		s.notices.Info("Log level changed", "from", before.String(), "to", now.String(), "by", r.RemoteAddr)
	}
}

// flagsSet returns the flags that the user set, without values that may be secret.
func flagsSet(flags *pflag.FlagSet) map[string]string {
	set := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		set[f.Name] = f.Value.String()
		if slices.Contains(secretFlags, f.Name) {
			set[f.Name] = "(not shown)"
		}
	})
	return set
}

// watched describes the watched namespaces.
func (f *controllerOptions) watched() string {
	if len(f.manager.Namespaces) == 0 {
		return "all namespaces"
	}
	return "namespaces " + strings.Join(f.manager.Namespaces, ", ")
}

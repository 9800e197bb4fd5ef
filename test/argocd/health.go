// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package argocd runs the health scripts of examples/argocd as Argo CD does: with the same Lua implementation, the
// same libraries and the same timeout of one second. test/interop/argocd runs them in Argo CD's own code.
package argocd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Health is the result of a script.
type Health struct {
	// Status is one of Healthy, Progressing, Degraded, Suspended.
	Status string `json:"status"`
	// Message is a sentence for people. It is never empty.
	Message string `json:"message"`
}

// Customizations returns the folder with the scripts, for a test whose folder is two levels below the root.
func Customizations() string {
	return filepath.Join("..", "..", "examples", "argocd", "resource_customizations")
}

// Folder returns the folder with a kind's script and test objects.
func Folder(kind schema.GroupKind) string {
	return filepath.Join(Customizations(), kind.Group, kind.Kind)
}

// Script returns the health script of a kind.
func Script(kind schema.GroupKind) (string, error) {
	text, err := os.ReadFile(filepath.Join(Folder(kind), "health.lua"))
	if err != nil {
		return "", fmt.Errorf("reading a health script: %w", err)
	}
	return string(text), nil
}

// Ask runs a script on an object that encoding/json decoded.
func Ask(script string, object map[string]any) (Health, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	l.SetContext(ctx)
	// Argo CD's own os library is left out, because no health script needs a clock.
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return Health{}, fmt.Errorf("opening a library of Lua: %w", err)
		}
	}
	l.SetGlobal("obj", value(l, object))
	if err := l.DoString(script); err != nil {
		return Health{}, fmt.Errorf("running a health script: %w", err)
	}
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return Health{}, fmt.Errorf("a health script returned a %s", l.Get(-1).Type())
	}
	return Health{
		Status:  lua.LVAsString(answer.RawGetString("status")),
		Message: lua.LVAsString(answer.RawGetString("message")),
	}, nil
}

// value converts a JSON value to a Lua value.
func value(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		t := l.CreateTable(len(v), 0)
		for _, item := range v {
			t.Append(value(l, item))
		}
		return t
	case map[string]any:
		t := l.CreateTable(0, len(v))
		for key, item := range v {
			t.RawSetString(key, value(l, item))
		}
		return t
	}
	return lua.LNil
}

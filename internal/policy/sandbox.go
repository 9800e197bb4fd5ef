// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// forbidden are builtins that a policy can't call, by what their names begin with, beyond those
// that OPA itself knows not to be deterministic. A decision must be the same for the same input. What
// a call takes is no reason: who evaluates rules that aren't trusted does it where they can be stopped.
var forbidden = []string{
	// They reach out, read a clock, or need keys that policies don't have.
	"http.", "net.lookup", "opa.", "rand.", "uuid.rfc4122", "time.now_ns", "providers.",
	"io.jwt.", "crypto.x509.", "crypto.parse_private_keys", "crypto.hmac.",
}

// sandbox is what rules may use.
var sandbox = sync.OnceValue(func() *ast.Capabilities {
	capabilities := ast.CapabilitiesForThisVersion()
	capabilities.AllowNet = []string{}
	capabilities.Builtins = slices.DeleteFunc(capabilities.Builtins, func(b *ast.Builtin) bool {
		return b.Nondeterministic || slices.ContainsFunc(forbidden, func(name string) bool { return strings.HasPrefix(b.Name, name) })
	})
	return capabilities
})

// isForbidden tells whether OPA has a builtin of that name, and policies may not call it.
func isForbidden(name string) bool {
	return ast.BuiltinMap[name] != nil &&
		!slices.ContainsFunc(sandbox().Builtins, func(b *ast.Builtin) bool { return b.Name == name })
}

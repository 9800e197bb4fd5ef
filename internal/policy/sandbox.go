// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// forbidden contains the prefixes of builtins that a policy cannot call, in addition to those that OPA marks as
// nondeterministic: a decision must be the same for the same input. The cost of a call does not matter here, because
// untrusted rules are evaluated in a process that can be stopped.
var forbidden = []string{
	// These use the network, read a clock, or need keys that policies do not have.
	"http.", "net.lookup", "opa.", "rand.", "uuid.rfc4122", "time.now_ns", "providers.",
	"io.jwt.", "crypto.x509.", "crypto.parse_private_keys", "crypto.hmac.",
}

// sandbox returns the OPA capabilities that rules may use.
var sandbox = sync.OnceValue(func() *ast.Capabilities {
	capabilities := ast.CapabilitiesForThisVersion()
	capabilities.AllowNet = []string{}
	capabilities.Builtins = slices.DeleteFunc(capabilities.Builtins, func(b *ast.Builtin) bool {
		return b.Nondeterministic || slices.ContainsFunc(forbidden, func(name string) bool { return strings.HasPrefix(b.Name, name) })
	})
	return capabilities
})

// isForbidden reports whether OPA has a builtin of that name that policies may not call.
func isForbidden(name string) bool {
	return ast.BuiltinMap[name] != nil &&
		!slices.ContainsFunc(sandbox().Builtins, func(b *ast.Builtin) bool { return b.Name == name })
}

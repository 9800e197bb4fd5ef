// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/internal/schedule"
)

// zoned are the builtins that take a time as [ns, zone].
var zoned = []string{ast.Date.Name, ast.Clock.Name, ast.Weekday.Name, ast.AddDate.Name, ast.Diff.Name, ast.Format.Name}

// init makes these builtins refuse the zone Local: the machine's local zone is not part of the input, so an answer must
// not depend on it. This changes OPA's only table of builtins, which no other package of the process uses.
func init() {
	for _, name := range zoned {
		original := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, result func(*ast.Term) error) error {
			for _, operand := range operands {
				if at, ok := operand.Value.(*ast.Array); ok && at.Len() > 1 && at.Elem(1).Equal(localZone) {
					return schedule.ErrLocal
				}
			}
			return original(ctx, operands, result)
		})
	}
}

var localZone = ast.StringTerm("Local")

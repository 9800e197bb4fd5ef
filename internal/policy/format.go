// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
)

// FormatRego formats a file of Rego as opa fmt does. An error contains the position of the first mistake. An empty file
// is returned unchanged.
func FormatRego(name string, text []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 { // OPA reports an error for an empty file
		return text, nil
	}
	text, err := format.SourceWithOpts(name, text, format.Opts{RegoVersion: ast.RegoV1})
	var several ast.Errors
	if errors.As(err, &several) {
		first := several[0]
		return nil, fmt.Errorf("%s:%d:%d: %s", name, first.Location.Row, max(1, first.Location.Col), first.Message)
	}
	return text, err
}

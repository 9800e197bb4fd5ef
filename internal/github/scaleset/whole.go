// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"encoding/json"
	"errors"
	"slices"
)

// errPartial is the error for an answer without a field that GitHub always sends. The official client would read it as
// an empty list, or as a scale set or runner without an id.
var errPartial = errors.New("required fields are missing from the response")

// named identifies a scale set, a runner or a runner group.
type named struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

func (n named) isPartial() bool { return n.ID == 0 || n.Name == "" }

// hasShape reports whether isWhole can check the endpoint's answers.
func (e endpoint) hasShape() bool {
	return e.isList() || e == endpointScaleSetGet || e == endpointScaleSetCreate || e == endpointScaleSetUpdate || e == endpointRunnerGet
}

// isWhole reports whether an answer of an endpoint has all fields that GitHub always sends. hasShape must be true for
// the endpoint.
func isWhole(e endpoint, body []byte) bool {
	if !e.isList() {
		var one named
		return json.Unmarshal(trimBOM(body), &one) == nil && !one.isPartial()
	}
	var list struct {
		Count *int    `json:"count"`
		Value []named `json:"value"`
	}
	err := json.Unmarshal(trimBOM(body), &list)
	return err == nil && list.Count != nil && list.Value != nil && *list.Count == len(list.Value) && !slices.ContainsFunc(list.Value, named.isPartial)
}

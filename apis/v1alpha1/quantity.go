// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a quantity's text. Parsing 1e-2147483647 takes hours, and a megabyte of digits takes seconds.
const (
	maxQuantityBytes  = 64
	maxExponentDigits = 3
)

// Quantity is an amount in the notation of Kubernetes: 250m, 2, 8Gi.
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:Pattern=`^[+-]?([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
type Quantity string

// UnmarshalJSON accepts a string or a number that is a quantity.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	text := string(data)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	*q = Quantity(text)
	_, err := q.Parse()
	return err
}

// Parse parses a quantity. It first rejects texts that would take long to parse, so always use it instead of the library.
func (q Quantity) Parse() (resource.Quantity, error) {
	_, exponent, _ := strings.Cut(strings.ToLower(string(q)), "e")
	if len(q) <= maxQuantityBytes && len(strings.TrimLeft(exponent, "+-")) <= maxExponentDigits {
		if parsed, err := resource.ParseQuantity(string(q)); err == nil { //nolint:forbidigo // texts that take hours were rejected
			return parsed, nil
		}
	}
	return resource.Quantity{}, fmt.Errorf("%.40q is not a quantity: write it as 250m, 2 or 8Gi", string(q))
}

// MayTakeLong reports whether JSON may hold a quantity that takes long to parse. It is quick, and may report true for harmless JSON:
// it does not decode escapes.
func MayTakeLong(data []byte) bool {
	digits, exponent := 0, false
	for _, c := range data {
		switch {
		case c >= '0' && c <= '9':
			if digits++; digits > maxQuantityBytes || exponent && digits > maxExponentDigits {
				return true
			}
		case c == '\\':
			return true
		default:
			exponent = c == 'e' || c == 'E' || exponent && (c == '+' || c == '-')
			digits = 0
		}
	}
	return false
}

// Float returns the approximate value; NaN if it is not a valid quantity.
func (q Quantity) Float() float64 {
	parsed, err := q.Parse()
	if err != nil {
		return math.NaN()
	}
	return parsed.AsApproximateFloat64()
}

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

// Quantity is an amount as Kubernetes writes it: 250m, 2, 8Gi.
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:Pattern=`^[+-]?([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
type Quantity string

// UnmarshalJSON takes a string or a number that is a quantity.
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

// Parse is the one way to read a quantity: what takes long to parse is refused before.
func (q Quantity) Parse() (resource.Quantity, error) {
	_, exponent, _ := strings.Cut(strings.ToLower(string(q)), "e")
	if len(q) <= maxQuantityBytes && len(strings.TrimLeft(exponent, "+-")) <= maxExponentDigits {
		if parsed, err := resource.ParseQuantity(string(q)); err == nil { //nolint:forbidigo // what takes hours was refused
			return parsed, nil
		}
	}
	return resource.Quantity{}, fmt.Errorf("%.40q is no quantity: write it as 250m, 2 or 8Gi", string(q))
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

// Float returns about how much it is; NaN if it is no quantity.
func (q Quantity) Float() float64 {
	parsed, err := q.Parse()
	if err != nil {
		return math.NaN()
	}
	return parsed.AsApproximateFloat64()
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import "errors"

// Prices are what runners cost, from a reviewed file.
type Prices struct{}

// ReadPrices reads a price file in YAML. An error names the field, with its line where it is known.
func ReadPrices(_ []byte) (*Prices, error) { return nil, errors.New("not written yet") }

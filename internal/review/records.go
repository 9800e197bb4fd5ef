// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"errors"
	"io"
)

// Record is a decision of the decision log.
type Record struct{}

// ReadRecords reads the lines of a decision log, JSON each, and passes over lines that are none. It returns how many it could not
// read. An error says that reading failed, or that there is more than is read.
func ReadRecords(_ io.Reader) (records []Record, skipped int, err error) {
	return nil, 0, errors.New("not written yet")
}

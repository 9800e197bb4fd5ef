// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package review says what a change of definitions and policies would do, before it is merged: to pools, their numbers, their pods
// and their jobs, and what it costs. It is pure: two compiled sides and what is known of prices, of recorded decisions and of the
// cluster go in, one Result comes out, from which every form of report is made.
package review

import (
	"context"
	"errors"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
)

// Input is what a review is made of.
type Input struct {
	// Base is what is; Head what would be.
	Base, Head Side
	// At is the time that policies and schedules are asked about; Zone the controller's time zone in the IANA database.
	At   time.Time
	Zone string
	// Records of decisions, or none; see ReadRecords.
	Records []Record
	// Live is the cluster as it is, by pool NAMESPACE/NAME; nil unless it was asked for. A pool that isn't in it is not in the cluster.
	Live map[string]*v1alpha1.RunnerPool
}

// Side is one of the two compared: definitions that were compiled, and the policies that bind its pools.
type Side struct {
	// Name of the revision or folder.
	Name string
	// Objects with their namespaces filled in. Positions of fields are told where they were compiled with
	// compile.Options.Positions.
	Objects []compile.Object
	// Policies that are asked: those beside the pools, and those that a command is given.
	Policies []Policy
	// Prices, or nil; see ReadPrices.
	Prices *Prices
	// Diagnostics say why it can't be applied. With any, nothing else is read.
	Diagnostics []v1alpha1.Diagnostic
}

// Policy is a loaded policy, and where it is declared.
type Policy struct {
	*policy.Policy
	// At is where the object is declared, or the first of its files.
	At Place
	// Locate returns where a line of one of its modules stands, an empty Place if in no file; nil knows none.
	Locate func(module string, line int) Place
}

// Compare reviews a change. Each evaluation of a policy is bounded by the context's guard, see policy.WithGuard.
// An error says that an object is not of its kind; what policies fail at is in the result.
func Compare(_ context.Context, _ Input) (*Result, error) {
	return nil, errors.New("not written yet")
}

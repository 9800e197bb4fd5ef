// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// policyMemory is the maximum additional address space of a child for policies. Its parent checks the memory in use;
// this limit is for growth that is too fast for these checks.
const policyMemory = 1 << 30

// evaluation is a request to a child for policies: a policy to load or to test, or a question to a loaded policy.
type evaluation struct {
	Program  string              `json:"program,omitempty"`
	Source   *policy.Source      `json:"source,omitempty"`
	Test     *policy.TestOptions `json:"test,omitempty"`
	Question *policy.Question    `json:"question,omitempty"`
}

// loaded is the answer to a request to load a policy.
type loaded struct {
	Facts       policy.Facts          `json:"facts"`
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
}

// tested is the answer to a request to test a policy.
type tested struct {
	Report      policy.TestReport     `json:"report"`
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
}

// childError is the answer to an invalid request.
type childError struct {
	Error string `json:"error"`
}

// servePolicies answers requests until the end of its input. It writes an empty frame when it is ready.
func servePolicies(in io.Reader, out io.Writer) error {
	if err := limit(Limits{Memory: policyMemory}); err != nil {
		return fmt.Errorf("limiting the evaluation: %w", err)
	}
	_ = goFirst() // if it is not allowed, the kernel uses its default choice
	// Collect garbage as usual from here on. Until here the garbage could grow, because collecting it takes a third of
	// the CPU time of a start.
	debug.SetGCPercent(100)
	// Return the memory that was used for loading, so that the parent does not count it as growth.
	debug.SetMemoryLimit(int64(DefaultEvaluatorLimits().Rest / 4 * 3))
	if err := writeFrame(out, nil); err != nil {
		return err
	}
	programs := map[string]*policy.Policy{}
	for {
		text, err := readFrame(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		answer, err := evaluate(programs, text)
		if err == nil && len(answer) > maxFrame {
			err = fmt.Errorf("its answer has %d bytes, more than %d", len(answer), maxFrame)
		}
		if err != nil {
			answer, _ = json.Marshal(childError{err.Error()}) // a string can always be encoded
		}
		if err := writeFrame(out, answer); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
}

// evaluate executes a request.
func evaluate(programs map[string]*policy.Policy, text []byte) ([]byte, error) {
	var e evaluation
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // keeps the numbers in data as they are written
	if err := decoder.Decode(&e); err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	ctx := context.Background() // the parent stops requests that take too long
	switch {
	case e.Test != nil:
		report, diagnostics := policy.Test(ctx, *e.Source, *e.Test)
		return json.Marshal(tested{report, diagnostics})
	case e.Source != nil:
		p, diagnostics := policy.Load(*e.Source)
		programs[e.Program] = p
		return json.Marshal(loaded{p.Facts(), diagnostics})
	}
	return programs[e.Program].Answer(ctx, *e.Question)
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// policyMemory is the maximum additional address space of a child for policies. The parent checks the memory in use;
// this limit stops growth that is too fast for these checks.
const policyMemory = 1 << 30

// evaluation is a request to a policy child: to load a policy, to test a policy, or to answer a question to a loaded
// policy.
type evaluation struct {
	Program  string              `json:"program,omitempty"`
	Source   *policy.Source      `json:"source,omitempty"`
	Test     *policy.TestOptions `json:"test,omitempty"`
	Question *policy.Question    `json:"question,omitempty"`
}

// response is the answer of a child.
type response struct {
	// Facts are the facts about a loaded policy, and Report is the result of a test request.
	Facts       policy.Facts          `json:"facts,omitzero"`
	Report      policy.TestReport     `json:"report,omitzero"`
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
	// Answer is the result of Policy.Answer.
	Answer json.RawMessage `json:"answer,omitempty"`
	// Error is set if the request failed.
	Error string `json:"error,omitempty"`
}

// servePolicies answers requests until its input ends. It writes an empty object when it is ready.
func servePolicies(in io.Reader, out io.Writer) error {
	if err := limit(Limits{Memory: policyMemory}); err != nil {
		return fmt.Errorf("limiting the evaluation: %w", err)
	}
	_ = goFirst() // if this is not allowed, the kernel chooses a process as usual
	// Collect garbage at the usual rate from now on. During the start the garbage may grow, because collecting it would
	// take a third of the CPU time of the start.
	debug.SetGCPercent(100)
	// Make the runtime return the memory that loading a policy used, so that the parent does not count it as growth.
	debug.SetMemoryLimit(int64(DefaultEvaluatorLimits().Rest / 4 * 3))
	if _, err := io.WriteString(out, "{}"); err != nil {
		return fmt.Errorf("writing an answer: %w", err)
	}
	programs := map[string]*policy.Policy{}
	for {
		var e evaluation
		decoder := json.NewDecoder(in) // a new decoder, because a decoder keeps its buffer
		decoder.UseNumber()            // keeps the numbers in data as they are written
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		answer, err := evaluate(programs, e)
		if err == nil && len(answer) > maxMessage {
			err = fmt.Errorf("its answer has %d bytes, more than %d", len(answer), maxMessage)
		}
		if err != nil {
			answer, _ = json.Marshal(response{Error: err.Error()}) // a string can always be encoded
		}
		if _, err := out.Write(answer); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
}

// evaluate executes a request.
func evaluate(programs map[string]*policy.Policy, e evaluation) ([]byte, error) {
	ctx := context.Background() // the parent stops requests that take too long
	switch {
	case e.Test != nil:
		report, diagnostics := policy.Test(ctx, *e.Source, *e.Test)
		return json.Marshal(response{Report: report, Diagnostics: diagnostics})
	case e.Source != nil:
		p, diagnostics := policy.Load(*e.Source)
		programs[e.Program] = p
		return json.Marshal(response{Facts: p.Facts(), Diagnostics: diagnostics})
	}
	answer, err := programs[e.Program].Answer(ctx, *e.Question)
	if err != nil {
		return nil, err
	}
	return json.Marshal(response{Answer: answer})
}

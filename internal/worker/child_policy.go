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

// policyMemory is the most address space of a child for policies, beyond what it has when it starts. Its parent looks
// at the memory in use; this is for what grows faster than it looks.
const policyMemory = 1 << 30

// evaluation is what a child for policies reads: a policy to load or to test, or a question to one that it has.
type evaluation struct {
	Program  string              `json:"program,omitempty"`
	Source   *policy.Source      `json:"source,omitempty"`
	Test     *policy.TestOptions `json:"test,omitempty"`
	Question *policy.Question    `json:"question,omitempty"`
}

// loaded is the answer to a policy that was loaded.
type loaded struct {
	Facts       policy.Facts          `json:"facts"`
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
}

// tested is the answer to one that was tested.
type tested struct {
	Report      policy.TestReport     `json:"report"`
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
}

// childError is the answer to what can't be answered.
type childError struct {
	Error string `json:"error"`
}

// servePolicies answers until there is nothing more to read. It is ready once it has said so.
func servePolicies(in io.Reader, out io.Writer) error {
	if err := limit(Limits{Memory: policyMemory}); err != nil {
		return fmt.Errorf("limiting the evaluation: %w", err)
	}
	_ = goFirst() // where it isn't allowed, the kernel chooses as it likes
	// From here on as usual: until here garbage was let grow, as to collect it takes a third of the CPU time of a start.
	debug.SetGCPercent(100)
	// What is left of loading is given back before the parent takes it for growth.
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
			answer, _ = json.Marshal(childError{err.Error()}) // a text
		}
		if err := writeFrame(out, answer); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
}

// evaluate does what a request asks for.
func evaluate(programs map[string]*policy.Policy, text []byte) ([]byte, error) {
	var e evaluation
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // data's numbers stay as they are written
	if err := decoder.Decode(&e); err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	ctx := context.Background() // the parent ends what takes too long
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

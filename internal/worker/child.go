// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/corral-dev/corral/internal/compile"
)

// Compile compiles definitions in this process, without limits, and loads the policies that they declare. The child
// process calls it.
func Compile(files compile.Files, options compile.Options) compile.Result {
	options.Check = Check
	result := compile.Compile(files, options)
	if len(result.Diagnostics) == 0 {
		result.Diagnostics = checkPolicies(result.Objects, options.Begin)
	}
	return result
}

// maxRequestBytes is the maximum size of a child's input. Base64 enlarges the files by a third; the remainder is for
// the other fields.
const maxRequestBytes = 2 * compile.MaxTotalBytes

// IsChild reports whether this process was started to run Main.
func IsChild() bool {
	return len(os.Args) > 1 && (os.Args[1] == compileCommand || os.Args[1] == policyCommand)
}

// Main is the main function of a child. It limits its own resources, reads requests from standard input, writes results
// to standard output, and exits.
func Main() {
	var err error
	if os.Args[1] == policyCommand {
		err = servePolicies(os.Stdin, os.Stdout)
	} else {
		err = serve(os.Stdin, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// placeMark is the prefix of a line on the child's standard error that names the package or policy that the child is
// compiling.
const placeMark = "compiling "

func serve(in io.Reader, out, places io.Writer) error {
	var r request
	if err := json.NewDecoder(io.LimitReader(in, maxRequestBytes)).Decode(&r); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	if err := limit(r.Limits); err != nil {
		return fmt.Errorf("limiting the compiler: %w", err)
	}
	// Near this limit, the runtime collects garbage more often. That takes CPU time, which is limited too.
	debug.SetMemoryLimit(int64(r.Limits.Memory / 8 * 7))
	r.Options.Begin = func(place string) { fmt.Fprintf(places, "%s%s\n", placeMark, place) }
	result := Compile(r.Files, r.Options)
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

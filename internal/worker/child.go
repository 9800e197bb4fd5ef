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

// Compile compiles definitions in this process, without limits, and loads the policies that they declare. A child calls it.
func Compile(files compile.Files, options compile.Options) compile.Result {
	options.Check = Check
	result := compile.Compile(files, options)
	if len(result.Diagnostics) == 0 {
		result.Diagnostics = checkPolicies(result.Objects, options.Begin)
	}
	return result
}

// maxRequestBytes bounds what a child reads: the files in base64, and some for the rest.
const maxRequestBytes = 2 * compile.MaxTotalBytes

// IsChild says whether this process was started to call Main.
func IsChild() bool {
	return len(os.Args) > 1 && (os.Args[1] == compileCommand || os.Args[1] == policyCommand)
}

// Main is the child: it limits itself, reads requests from standard input, writes what comes of them
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

// placeMark begins a line of the child's standard error that says where it is.
const placeMark = "compiling "

func serve(in io.Reader, out, places io.Writer) error {
	var r request
	if err := json.NewDecoder(io.LimitReader(in, maxRequestBytes)).Decode(&r); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	if err := limit(r.Limits); err != nil {
		return fmt.Errorf("limiting the compiler: %w", err)
	}
	// Collecting harder near the limit costs time, which is limited too.
	debug.SetMemoryLimit(int64(r.Limits.Memory / 8 * 7))
	result := Compile(r.Files, compile.Options{
		Path: r.Path, Tags: r.Tags, AllowEmpty: r.AllowEmpty, PolicyName: r.PolicyName, Positions: r.Positions,
		Begin: func(place string) { fmt.Fprintf(places, "%s%s\n", placeMark, place) },
	})
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

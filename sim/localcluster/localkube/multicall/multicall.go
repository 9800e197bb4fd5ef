// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package multicall has the main function of binaries that contain several programs.
package multicall

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Main runs the program that the binary's name or the first argument selects. Each program reads os.Args and returns
// the exit code. With the arguments install and PATH, the binary copies itself there: `go run . install PATH` reuses a
// binary that the go command keeps in the build cache, where `go build` would link it again in each clone.
func Main(programs map[string]func() int) {
	if len(os.Args) == 3 && os.Args[1] == "install" { // before the name, because the go command names a binary after its folder
		os.Exit(install(os.Args[2]))
	}
	program, ok := programs[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		program, ok = programs[os.Args[0]]
	}
	if !ok {
		var names []string
		for name := range programs {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "The first argument must be one of: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(program())
}

func install(path string) int {
	self, err := os.Executable()
	if err == nil {
		var binary []byte
		if binary, err = os.ReadFile(self); err == nil {
			err = os.WriteFile(path, binary, 0o755)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "installing this binary:", err)
		return 1
	}
	return 0
}

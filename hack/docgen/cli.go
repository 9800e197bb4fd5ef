// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/corral-dev/corral/sim/harness"
)

// command is one command of the binary.
type command struct{ name, short string }

// cliPages generates the pages of the commands from the output of `corral help`, so that it includes the commands of
// package main.
func cliPages() (map[string]string, error) {
	binary, err := harness.Build(context.Background()) // shares the binary with tests
	if err != nil {
		return nil, err
	}
	root, err := output(binary, "help")
	if err != nil {
		return nil, err
	}
	listed, err := output(binary, "__complete", "")
	if err != nil {
		return nil, err
	}
	commands := parseCommands(listed)
	pages := map[string]string{"README.md": indexPage(root, commands)}
	for _, c := range commands {
		help, err := output(binary, "help", c.name)
		if err != nil {
			return nil, err
		}
		pages[pageName(c.name)] = commandPage(c, help)
	}
	return pages, nil
}

// output runs a program and returns its output; its standard error is in the error.
func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return string(out), nil
}

// parseCommands parses the answer to a shell that completes a command: a name, a tab and a description on each line,
// then a line that begins with a colon.
func parseCommands(listed string) []command {
	var commands []command
	for line := range strings.Lines(listed) {
		name, short, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if ok && name != "help" {
			commands = append(commands, command{name, short})
		}
	}
	return commands
}

func pageName(command string) string { return "corral_" + command + ".md" }

func indexPage(help string, commands []command) string {
	var b strings.Builder
	b.WriteString(notice + "# corral\n\n" + block(help) + "\n| command | does |\n|---|---|\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "| [corral %s](%s) | %s |\n", c.name, pageName(c.name), c.short)
	}
	return b.String()
}

func commandPage(c command, help string) string {
	return notice + "# corral " + c.name + "\n\n" + c.short + ".\n\n" + block(help) + "\nAll commands: [corral](README.md).\n"
}

func block(text string) string { return "```text\n" + strings.TrimSpace(text) + "\n```\n" }

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package quickstart reads the commands of docs/quickstart.md.
package quickstart

import (
	"regexp"
	"strings"
)

// Block is a fenced code block of the page.
type Block struct {
	// Language is the info string after the opening fence.
	Language string
	Text     string
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// Blocks returns the fenced code blocks of a page in order.
func Blocks(page string) []Block {
	var blocks []Block
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, Block{m[1], m[2]})
	}
	return blocks
}

// Step is a command and the lines that it must print, in order. A line "…" stands for any number of lines. A line
// that ends in " …" is the beginning of a longer line.
type Step struct {
	Command string
	Output  []string
}

// Output returns the lines of a console block that contains no commands. Such a block shows the output of a
// command in the preceding prose.
func (b Block) Output() []string {
	if b.Language != "console" || len(b.Steps()) > 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(b.Text), "\n")
}

// Steps returns the commands of a console block, which are the lines that begin with "$ ".
func (b Block) Steps() []Step {
	var steps []Step
	if b.Language != "console" {
		return nil
	}
	for line := range strings.Lines(b.Text) {
		line = strings.TrimRight(line, "\n")
		if command, found := strings.CutPrefix(line, "$ "); found {
			steps = append(steps, Step{Command: command})
		} else if len(steps) > 0 && line != "" {
			last := &steps[len(steps)-1]
			last.Output = append(last.Output, line)
		}
	}
	return steps
}

// Commands counts the commands of a step from the reader's point of view. A pipeline counts as one; commands
// joined by &&, || or ; count separately.
func (s Step) Commands() int {
	return 1 + strings.Count(s.Command, "&&") + strings.Count(s.Command, "||") + strings.Count(s.Command, ";")
}

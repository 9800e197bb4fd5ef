// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package quickstart reads the commands of docs/quickstart.md.
package quickstart

import (
	"regexp"
	"strings"
)

// Block is a fenced block of the page.
type Block struct {
	// Language is what stands behind the fence.
	Language string
	Text     string
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// Blocks returns the fenced blocks of a page, in their order.
func Blocks(page string) []Block {
	var blocks []Block
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, Block{m[1], m[2]})
	}
	return blocks
}

// Step is a command and what it must print: lines in this order, others between them where a line is only "…". A line that
// ends in " …" goes on.
type Step struct {
	Command string
	Output  []string
}

// Output returns the lines of a console block without commands: what a command in prose prints.
func (b Block) Output() []string {
	if b.Language != "console" || len(b.Steps()) > 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(b.Text), "\n")
}

// Steps returns the commands of a console block: lines that begin with "$ ".
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

// Commands counts the commands of a step as who types them does: a pipeline is one, and what && or ; joins are several.
func (s Step) Commands() int {
	return 1 + strings.Count(s.Command, "&&") + strings.Count(s.Command, "||") + strings.Count(s.Command, ";")
}

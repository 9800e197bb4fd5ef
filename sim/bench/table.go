// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// result contains the medians of the runs of a case.
type result struct {
	Scenario        string  `json:"scenario"`
	GitHubLatencyMS int     `json:"githubLatencyMs"`
	Runs            int     `json:"runs"`
	Figures         figures `json:"figures"`
}

// label is the header of the result's column.
func (r result) label() string {
	if r.GitHubLatencyMS == 0 {
		return r.Scenario
	}
	return fmt.Sprintf("%s, %d ms", r.Scenario, r.GitHubLatencyMS)
}

func writeJSON(path string, results []result) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

// printTables prints the figures, and then the requests by kind.
func printTables(to io.Writer, results []result, markdown bool) {
	var rows [][]string
	for _, n := range slices.Concat(figureNames, maximalFigures()) {
		rows = append(rows, row(results, n.key, n.label, n.format)...)
	}
	printTable(to, "median of the runs", results, rows, markdown)
	for _, sum := range []struct{ prefix, head string }{
		{kubePrefix, "Kubernetes requests per job or idle pool"}, {githubPrefix, "GitHub requests per job or idle pool"},
	} {
		rows = nil
		for _, key := range parts(results, sum.prefix) {
			rows = append(rows, row(results, key, strings.TrimPrefix(key, sum.prefix), "%.3f")...)
		}
		if len(rows) > 0 {
			printTable(to, sum.head, results, rows, markdown)
		}
	}
}

// parts returns the names with a prefix in any result, the most frequent first.
func parts(results []result, prefix string) []string {
	sums := map[string]float64{}
	for _, r := range results {
		for key, value := range r.Figures {
			if strings.HasPrefix(key, prefix) {
				sums[key] += value
			}
		}
	}
	return slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		if sums[a] != sums[b] {
			return int(1e6 * (sums[b] - sums[a]))
		}
		return strings.Compare(a, b)
	})
}

// row returns the cells of a figure for all results, or nothing if no result has it.
func row(results []result, key, label, format string) [][]string {
	cells, some := []string{label}, false
	for _, r := range results {
		value, ok := r.Figures[key]
		cell := ""
		if ok {
			cell, some = fmt.Sprintf(format, value), true
		}
		cells = append(cells, cell)
	}
	if !some {
		return nil
	}
	return [][]string{cells}
}

func printTable(to io.Writer, head string, results []result, rows [][]string, markdown bool) {
	heads := []string{head}
	for _, r := range results {
		heads = append(heads, r.label())
	}
	rows = append([][]string{heads}, rows...)
	widths := make([]int, len(heads))
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintln(to)
	for i, cells := range rows {
		fmt.Fprintln(to, line(cells, widths, markdown))
		if i == 0 && markdown {
			fmt.Fprintln(to, ruler(widths))
		}
	}
}

// line aligns the first cell left and the others right.
func line(cells []string, widths []int, markdown bool) string {
	padded := make([]string, len(cells))
	for i, cell := range cells {
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if padded[i] = space + cell; i == 0 {
			padded[i] = cell + space
		}
	}
	if markdown {
		return "| " + strings.Join(padded, " | ") + " |"
	}
	return strings.Join(padded, "  ")
}

func ruler(widths []int) string {
	cells := make([]string, len(widths))
	for i, width := range widths {
		if cells[i] = strings.Repeat("-", width+1) + ":"; i == 0 {
			cells[i] = strings.Repeat("-", width+2)
		}
	}
	return "|" + strings.Join(cells, "|") + "|"
}

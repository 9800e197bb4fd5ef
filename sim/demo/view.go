// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/corral-dev/corral/internal/wording"
)

// frame is the content of the view at one moment.
type frame struct {
	Elapsed time.Duration
	// Numbers of jobs: done, running, waiting for a runner, and planned.
	Done, Running, Waiting, All int
	Pools                       []poolRow
}

// poolRow is a RunnerPool as in `kubectl get runnerpools`.
type poolRow struct {
	Name                                     string
	Jobs, Desired, Busy, Idle, Starting, Max int32
	// Ready is the pool's Ready condition, and Message its message.
	Ready   bool
	Message string
	// Why is the reason of the last decision.
	Why string
}

// columns of the view; the first and the last contain text.
var columns = []string{"POOL", "JOBS", "DESIRED", "BUSY", "IDLE", "STARTING", "MAX", "WHY"}

// cells returns the text of each column.
func (r poolRow) cells() []string {
	why := r.Why
	if !r.Ready && r.Message != "" {
		why = r.Message
	}
	cells := []string{r.Name}
	for _, n := range []int32{r.Jobs, r.Desired, r.Busy, r.Idle, r.Starting, r.Max} {
		cells = append(cells, strconv.Itoa(int(n)))
	}
	return append(cells, wording.FirstLine(why))
}

// render formats a frame as lines of at most width characters.
func render(f frame, width int, p palette) []string {
	head := fmt.Sprintf("%s  %s  %d of %d jobs done, %d running, %d waiting",
		clock(f.Elapsed), bar(f.Done, f.Running, f.All), f.Done, f.All, f.Running, f.Waiting)
	lines := []string{p.bold(cut(head, width))}
	if len(f.Pools) == 0 {
		return append(lines, cut("      no pools", width))
	}
	rows := [][]string{columns}
	for _, pool := range f.Pools {
		rows = append(rows, pool.cells())
	}
	for i, line := range align(rows) {
		line = cut("      "+line, width)
		if i == 0 {
			line = p.dim(line)
		} else if !f.Pools[i-1].Ready {
			line = p.red(line)
		}
		lines = append(lines, line)
	}
	return lines
}

// align pads rows into columns: the first and the last column left-aligned, the numbers right-aligned.
func align(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch i {
			case 0:
				b.WriteString(cell + padding)
			case len(row) - 1:
				b.WriteString("  " + cell)
			default:
				b.WriteString("  " + padding + cell)
			}
		}
		lines = append(lines, b.String())
	}
	return lines
}

// bar draws a progress bar of the done and running jobs.
func bar(done, running, all int) string {
	const length = 24
	all = max(all, 1)
	d := done * length / all
	r := (done+running)*length/all - d
	return "[" + strings.Repeat("#", d) + strings.Repeat("+", r) + strings.Repeat(".", length-d-r) + "]"
}

// clock formats a duration as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// cut shortens a line to width characters.
func cut(line string, width int) string {
	runes := []rune(line)
	if len(runes) <= width || width < 1 {
		return line
	}
	return string(runes[:width-1]) + "…"
}

// readiness describes which pools became unready, or ready again, between two frames.
func readiness(before, after []poolRow) []string {
	was := map[string]poolRow{}
	for _, row := range before {
		was[row.Name] = row
	}
	var lines []string
	for _, row := range after {
		old, known := was[row.Name]
		switch {
		case known && old.Ready && !row.Ready:
			lines = append(lines, fmt.Sprintf("%s is not ready: %s", row.Name, wording.FirstLine(row.Message)))
		case known && !old.Ready && row.Ready:
			lines = append(lines, fmt.Sprintf("%s is ready: %s", row.Name, wording.FirstLine(row.Message)))
		}
	}
	return lines
}

// palette colors text if it is true.
type palette bool

func (p palette) sgr(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p palette) bold(text string) string  { return p.sgr("1", text) }
func (p palette) dim(text string) string   { return p.sgr("2", text) }
func (p palette) red(text string) string   { return p.sgr("31", text) }
func (p palette) green(text string) string { return p.sgr("32", text) }

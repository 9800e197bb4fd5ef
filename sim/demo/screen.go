// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	// plainWidth is the line width if the output is not a terminal.
	plainWidth = 120
	// plainInterval is the time between two views if the output is not a terminal.
	plainInterval = 5 * time.Second
	// statusInterval is the time between two lines of a long step if the output is not a terminal.
	statusInterval = 30 * time.Second
)

// screen prints permanent lines. On a terminal, it shows a view below them that is updated in place. Otherwise it
// prints the view from time to time.
type screen struct {
	out     io.Writer
	live    bool
	palette palette
	width   func() int
	started time.Time

	mu    sync.Mutex
	view  []string  // on a terminal: the lines of the view
	drawn time.Time // otherwise: when a view was last printed
}

func newScreen(file *os.File, noColor bool) *screen {
	fd := int(file.Fd())
	live := term.IsTerminal(fd) && os.Getenv("TERM") != "dumb"
	s := &screen{out: file, live: live, palette: palette(live && !noColor), started: time.Now(), width: func() int { return plainWidth }}
	if live {
		s.width = func() int {
			width, _, err := term.GetSize(fd)
			if err != nil || width < 1 {
				return plainWidth
			}
			return width
		}
	}
	return s
}

// say prints a message after the elapsed time.
func (s *screen) say(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n      ")
	s.print(clock(time.Since(s.started)) + "  " + strings.ReplaceAll(text, "      \n", "\n"))
}

// print prints permanent lines.
func (s *screen) print(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erased() + joined(lines) + joined(s.view))
}

// draw replaces the view.
func (s *screen) draw(f frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := render(f, s.width(), s.palette)
	if s.live {
		before := s.erased()
		s.view = lines
		s.write(before + joined(lines))
		return
	}
	if time.Since(s.drawn) >= plainInterval {
		s.drawn = time.Now()
		s.write(joined(lines))
	}
}

// leave keeps the view as permanent lines: later output appears below it.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = nil
}

// Status replaces the view with one line, until the next one. An empty line removes it. Without a terminal, such lines are
// printed from time to time.
func (s *screen) Status(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var view []string
	if line != "" {
		view = []string{cut(clock(time.Since(s.started))+"  "+line, s.width())}
	}
	if s.live {
		before := s.erased()
		s.view = view
		s.write(before + joined(view))
		return
	}
	if line != "" && time.Since(s.drawn) >= statusInterval {
		s.drawn = time.Now()
		s.write(joined(view))
	}
}

// Write prints the progress of a long step.
func (s *screen) Write(text []byte) (int, error) {
	s.print(strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

// erased returns the escape sequence that removes the view from a terminal.
func (s *screen) erased() string {
	if len(s.view) == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", len(s.view))
}

// write ignores errors: if the reader of the output is gone, SIGPIPE ends the demo.
func (s *screen) write(text string) { _, _ = io.WriteString(s.out, text) }

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

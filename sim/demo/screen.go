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
	// plainWidth is the width of lines that don't go to a terminal.
	plainWidth = 120
	// plainInterval is the time between two views that don't go to a terminal.
	plainInterval = 5 * time.Second
)

// screen writes lines that stay, and below them on a terminal one view that is drawn
// again and again. Elsewhere the view is written now and then.
type screen struct {
	out     io.Writer
	live    bool
	palette palette
	width   func() int
	started time.Time

	mu    sync.Mutex
	view  []string  // on a terminal: what stands at the bottom
	drawn time.Time // elsewhere: when a view was written last
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

// say writes what happened, with the time before the first line.
func (s *screen) say(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n      ")
	s.print(clock(time.Since(s.started)) + "  " + strings.ReplaceAll(text, "      \n", "\n"))
}

// print writes lines that stay.
func (s *screen) print(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erased() + joined(lines) + joined(s.view))
}

// draw shows a view in the place of the last one.
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

// leave lets the view stand where it is: what follows is written below it.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = nil
}

// Write passes on the progress of a long step.
func (s *screen) Write(text []byte) (int, error) {
	s.print(strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

// erased returns what takes the view off a terminal.
func (s *screen) erased() string {
	if len(s.view) == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", len(s.view))
}

// write ignores errors: when nobody reads any more, a signal says so too.
func (s *screen) write(text string) { _, _ = io.WriteString(s.out, text) }

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

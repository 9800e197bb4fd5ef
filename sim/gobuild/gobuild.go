// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package gobuild runs the go command for long builds and shows how far they are. It imports nothing outside of the
// standard library: it is compiled before everything else.
package gobuild

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// terminalInterval is the time between two updates of the line on a terminal, logInterval between two lines in a log.
	terminalInterval = time.Second
	logInterval      = 30 * time.Second
	// firstEstimate is the share of the packages after which the remaining time is estimated: the first packages are
	// much smaller than the average.
	firstEstimate = 0.1
	// compiling is the share of the time of a long build that compiling takes. Linking takes the rest. Measured with the
	// build of Corral and of the control plane on two cores.
	compiling = 0.88
)

// Screen shows one line that replaces the previous one. A writer of progress that does not implement it gets a line
// every 30 seconds.
type Screen interface{ Status(line string) }

// Terminal returns file with a Screen if it is a terminal, and otherwise file itself.
func Terminal(file *os.File) io.Writer {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("TERM") == "dumb" {
		return file
	}
	return terminal{file}
}

type terminal struct{ *os.File }

func (t terminal) Status(line string) { fmt.Fprintf(t, "\r\x1b[K%s", line) }

// Build is a go command, such as `go build FLAGS PACKAGES`, with the flags and packages apart.
type Build struct {
	// Title begins each line, such as "Compiling Corral".
	Title string
	// Dir is the folder of the module, and Env the environment.
	Dir string
	Env []string
	// Verb is build or run, Flags its flags, and Args the packages with their arguments.
	Verb        string
	Flags, Args []string
}

// Run runs the build, and writes its progress to w. A Screen shows the title from the beginning. Without a Screen, Run
// writes nothing if no package has to be compiled. An error contains the compiler's output.
func (b *Build) Run(ctx context.Context, w io.Writer) error {
	start := time.Now()
	screen, isScreen := w.(Screen)
	if isScreen {
		screen.Status(b.Title + " …")
	}
	packages, err := b.compile(ctx, w)
	if isScreen {
		screen.Status("")
	}
	if err == nil && packages > 0 {
		fmt.Fprintf(w, "%s: %d packages in %s\n", b.Title, packages, time.Since(start).Round(time.Second))
	}
	return err
}

// compile runs the build, shows its progress, and returns the number of packages that had to be compiled.
func (b *Build) compile(ctx context.Context, w io.Writer) (int, error) {
	packages, err := b.stale(ctx)
	if err != nil {
		return 0, err
	}
	command := b.command(ctx, "-v")
	compiled, printed := &counter{packages: packages}, time.Now()
	command.Stdout, command.Stderr = compiled, compiled
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- command.Run() }()
	screen, isScreen := w.(Screen)
	show := func(elapsed time.Duration) {
		if len(packages) == 0 {
			return
		}
		line := b.Title + ": " + progress(int(compiled.done.Load()), len(packages), elapsed)
		switch {
		case isScreen:
			screen.Status(line)
		case elapsed == 0 || time.Since(printed) >= logInterval:
			printed = time.Now()
			fmt.Fprintln(w, line)
		}
	}
	show(0)
	tick := time.NewTicker(terminalInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return 0, fmt.Errorf("%s: %w\n%s", strings.ToLower(b.Title), err, compiled.rest())
			}
			return len(packages), nil
		case <-tick.C:
			show(time.Since(start))
		}
	}
}

// command returns the go command with another flag.
func (b *Build) command(ctx context.Context, flag string) *exec.Cmd {
	args := append([]string{b.Verb, flag}, b.Flags...)
	command := exec.CommandContext(ctx, "go", append(args, b.Args...)...)
	command.Dir, command.Env = b.Dir, withoutCollection(b.Env)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // on an interrupt, go ends its compilers; on a kill it would not
	command.WaitDelay = 5 * time.Second
	return command
}

// withoutCollection returns the environment with the compilers' garbage collection turned off until one of them uses 1 GiB
// of memory, which saves a fifth of the CPU time. A GOGC that the user has set stays.
func withoutCollection(env []string) []string {
	return append([]string{"GOGC=off", "GOMEMLIMIT=1GiB"}, env...)
}

// header matches the line with which `go build -n` begins the commands for a package.
var header = regexp.MustCompile(`(?m)^# (\S+)$`)

// stale returns the packages that are not in the build cache.
func (b *Build) stale(ctx context.Context) (map[string]bool, error) {
	command := b.command(ctx, "-n")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: listing packages: %w\n%s", strings.ToLower(b.Title), err, tail(output.String()))
	}
	packages := map[string]bool{}
	for _, match := range header.FindAllSubmatch(output.Bytes(), -1) {
		packages[string(match[1])] = true
	}
	delete(packages, "command-line-arguments")
	return packages, nil
}

// counter counts the lines that name one of the packages, and keeps the others.
type counter struct {
	packages map[string]bool
	done     atomic.Int64
	partial  []byte
	other    bytes.Buffer
}

func (c *counter) Write(text []byte) (int, error) {
	c.partial = append(c.partial, text...)
	for {
		advance, line, _ := bufio.ScanLines(c.partial, false)
		if advance == 0 {
			return len(text), nil
		}
		if c.packages[string(line)] {
			c.done.Add(1)
		} else {
			c.other.Write(c.partial[:advance])
		}
		c.partial = c.partial[advance:]
	}
}

// rest returns the end of the output, without the names of packages.
func (c *counter) rest() string { return tail(c.other.String() + string(c.partial)) }

// progress describes a build. The estimate assumes that the remaining packages take as long as the compiled ones.
func progress(done, all int, elapsed time.Duration) string {
	text := fmt.Sprintf("%d of %d packages", done, all)
	share := compiling * float64(done) / float64(all)
	switch {
	case done >= all:
		return text + ", linking"
	case share < firstEstimate:
		return text
	}
	left := time.Duration(float64(elapsed) * (1 - share) / share)
	if left < time.Minute {
		return text + ", less than a minute left"
	}
	return fmt.Sprintf("%s, about %.0f min left", text, left.Minutes())
}

// tail returns the end of a log, which contains the cause of a failure.
func tail(text string) string {
	const most = 4 << 10
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}

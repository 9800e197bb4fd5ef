// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package reservation

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// format is the first byte of the encoded form, before compression.
	format = 1
	// maxText is the maximum size of the encoded form before compression, in bytes. A ledger that reaches all limits
	// takes less.
	maxText = 4 << 20
)

// errCut is the error for an encoded form that ends too early.
var errCut = errors.New("it is truncated")

// Encode returns the ledger in compressed form: gzip of a format byte, the expiry clock in seconds, the names of the
// repositories and, for each job in the order of ids, the difference to the previous id, the state, the seconds since
// the last event, the repository and, if it is running, the runner. Numbers are varints. Most jobs take 10 bytes or
// less.
func (l *Ledger) Encode() []byte {
	text := make([]byte, 0, 64+12*len(l.jobs))
	text = append(text, format)
	text = binary.AppendUvarint(text, uint64(l.seconds()))
	text = binary.AppendUvarint(text, uint64(len(l.repos.list)))
	for _, name := range l.repos.list {
		text = appendString(text, name)
	}
	text = binary.AppendUvarint(text, uint64(len(l.jobs)))
	var id int64
	runner := ""
	for _, next := range slices.Sorted(maps.Keys(l.jobs)) {
		j := l.jobs[next]
		text = binary.AppendUvarint(text, uint64(next)-uint64(id)) //nolint:gosec // decoding reverses it
		text = append(text, byte(j.state))
		text = binary.AppendUvarint(text, uint64(l.seconds()-min(j.news, l.seconds())))
		text = binary.AppendUvarint(text, uint64(j.repo))
		if j.state == Running {
			same := common(runner, j.runner)
			text = binary.AppendUvarint(text, uint64(same))
			text = appendString(text, j.runner[same:])
			runner = j.runner
		}
		id = next
	}
	return pack(text)
}

// Decode decodes the result of Encode. The expiry clock of the ledger stands still until Pause(false) is called, and
// then continues from its stored reading.
func Decode(data []byte, now time.Time) (*Ledger, error) {
	text, err := unpack(data)
	if err != nil {
		return nil, fmt.Errorf("reading reservations: %w", err)
	}
	l, r := New(now), &reader{text: text}
	if f := r.byte(); r.err == nil && f != format {
		return nil, fmt.Errorf("reading reservations: unknown format %d", f)
	}
	l.elapsed = time.Duration(r.number(1<<32-1)) * time.Second //nolint:gosec // it is bounded
	names := r.number(maxRepositories)
	for i := uint64(0); i < names && r.err == nil; i++ {
		if name := r.string(maxName); i > 0 && l.repos.index(name) != uint16(i) { //nolint:gosec // it is bounded
			r.fail(errors.New("a repository occurs twice"))
		}
	}
	l.readJobs(r, names)
	if r.err != nil {
		return nil, fmt.Errorf("reading reservations: %w", r.err)
	}
	return l, nil
}

func (l *Ledger) readJobs(r *reader, names uint64) {
	var id int64
	runner := ""
	jobs := r.number(MaxJobs + MaxDone)
	for i := uint64(0); i < jobs && r.err == nil; i++ {
		id = int64(uint64(id) + r.number(1<<64-1)) //nolint:gosec // encoding did the reverse
		j := job{state: State(r.byte())}
		if r.err == nil && (j.state < Waiting || j.state > Done) {
			r.fail(fmt.Errorf("unknown state %d", j.state))
		}
		j.news = l.seconds() - uint32(r.number(uint64(l.seconds()))) //nolint:gosec // it is bounded
		j.repo = uint16(r.number(max(names, 1) - 1))                 //nolint:gosec // it is bounded
		if j.state == Running {
			runner = runner[:r.number(uint64(len(runner)))]
			runner = short(runner + r.string(maxName))
			j.runner = strings.Clone(runner)
		}
		if r.err == nil {
			l.put(id, j)
		}
	}
}

func appendString(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}

func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func pack(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	_, _ = w.Write(text)                            // writing to a buffer never fails
	_ = w.Close()
	return b.Bytes()
}

func unpack(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("it is larger than %d bytes", maxText)
	}
	return text, nil
}

// reader reads until the first error, and returns zeros after it.
type reader struct {
	text []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err, r.text = err, nil
	}
}

func (r *reader) byte() byte {
	if len(r.text) == 0 {
		r.fail(errCut)
		return 0
	}
	b := r.text[0]
	r.text = r.text[1:]
	return b
}

func (r *reader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.text)
	switch {
	case size <= 0:
		r.fail(errCut)
		return 0
	case n > most:
		r.fail(fmt.Errorf("%d is beyond %d", n, most))
		return 0
	}
	r.text = r.text[size:]
	return n
}

func (r *reader) string(most uint64) string {
	n := r.number(most)
	if n > uint64(len(r.text)) {
		r.fail(errCut)
		return ""
	}
	s := string(r.text[:n])
	r.text = r.text[n:]
	return s
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/corral-dev/corral/internal/share"
	"github.com/corral-dev/corral/internal/wording"
)

// Bounds of a JSON text that isn't trusted: an answer of a server that may be a tenant's own. They are above what GitHub sends. What is
// decoded of a text within them takes memory in proportion to them, however much is sent.
type Bounds struct {
	// Bytes of the text.
	Bytes int
	// List is the most elements of a list that is the text or a member of it.
	List int
	// Inner is the most elements of any other list, and members of an object; maxInner if 0.
	Inner int
	// Values is the most elements of lists, and objects, that there are in all.
	Values int
	// Text is the most bytes of each string; maxText if 0.
	Text int
	// Times is how many times its own size a text takes while it is decoded; timesDecoded if 0.
	Times int
}

const (
	// maxInner is far more than the steps that a job has.
	maxInner = 1000
	// maxDepth bounds how deep a text is nested.
	maxDepth = 32
	// maxText is enough for descriptions of pull requests, which have up to 64 Ki characters.
	maxText = 256 << 10
	// maxField is how much of a field's name is kept, in bytes, to name it in an error.
	maxField = 32
)

// Units that TooLarge counts.
const (
	unitBytes    = "bytes"
	unitElements = "elements"
	unitValues   = "values"
	unitLevels   = "levels"
)

// TooLarge is the error of a text beyond one of its bounds.
type TooLarge struct {
	// Field that is too large; empty for the whole text.
	Field string
	// Most is how many there may be of a Unit.
	Most int
	Unit string
}

func (t TooLarge) Error() string {
	what := "the JSON"
	if t.Field != "" {
		what = strconv.Quote(t.Field)
	}
	return fmt.Sprintf("%s has more than %d %s", what, t.Most, t.Unit)
}

// Check reports as TooLarge what is too large in a text. What isn't JSON has no bound but that of bytes.
func (b Bounds) Check(text []byte) error {
	s := scanner{Bounds: b}
	return s.scan(text)
}

// field is the beginning of a field's name.
type field struct {
	text   [maxField]byte
	length int
}

// whole is the field that the whole text is in: none.
var whole field

func (f *field) String() string { return string(f.text[:f.length]) }

// level is a list or an object that is open.
type level struct {
	name   field
	isList bool
	commas int
}

// scanner looks at a JSON text as it passes, part by part, and keeps none of it. Whether it is well formed, its decoder finds out.
type scanner struct {
	Bounds
	err               error
	read              int
	values            int
	begun, isJSON     bool // the first character decides
	isText, isEscaped bool
	length            int // of the string that is open
	last, name        field
	levels            [maxDepth + 1]level // from 1
	depth             int
}

// scan looks at the next part. The first error is given again.
func (s *scanner) scan(part []byte) error {
	s.read += len(part)
	s.limit(s.read, s.Bytes, &whole, unitBytes)
	for i := 0; i < len(part) && s.err == nil; i++ {
		if s.isText {
			s.inText(part[i])
		} else {
			s.outside(part[i])
		}
	}
	return s.err
}

// limit keeps the first thing that is too large.
func (s *scanner) limit(n, most int, name *field, unit string) {
	if n > most && s.err == nil {
		s.err = TooLarge{name.String(), most, unit}
	}
}

// count counts one of the values.
func (s *scanner) count() {
	s.values++
	s.limit(s.values, s.Values, &whole, unitValues)
}

func (s *scanner) inText(c byte) {
	if c == '"' && !s.isEscaped {
		s.isText = false
		return
	}
	s.isEscaped = c == '\\' && !s.isEscaped
	if s.last.length < maxField {
		s.last.text[s.last.length] = c
		s.last.length++
	}
	s.length++
	s.limit(s.length, cmp.Or(s.Text, maxText), &s.name, unitBytes)
}

func (s *scanner) outside(c byte) {
	if isSpace := c <= ' ' || c >= utf8.RuneSelf; !s.begun && !isSpace { // a byte order mark is none of the text
		s.begun, s.isJSON = true, c == '[' || c == '{'
	}
	switch {
	case !s.isJSON:
	case c == '"':
		s.isText, s.isEscaped, s.length, s.last.length = true, false, 0, 0
	case c == ':':
		s.name = s.last
	case c == '[' || c == '{':
		s.open(c == '[')
	case c == ']' || c == '}':
		s.depth = max(0, s.depth-1)
	case c == ',':
		s.next()
	}
}

func (s *scanner) open(isList bool) {
	s.count()
	if s.limit(s.depth+1, maxDepth, &whole, unitLevels); s.err != nil {
		return
	}
	s.depth++
	s.levels[s.depth] = level{name: s.name, isList: isList}
	if around := s.levels[s.depth-1]; around.isList {
		s.levels[s.depth].name = around.name
	}
}

func (s *scanner) next() {
	l, most := &s.levels[s.depth], cmp.Or(s.Inner, maxInner)
	if l.isList {
		s.count()
	}
	if l.isList && s.depth <= 2 {
		most = s.List
	}
	l.commas++
	s.limit(l.commas+1, most, &l.name, unitElements)
}

// boundedBody fails, rather than ends, when an answer is too large.
type boundedBody struct {
	io.ReadCloser
	scanner scanner
	hold    *share.Hold
	cancel  context.CancelFunc // ends the request
	closed  func(error)        // told once whether it was too large
}

// Read reads up to the bounds.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if large := b.scanner.scan(p[:n]); large != nil {
		return 0, large
	}
	if !b.hold.Add(int64(n * cmp.Or(b.scanner.Times, timesDecoded))) {
		return 0, ErrCrowded
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	if b.closed != nil {
		b.closed(b.scanner.err)
		b.closed = nil
	}
	err := b.ReadCloser.Close()
	b.hold.Leave()
	b.cancel()
	return err
}

const (
	// maxName is the most bytes of a text without a tag.
	maxName = 256
	// textSize is what a text counts beyond its bytes: itself, and numbers beside it.
	textSize = 64
)

// Fit holds the texts of a decoded value, given by its pointer, to GitHub's maxima in bytes: by the tag `most` of a field, and maxName without
// one. A longer text is TooLarge. With the tag `cut` it is what people write as long as they like, and its beginning is kept. Fit returns the
// value's size in bytes, in total.
func Fit(value any) (size int, err error) {
	wording.Texts(value, func(text reflect.Value, of reflect.StructField) {
		size += text.Len() + textSize
		err = cmp.Or(err, fitText(text, of))
	})
	return size, err
}

func fitText(text reflect.Value, of reflect.StructField) error {
	most, err := strconv.Atoi(of.Tag.Get("most") + of.Tag.Get("cut"))
	if err != nil {
		most = maxName
	}
	switch {
	case text.Len() <= most:
	case of.Tag.Get("cut") == "":
		return TooLarge{of.Name, most, unitBytes}
	default:
		text.SetString(strings.Clone(strings.ToValidUTF8(text.String()[:most], ""))) // a part would keep the whole in memory
	}
	return nil
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
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

// Bounds limits the JSON text of an untrusted answer. The server may belong to a tenant. The limits are above anything
// GitHub sends. Decoding a text within the limits takes memory in proportion to them, however much the server sends.
type Bounds struct {
	// Bytes is the maximum size of the text.
	Bytes int
	// List is the maximum number of elements in a list that is the whole text or a direct member of it.
	List int
	// Inner is the maximum number of elements in any other list, and of members in an object; 0 means maxInner.
	Inner int
	// Values is the maximum total number of list elements and objects.
	Values int
	// Text is the maximum size of each string in bytes; 0 means maxText.
	Text int
	// Times is the memory that decoding takes, as a multiple of the text's size; 0 means timesDecoded.
	Times int
}

const (
	// maxInner is well above the number of steps in a job.
	maxInner = 1000
	// maxDepth is the maximum nesting depth of a text.
	maxDepth = 32
	// maxText is enough for pull request descriptions, which have up to 64 Ki characters.
	maxText = 256 << 10
	// maxField is the number of bytes of a field's name that are kept, so that an error can name the field.
	maxField = 32
)

// Units for TooLarge.
const (
	unitBytes    = "bytes"
	unitElements = "elements"
	unitValues   = "values"
	unitLevels   = "levels"
)

// TooLarge is the error for a text that exceeds one of its bounds.
type TooLarge struct {
	// Field is the name of the field that is too large; empty for the whole text.
	Field string
	// Most is the maximum that the field or the text exceeds, in Unit.
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

// Check returns TooLarge if a text exceeds a bound. Text that is not JSON is limited in bytes only.
func (b Bounds) Check(text []byte) error {
	s := scanner{Bounds: b}
	return s.scan(text)
}

// field holds the first bytes of a field's name.
type field struct {
	text   [maxField]byte
	length int
}

// whole is the empty field name, which stands for the whole text.
var whole field

func (f *field) String() string { return string(f.text[:f.length]) }

// level is a list or an object that is still open.
type level struct {
	name   field
	isList bool
	commas int
}

// scanner checks a JSON text part by part as it is read, and keeps none of it. It does not validate the syntax: the
// decoder does.
type scanner struct {
	Bounds
	err               error
	read              int
	values            int
	begun, isJSON     bool // set at the first character that is not a space
	isText, isEscaped bool
	length            int // of the open string
	last, name        field
	levels            [maxDepth + 1]level // used from index 1
	depth             int
}

// scan checks the next part. After an error it returns the same error again.
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

// limit records an error if n is above its maximum. Only the first error is kept.
func (s *scanner) limit(n, most int, name *field, unit string) {
	if n > most && s.err == nil {
		s.err = TooLarge{name.String(), most, unit}
	}
}

// count counts one value towards Values.
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
	if isSpace := c <= ' ' || c >= utf8.RuneSelf; !s.begun && !isSpace { // skips a byte order mark
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

// boundedBody is the body of an answer. If the answer is too large, reading returns an error, so that the answer does
// not seem to end early.
type boundedBody struct {
	io.ReadCloser
	scanner scanner
	hold    *share.Hold
	cancel  context.CancelFunc // cancels the request
	closed  func(error)        // called once with the size error, or nil
}

// Read fails once the text exceeds its bounds or its share of the memory.
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

// WithText returns the body of an answer from Meter.Send with another text. Bounds and the memory limit apply to the text
// as if it had been received.
func WithText(body io.ReadCloser, text []byte) io.ReadCloser {
	if b, ok := body.(*boundedBody); ok {
		b.ReadCloser = replaced{bytes.NewReader(text), b.ReadCloser}
		return b
	}
	return replaced{bytes.NewReader(text), body}
}

// replaced reads from one source and closes another.
type replaced struct {
	io.Reader
	io.Closer
}

const (
	// maxName is the maximum size in bytes of a text whose field has no tag (see Fit).
	maxName = 256
	// textSize is added to the size of each text, for the string header and for the numbers next to it.
	textSize = 64
)

// Fit checks the texts of a decoded value, which is passed by pointer, against GitHub's maximum sizes in bytes. The tag
// `most` of a field sets its maximum; a field without a tag may have maxName bytes. A longer text is TooLarge. The tag
// `cut` marks free text written by users: Fit truncates it instead. Fit returns the total size of the value in bytes.
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
		text.SetString(strings.Clone(strings.ToValidUTF8(text.String()[:most], ""))) // a substring would keep the whole text in memory
	}
	return nil
}

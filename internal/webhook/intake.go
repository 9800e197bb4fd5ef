// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/corral-dev/corral/internal/share"
)

const (
	// IntakeBytes is the maximum total size of the bodies in memory. One address may use a quarter, which has room for
	// one body of the maximum size and 12 MiB of other bodies.
	IntakeBytes = 4 * (MaxBody + 12<<20)
	// bodyRate is the minimum rate of a body in bytes per second, after an initial grace period.
	bodyRate = 1 << 20
)

// errCrowded is the error of a body that was dropped to free memory for other addresses.
var errCrowded = errors.New("too many bytes from this address")

// intake limits the bytes of bodies in memory, and divides them between addresses, so that bodies that are not verified
// cannot displace GitHub's. An address with more than a quarter of the bytes loses its largest body that is not
// verified yet. If there are too many bytes in total, the address with the most bytes loses its largest one. Once a
// body is verified, it counts for the namespace whose secret signed it, regardless of its address. It may still be
// dropped in the same way until it is decoded.
type intake struct{ bytes *share.Bytes }

// arrival is a body that is being read. Its deadline enforces the minimum rate.
type arrival struct {
	io.Reader
	*share.Hold
	of       *intake
	began    time.Time
	deadline func(at time.Time) error // sets the deadline for the next byte
	read     int64
}

func newIntake() *intake { return &intake{share.NewBytes(IntakeBytes, IntakeBytes/4)} }

// begin starts reading a sender's body. The caller must call Leave.
func (i *intake) begin(body io.Reader, sender string, deadline func(time.Time) error) *arrival {
	stop := func() { _ = deadline(time.Unix(1, 0)) } // ends the read
	return &arrival{Reader: body, Hold: i.bytes.Hold(sender, stop), of: i, began: time.Now(), deadline: deadline}
}

// verified counts the body for the namespace that signed it. It returns false if there is no room. lose is called if
// the body has to make room before Keep protects it.
func (a *arrival) verified(namespace string, lose func()) bool {
	a.Leave()
	a.Hold = a.of.bytes.Hold(namespace, lose)
	return a.Add(a.read)
}

// Read fails if the body arrives too slowly, or is dropped to free memory.
func (a *arrival) Read(p []byte) (int, error) {
	_ = a.deadline(a.began.Add(min(arriveWithin, beginWithin+time.Duration(a.read)*time.Second/bodyRate)))
	if !a.Add(0) { // the body was dropped before this deadline was set
		return 0, errCrowded
	}
	n, err := a.Reader.Read(p)
	a.read += int64(n)
	if !a.Add(int64(n)) {
		return 0, errCrowded
	}
	return n, err
}

// doors is a listener that limits its connections. One address may have a quarter of them. When all are in use, a new
// connection replaces the oldest connection of the address with the most, if that address has at least two more than
// the new connection's address. Otherwise the new connection replaces the connection that has been idle for the longest
// time.
type doors struct {
	net.Listener
	now  func() time.Time
	mu   sync.Mutex
	open *share.Map[*door, struct{}]
	all  map[*door]struct{} // the same connections as in open
}

// door is one connection.
type door struct {
	net.Conn
	of     *doors
	source string
	moved  atomic.Int64 // when a byte was last read or written, in nanoseconds
}

func newDoors(listener net.Listener, now func() time.Time) *doors {
	l := &doors{Listener: listener, now: now, all: map[*door]struct{}{}}
	l.open = share.New[*door, struct{}](maxConnections, func(_ string, d *door) {
		delete(l.all, d)
		_ = d.Conn.Close()
	})
	l.open.Spare = l.quietest
	return l
}

// quietest chooses the connection that has been idle for the longest time. For an address that already has connections,
// it chooses none if this connection was active within headWithin.
func (l *doors) quietest(own int) (source string, d *door, ok bool) {
	for other := range l.all {
		if d == nil || other.moved.Load() < d.moved.Load() {
			d = other
		}
	}
	if own > 0 && l.now().Sub(time.Unix(0, d.moved.Load())) < headWithin {
		return "", nil, false
	}
	return d.source, d, true
}

// Accept returns the next connection that is within the limits.
func (l *doors) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		d := &door{Conn: conn, of: l, source: siteOf(conn.RemoteAddr().String()).String()}
		d.move()
		if l.enter(d) {
			return d, nil
		}
		_ = conn.Close()
	}
}

func (l *doors) enter(d *door) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	fits := l.open.Put(d.source, d, struct{}{})
	if fits {
		l.all[d] = struct{}{}
	}
	return fits
}

func (d *door) move() { d.moved.Store(d.of.now().UnixNano()) }

// Read records when bytes arrive.
func (d *door) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if n > 0 {
		d.move()
	}
	return n, err
}

// Write records when bytes are sent.
func (d *door) Write(p []byte) (int, error) {
	n, err := d.Conn.Write(p)
	if n > 0 {
		d.move()
	}
	return n, err
}

// Close closes the connection, and makes room for another one.
func (d *door) Close() error {
	d.of.mu.Lock()
	d.of.open.DeleteFunc(d.source, func(other *door) bool { return other == d })
	delete(d.of.all, d)
	d.of.mu.Unlock()
	return d.Conn.Close()
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/corral-dev/corral/internal/share"
)

const (
	// IntakeBytes is how many bytes of bodies are kept in memory. A quarter has room for the largest body of an address and for 12 MiB of others.
	IntakeBytes = 4 * (MaxBody + 12<<20)
	// bodyRate is how many bytes a second must arrive, after a while that each body has.
	bodyRate = 1 << 20
)

// errCrowded is the end of a body that made room for bodies of other addresses.
var errCrowded = errors.New("too many bytes from this address")

// intake bounds the bytes of bodies in memory, and divides them between addresses. Bodies that are not verified yet take nothing that GitHub's
// bodies need. An address that sends more than a quarter of the bytes loses its largest body that isn't verified. So does the address that sent
// the most when there are too many bytes.
type intake struct{ bytes *share.Bytes }

// arrival is a body that is read. Its deadline demands progress.
type arrival struct {
	io.Reader
	*share.Hold
	began    time.Time
	deadline func(at time.Time) error // sets when the next byte must have arrived
	read     int64
}

func newIntake() *intake { return &intake{share.NewBytes(IntakeBytes, IntakeBytes/4)} }

// begin has a body read, of which Leave is to be called.
func (i *intake) begin(body io.Reader, source netip.Prefix, deadline func(time.Time) error) *arrival {
	stop := func() { _ = deadline(time.Unix(1, 0)) } // it waits for no more bytes
	return &arrival{Reader: body, Hold: i.bytes.Hold(source.String(), stop), began: time.Now(), deadline: deadline}
}

// Read fails if the body arrives too slowly, or has to make room.
func (a *arrival) Read(p []byte) (int, error) {
	_ = a.deadline(a.began.Add(min(arriveWithin, beginWithin+time.Duration(a.read)*time.Second/bodyRate)))
	n, err := a.Reader.Read(p)
	a.read += int64(n)
	if !a.Add(int64(n)) {
		return 0, errCrowded
	}
	return n, err
}

// doors is a listener whose connections are bounded. One address has a quarter of them at most. Once all are taken, the address with the most
// connections loses the oldest one to an address that has fewer. If no address has many more than the others, the connection on which no byte
// arrived or left for the longest time makes room.
type doors struct {
	net.Listener
	now  func() time.Time
	mu   sync.Mutex
	open *share.Map[*door, struct{}]
	all  map[*door]struct{} // what open has
}

// door is one connection.
type door struct {
	net.Conn
	of     *doors
	source string
	moved  atomic.Int64 // when a byte last arrived or left, in nanoseconds
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

// quietest chooses the connection on which nothing has moved for the longest time. An address that has connections gets another one only in place
// of one that is idle.
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

// Accept returns the next connection that there is room for.
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

// Read notes that bytes arrived.
func (d *door) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if n > 0 {
		d.move()
	}
	return n, err
}

// Write notes that bytes left.
func (d *door) Write(p []byte) (int, error) {
	n, err := d.Conn.Write(p)
	if n > 0 {
		d.move()
	}
	return n, err
}

// Close leaves room for another connection.
func (d *door) Close() error {
	d.of.mu.Lock()
	d.of.open.DeleteFunc(d.source, func(other *door) bool { return other == d })
	delete(d.of.all, d)
	d.of.mu.Unlock()
	return d.Conn.Close()
}

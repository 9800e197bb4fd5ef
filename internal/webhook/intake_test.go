// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/internal/share"
	"github.com/corral-dev/corral/internal/turns"
)

// Clients that send nothing or garbage do not block GitHub's events, which are accepted at once.
func TestLargeSignedEventsGetThroughWhileOthersHoldBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		body := `{"x":"` + strings.Repeat("x", 10<<20) + `",` + place + `}`
		silence, sender := io.Pipe()
		for i := range 60 { // from three addresses
			r := signed(PushEvent, "guid", body)
			r.Body, r.RemoteAddr = silence, fmt.Sprintf("198.51.100.%d:80", 1+i%3)
			go s.send(r)
		}
		synctest.Wait()
		began := time.Now()
		for i := range 5 {
			r := signed(PushEvent, fmt.Sprint("guid-", i), fmt.Sprintf(`{"n":%d,`, i)+body[1:])
			r.RemoteAddr = "203.0.113.1:443"
			s.want(s.send(r), http.StatusAccepted, "taken")
		}
		small := signed(WorkflowJobEvent, "guid-small", queued)
		small.RemoteAddr = "198.51.100.1:81"
		s.want(s.send(small), http.StatusAccepted, "taken")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("they waited for %s", waited)
		}
		sender.Close()
	})
}

func TestTheAddressThatSentMostMakesRoom(t *testing.T) {
	i := newIntake()
	cut := map[string]int{}
	begin := func(address string) *arrival {
		return i.begin(nil, address, func(due time.Time) error {
			if due.Equal(time.Unix(1, 0)) {
				cut[address]++
			}
			return nil
		})
	}
	github := begin("203.0.113.1")
	signed := begin("198.51.100.9")
	signed.verified("acme", func() {})
	signed.Keep(IntakeBytes, IntakeBytes)
	var garbage []*arrival
	for n := range 30 { // each address sends as much as it may
		a := begin(fmt.Sprintf("198.51.100.%d", n))
		garbage = append(garbage, a)
		a.Add(MaxBody)
		if !github.Add(100<<10) || !signed.Add(100<<10) {
			t.Fatalf("after %d addresses, GitHub's body made room", n)
		}
	}
	var crowded, cuts int
	for _, a := range garbage {
		if !a.Add(0) {
			crowded++
		}
		a.Leave()
	}
	for _, n := range cut {
		cuts += n
	}
	if most := int(IntakeBytes / MaxBody); crowded < 30-most || cuts != crowded || cut["203.0.113.1"] > 0 {
		t.Errorf("%d of 30 bodies made room, and %d are waited for no more", crowded, cuts)
	}
	github.Leave()
	signed.Leave()
	if !begin("192.0.2.1").Add(IntakeBytes / 4) {
		t.Error("bodies are left")
	}
}

// A body must arrive at a minimum rate, however its bytes are spread.
func TestABodyHasToMakeProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIntake()
		var due time.Time
		a := i.begin(nil, "203.0.113.1", func(at time.Time) error { due = at; return nil })
		a.Reader = strings.NewReader(strings.Repeat("x", 16*bodyRate))
		began := time.Now()
		for received, want := range []float64{2, 3, 4, 5, 6, 7, 8, 8, 8} {
			if received > 0 {
				n, err := io.ReadFull(a.Reader, make([]byte, bodyRate))
				a.read += int64(n)
				if err != nil || !a.Add(bodyRate) {
					t.Fatal(err)
				}
			}
			_, _ = a.Read(nil)
			if got := due.Sub(began); got.Seconds() != want {
				t.Errorf("after %d MiB the next byte is due after %s", received, got)
			}
		}
	})
}

// conn is a connection from an address.
type conn struct {
	net.Conn
	from   string
	closed bool
}

func (c *conn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 80))
}
func (c *conn) Close() error               { c.closed = true; return nil }
func (c *conn) Read(p []byte) (int, error) { return len(p), nil }

func TestOneAddressHasAQuarterOfTheConnections(t *testing.T) {
	incoming := make(pipes, 1)
	doors := newDoors(incoming, time.Now)
	open := func(address string) *conn {
		c := &conn{from: address}
		incoming <- c
		go func() { incoming <- &conn{from: "203.0.113.200"} }() // lets Accept return after c is closed
		first, _ := doors.Accept()
		if d := first.(*door); d.Conn == c {
			other, _ := doors.Accept()
			_ = other.Close()
		} else {
			_ = first.Close()
		}
		return c
	}
	held := map[string][]*conn{}
	for n := range 4 {
		address := fmt.Sprintf("198.51.100.%d", n)
		for range maxConnections/4 + 10 {
			held[address] = append(held[address], open(address))
		}
	}
	count := func(address string) (n int) {
		for _, c := range held[address] {
			if !c.closed {
				n++
			}
		}
		return n
	}
	for address := range held {
		if n := count(address); n > maxConnections/4 || n < maxConnections/4-3 {
			t.Errorf("an address has %d connections", n)
		}
	}
	for range 100 {
		if c := open("203.0.113.1"); c.closed {
			t.Fatal("GitHub is kept out")
		}
	}
	first := held["198.51.100.0"]
	for _, c := range first {
		_ = c.Close()
	}
}

// A client with addresses in as many networks as there are places does not lock out others, whether its connections are
// idle or send a byte now and then.
func TestANewAddressGetsInWhereEachPlaceIsAnothers(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	incoming := make(pipes, 1)
	doors := newDoors(incoming, func() time.Time { return now })
	open := func(address string) (*conn, *door) {
		c := &conn{from: address}
		incoming <- c
		d, err := doors.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c, d.(*door)
	}
	var held []*conn
	var all []*door
	for i := range maxConnections {
		c, d := open(fmt.Sprintf("10.%d.%d.1", i/256, i%256))
		now = now.Add(time.Millisecond)
		held, all = append(held, c), append(all, d)
	}
	for _, d := range all[:7] { // the oldest are not the ones idle for longest
		_, _ = d.Read(make([]byte, 1))
	}
	for i := range 3 {
		if c, _ := open(fmt.Sprintf("203.0.113.%d", i)); c.closed {
			t.Fatal("a new address is kept out")
		}
		now = now.Add(time.Millisecond)
	}
	var gone []int
	for i, c := range held {
		if c.closed {
			gone = append(gone, i)
		}
	}
	if !slices.Equal(gone, []int{7, 8, 9}) {
		t.Errorf("connections %v made room", gone)
	}
	// An address with a connection gets another one once one of the other connections is idle.
	again := &door{of: doors, Conn: &conn{}, source: all[11].source}
	if doors.enter(again) {
		t.Error("a connection that is not idle made room for an address that has one")
	}
	now = now.Add(headWithin)
	if !doors.enter(again) || !held[10].closed {
		t.Error("an idle connection made no room")
	}
	if len(doors.all) != maxConnections {
		t.Errorf("%d connections are known", len(doors.all))
	}
	for d := range doors.all {
		_ = d.Close()
	}
	if len(doors.all) != 0 {
		t.Errorf("%d connections are left", len(doors.all))
	}
}

// The end of a body that has to make room may come just before the body's next deadline, which would replace it.
func TestABodyThatMadeRoomIsReadNoFurther(t *testing.T) {
	i := &intake{share.NewBytes(4<<20, 1<<20)}
	a := i.begin(iotest.ErrReader(errors.New("it was read")), "198.51.100.1", func(time.Time) error { return nil })
	a.Add(1 << 20)
	i.begin(nil, "198.51.100.1", func(time.Time) error { return nil }).Add(1 << 10)
	if _, err := a.Read(nil); !errors.Is(err, errCrowded) {
		t.Errorf("reading on: %v", err)
	}
}

// A tenant signs what it sends. Its bodies count together, however many addresses they come from, and make room while they wait for their turn.
func TestSignedBodiesThatWaitMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.intake = &intake{share.NewBytes(4<<20, 1<<20)}
		for range largeSlots {
			if _, err := s.large.Enter(t.Context(), turns.Looking, "other"); err != nil {
				t.Fatal(err)
			}
		}
		var answers [8]*httptest.ResponseRecorder
		for i := range answers {
			r := signed(PushEvent, fmt.Sprint("guid-", i), fmt.Sprintf(`{"n":%d,"x":"%s",%s}`, i, strings.Repeat("x", 700<<10), place))
			r.RemoteAddr = fmt.Sprintf("198.51.100.%d:80", i)
			go func() { answers[i] = s.send(r) }()
		}
		synctest.Wait()
		waiting := 0
		for _, a := range answers {
			if a == nil {
				waiting++
			}
		}
		if waiting != 1 {
			t.Errorf("%d bodies of a quarter of all bytes wait", waiting)
		}
		small := signed(WorkflowJobEvent, "guid-small", queued)
		small.RemoteAddr = "203.0.113.1:443"
		s.want(s.send(small), http.StatusAccepted, "taken")
		time.Sleep(turnWithin)
	})
}

// A replica is one address. The bodies that it passes on count for the namespaces that signed them.
func TestBodiesOfAReplicaCountForTheirNamespaces(t *testing.T) {
	sender := func(namespace string, isReplica bool) string {
		d := delivery{source: netip.MustParsePrefix("192.0.2.1/32"), replica: isReplica}
		d.connection.Namespace = namespace
		return d.sender()
	}
	if a, b := sender("a", true), sender("b", true); a == b {
		t.Errorf("both count for %s", a)
	}
	if a, b := sender("a", false), sender("b", false); a != b {
		t.Errorf("of one address, they count for %s and %s", a, b)
	}
}

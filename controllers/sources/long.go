// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// shortPass is the number of requests about single objects that a pass may send without a turn. Sending them takes a
	// second or two.
	shortPass = 200
	// longPasses is the name under which hosts limits long passes, as if they called one server. It differs from all
	// addresses, because addresses have a port.
	longPasses = "long passes"
	// claimWait is how long a pass waits for another source of its namespace. A short pass usually takes less time.
	claimWait = 2 * time.Second
)

// request counts a request about one object. Call it before the request. A pass with more than shortPass requests needs a
// turn, because sources with thousands of objects could otherwise occupy all workers for minutes. If there is no turn,
// errBusy ends the pass, and the source waits in line.
func (p *pass) request() (err error) {
	p.requests++
	if p.requests > shortPass && p.long == nil {
		p.long, err = p.hosts.enter(client.ObjectKeyFromObject(p.source), longPasses)
	}
	return err
}

// resume returns errBusy while the source waits in line for a long pass. Otherwise each attempt would repeat the pass's
// first requests.
func (p *pass) resume() (err error) {
	key := client.ObjectKeyFromObject(p.source)
	if p.hosts.isQueued(key, longPasses) {
		p.long, err = p.hosts.enter(key, longPasses)
	}
	return err
}

// leaveLong ends the turn of a long pass, if the pass has one.
func (p *pass) leaveLong() {
	if p.long != nil {
		p.long.leave(nil)
	}
}

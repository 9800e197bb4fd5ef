// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// shortPass is how many requests about single objects a pass may send without a turn. They take a second or two.
	shortPass = 200
	// longPasses is the name under which hosts limits long passes. It differs from all addresses, which have a port.
	longPasses = "long passes"
	// claimWait is how long a pass waits for another source of its namespace. It is longer than a short pass usually takes.
	claimWait = 2 * time.Second
)

// request counts a request about one object, before it is sent. A pass with more than shortPass requests needs a turn, because
// sources with thousands of objects could otherwise occupy all workers for minutes. If there is no turn, errBusy ends the
// pass, and the source waits in line.
func (p *pass) request() (err error) {
	p.requests++
	if p.requests > shortPass && p.long == nil {
		p.long, err = p.hosts.enter(client.ObjectKeyFromObject(p.source), longPasses)
	}
	return err
}

// resume returns errBusy while the source waits in line for a long pass. Otherwise its first requests would be repeated at
// each attempt.
func (p *pass) resume() (err error) {
	key := client.ObjectKeyFromObject(p.source)
	if p.hosts.isQueued(key, longPasses) {
		p.long, err = p.hosts.enter(key, longPasses)
	}
	return err
}

// leaveLong ends the turn of a long pass.
func (p *pass) leaveLong() {
	if p.long != nil {
		p.long.leave(nil)
	}
}

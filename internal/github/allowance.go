// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"sync"
	"time"
)

// The allowance of a namespace, in bytes of messages. Decoding takes up to 0.2 s of CPU time for each MiB, so decoding the
// messages of a namespace uses a fifth of a core at most in the long run. GitHub's events have 1 to 2 kB, and a job has
// three or four of them. The burst is enough for all events of 2,000 jobs at once, even if each event has its own message,
// and the rate for more than a hundred jobs a second.
const (
	allowanceRate  = 1 << 20 // per second
	allowanceBurst = 32 << 20
)

// allowances limits the CPU time that Corral spends on the messages of each namespace's connections, because a tenant may
// run the server that sends them. A tenant can have many connections and many pools, so the limit is for all connections of
// a namespace together.
type allowances struct {
	mu sync.Mutex
	// full is when the allowance of a namespace is complete again. A namespace without an entry has a complete one.
	full map[string]time.Time
}

// charge takes bytes out of a namespace's allowance, which may become negative. It returns the time until the allowance is
// positive again. Each caller who waits for that long gets a turn of its own: the bytes of later callers do not count.
func (a *allowances) charge(namespace string, bytes int, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(now)
	full := a.full[namespace]
	if full.Before(now) {
		full = now
	}
	full = full.Add(timeFor(bytes))
	a.full[namespace] = full
	return max(0, full.Sub(now)-timeFor(allowanceBurst))
}

// forget removes a few namespaces whose allowance is complete. It looks at more entries than charge adds, so that few
// remain, and at few, because other namespaces wait for the lock.
func (a *allowances) forget(now time.Time) {
	looked := 0
	for namespace, full := range a.full { // begins at a random entry
		if full.Before(now) {
			delete(a.full, namespace)
		}
		if looked++; looked == forgetAtOnce {
			return
		}
	}
}

// timeFor returns the time in which bytes are added to an allowance.
func timeFor(bytes int) time.Duration { return time.Duration(bytes) * time.Second / allowanceRate }

// Charge takes bytes out of the allowance for messages, which all connections of the namespace share. It returns how long
// the caller must wait before it requests another message.
func (o Options) Charge(bytes int, now time.Time) time.Duration {
	return o.allowances.charge(o.tenant, bytes, now)
}

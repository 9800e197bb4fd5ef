// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/internal/turns"
	"github.com/corral-dev/corral/sim/githubsim"
)

func TestManyCallsTravelTogetherAndNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := memoryClient(t, githubsim.Options{Latency: 100 * time.Millisecond})
		set := createSet(t, c)
		began := time.Now()
		var all errgroup.Group
		for i := range 500 {
			all.Go(func() error {
				_, err := c.GenerateJIT(t.Context(), set.ID, fmt.Sprintf("linux-%d", i))
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("500 registrations, 100 ms each, took %s", took)
		}
		if n := resting(c); n < turns.First || n > turns.Most {
			t.Errorf("%d clients for the next call", n)
		}
		for range 3 {
			time.Sleep(clientRest - time.Second)
			if _, err := c.Get(t.Context(), set.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := resting(c); n != 1 {
			t.Errorf("%d clients for one call a minute", n)
		}
		time.Sleep(2 * clientRest)
		if n := resting(c); n != 0 {
			t.Errorf("%d clients at rest", n)
		}
	})
}

func resting(c *Client) int {
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	return len(c.idle.idle)
}

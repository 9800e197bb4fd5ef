// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"maps"
	"slices"
	"testing"

	"github.com/corral-dev/corral/internal/github"
)

func TestARunnerGetsOfTheNetworkWhatItNeeds(t *testing.T) {
	network := github.Network{HTTPSProxy: "http://user:word@proxy", NoProxy: "a,b", CA: []byte("pem")}
	keys := func(n github.Network) []string { return slices.Sorted(maps.Keys(networkData(n))) }
	if got := keys(network); !slices.Equal(got, []string{"ca.crt"}) {
		t.Errorf("keys %v", got)
	}
	network.RunnersUseProxy = true
	if got := keys(network); !slices.Equal(got, []string{"HTTPS_PROXY", "NO_PROXY", "ca.crt"}) {
		t.Errorf("keys with proxies %v", got)
	}
}

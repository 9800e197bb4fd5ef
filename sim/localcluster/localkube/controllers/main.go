// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command controllers is package cleanup alone, for assets of envtest, which have an API server but no controllers.
package main

import (
	"github.com/corral-dev/corral/sim/localcluster/localkube/cleanup"
	"github.com/corral-dev/corral/sim/localcluster/localkube/multicall"
)

func main() {
	multicall.Main(map[string]func() int{"kube-controller-manager": cleanup.Main})
}

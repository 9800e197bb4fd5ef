// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxRunnerName is the maximum length of a runner's name. Label values and GitHub limit it.
	maxRunnerName = 57
	// kinshipLength is the length of the hash that distinguishes pools with the same name.
	kinshipLength = 5
)

// NameStem returns the prefix of the names of a pool's runners: the pool's name, and a hash that distinguishes it from
// another pool with that name in another cluster, or from a deleted one in this cluster.
//
// Names are numbered. If a controller with a stale cache decides to create the next runner a second time, it chooses
// the same name, and the API server refuses the second creation.
func NameStem(pool string, uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	kin := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:kinshipLength]
	room := maxRunnerName - kinshipLength - len(strconv.FormatInt(1<<40, 10)) - 2
	return strings.TrimRight(pool[:min(len(pool), room)], "-.") + "-" + kin + "-"
}

// NumberOf returns the number in a runner's name; 0 if the name is not the prefix followed by a number.
func NumberOf(stem, name string) int64 {
	digits, found := strings.CutPrefix(name, stem)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !found || err != nil || n < 0 {
		return 0
	}
	return n
}

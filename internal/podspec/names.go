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
	// maxRunnerName is the longest name of a runner: a label's value and GitHub's bound.
	maxRunnerName = 57
	// kinshipLength is how many characters tell pools of the same name apart.
	kinshipLength = 5
)

// NameStem begins the names of a pool's runners: the pool's name, and what distinguishes it from
// another pool of that name in another cluster, or from a former one in this.
//
// Names are numbered. Whoever decides on a stale cache to create the next runner comes
// to the same name as who decided before, and the API server refuses the second.
func NameStem(pool string, uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	kin := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:kinshipLength]
	room := maxRunnerName - kinshipLength - len(strconv.FormatInt(1<<40, 10)) - 2
	return strings.TrimRight(pool[:min(len(pool), room)], "-.") + "-" + kin + "-"
}

// NumberOf returns the number in a runner's name; 0 if the name is none of the stem's.
func NumberOf(stem, name string) int64 {
	digits, ours := strings.CutPrefix(name, stem)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ours || err != nil || n < 0 {
		return 0
	}
	return n
}

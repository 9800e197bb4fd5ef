// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkCompile(b *testing.B) {
	for _, pools := range []int{1, 100} {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			var src strings.Builder
			src.WriteString(head + "pools: schema.#Pools\n")
			for i := range pools {
				fmt.Fprintf(&src, "pools: linux-%d: spec: {\n\tconnectionRef: name: \"acme\"\n\tscale: max: 20\n\t%s\n}\n", i, template)
			}
			files := repository(strings.ReplaceAll(src.String(), "linux-", "linux"))
			b.ReportAllocs()
			for b.Loop() {
				if r := Compile(files, Options{}); len(r.Diagnostics) > 0 {
					b.Fatal(texts(r))
				}
			}
		})
	}
}

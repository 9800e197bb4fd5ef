// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package fluxsource

import (
	"bytes"
	"context"
	"io/fs"
)

// Unpack reads an archive without a server.
func Unpack(ctx context.Context, content []byte, limits Limits) (fs.FS, error) {
	return unpack(ctx, bytes.NewReader(content), limits.orDefaults())
}

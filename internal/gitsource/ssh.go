// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"context"
	"net/url"
)

func openSSH(ctx context.Context, location *url.URL, auth Auth, limits Limits) (repository, error) {
	return nil, ErrNotAllowed
}

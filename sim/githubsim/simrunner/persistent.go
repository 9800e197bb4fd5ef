// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package simrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

// Stay runs a persistent runner until ctx ends or its registration is gone. See [Hooks.Run].
func (h Hooks) Stay(ctx context.Context, config string) (exitCode int, err error) {
	return h.run(ctx, config, true)
}

// Configure does what config.sh does with its arguments and a registration token. It returns the configuration to run
// with.
func (h Hooks) Configure(ctx context.Context, token string, args []string) (config string, err error) {
	value := func(name string) string {
		if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	at, err := url.Parse(value("--url"))
	if err != nil {
		return "", fmt.Errorf("reading --url: %w", err)
	}
	body, err := json.Marshal(runnerwire.Registration{
		URL: at.String(), Name: value("--name"), Group: value("--runnergroup"), Labels: strings.Split(value("--labels"), ","), Replace: true,
	})
	if err != nil {
		return "", fmt.Errorf("encoding the registration: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.Scheme+"://"+at.Host+runnerwire.PathRegister, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("making the registration's request: %w", err)
	}
	request.Header.Set("Authorization", "RemoteAuth "+token)
	client, end := h.client()
	defer end()
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("registering: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // read to its end or given up
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("reading the registration: %w", err)
	}
	var registered runnerwire.Registered
	if err := read(answer.StatusCode, content, &registered); err != nil {
		return "", fmt.Errorf("registering: %w", err)
	}
	return registered.Config, nil
}

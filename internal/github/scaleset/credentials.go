// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scaleset speaks GitHub's runner scale-set protocol: an adapter over the
// official client that adds deadlines, typed errors, parallel calls, one token
// source per connection and metrics; and a message session that does not end
// (Listener).
//
// The official client decides what goes over the wire. It sees the network through
// transports of ours, where tokens are cached, requests counted and bodies bounded,
// and where messages that it would fail on are made harmless.
package scaleset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/golang-jwt/jwt/v5"
)

// Credentials say where runners are registered, and as whom: either Token or App is set.
type Credentials struct {
	// ConfigURL is the organization, repository or enterprise as a browser shows it.
	ConfigURL string
	// Token is a personal access token.
	Token string
	// App is a GitHub App's installation.
	App *App
}

// App is a GitHub App's installation.
type App struct {
	// ID is the App's client id or its numeric id.
	ID string
	// InstallationID is the installation on the organization or on the repository's owner.
	InstallationID int64
	// PrivateKey is an RSA key, PEM.
	PrivateKey []byte
}

// Hash identifies the credentials without revealing them. It is stable over
// restarts and differs whenever anything in them does.
func (c Credentials) Hash() string {
	h := sha256.New()
	write := func(part string) { fmt.Fprintf(h, "%d:%s;", len(part), part) }
	write(c.ConfigURL)
	write(c.Token)
	if c.App != nil {
		write(c.App.ID)
		write(strconv.FormatInt(c.App.InstallationID, 10))
		write(string(c.App.PrivateKey))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Validate says what is wrong with the credentials as far as it shows without GitHub.
func (c Credentials) Validate() error {
	if (c.Token == "") == (c.App == nil) {
		return errors.New("exactly one of a token and an App must be given")
	}
	if c.App == nil {
		return nil
	}
	if c.App.ID == "" || c.App.InstallationID <= 0 {
		return errors.New("an App needs its id and the id of its installation")
	}
	if _, err := jwt.ParseRSAPrivateKeyFromPEM(c.App.PrivateKey); err != nil {
		return fmt.Errorf("parsing the App's private key: %w", err)
	}
	return nil
}

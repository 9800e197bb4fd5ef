// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Credentials identify Corral to GitHub and name the place where it registers runners. Exactly one of Token and App is
// set.
type Credentials struct {
	// ConfigURL is the URL of the organization, repository or enterprise in a browser.
	ConfigURL string
	// Token is a personal access token.
	Token string
	// App is a GitHub App's installation.
	App *App
	// Network configures how Corral reaches ConfigURL.
	Network Network
}

// App is a GitHub App's installation.
type App struct {
	// ID is the App's client id or its numeric id.
	ID string
	// InstallationID is the installation on the organization or on the repository's owner.
	InstallationID int64
	// PrivateKey is an RSA key in PEM format.
	PrivateKey []byte
}

// Hash identifies the credentials, without their network, and does not reveal them. It is stable over restarts and
// changes with every field.
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

// Seal returns a signature of a text that only a holder of the credentials can compute. Corral uses it to recognize its
// own texts in places where others can write.
func (c Credentials) Seal(text string) string {
	key := []byte(c.Token)
	if c.App != nil {
		key = c.App.PrivateKey
	}
	return Seal(key, text)
}

// Seal returns a signature of a text that only a holder of the key can compute.
func Seal(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text)) // never fails
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// Validate checks the credentials without calling GitHub.
func (c Credentials) Validate() error {
	if _, err := ParseURL(c.ConfigURL); err != nil {
		return err
	}
	if err := c.Network.Validate(); err != nil {
		return err
	}
	if (c.Token == "") == (c.App == nil) {
		return errors.New("exactly one of a token and an App must be given")
	}
	if c.App == nil {
		return nil
	}
	if c.App.ID == "" || c.App.InstallationID <= 0 {
		return errors.New("an App needs its id and the id of its installation")
	}
	if len(c.App.PrivateKey) > maxKeyBytes {
		return fmt.Errorf("the App's private key has %d bytes, more than %d", len(c.App.PrivateKey), maxKeyBytes)
	}
	key, err := jwt.ParseRSAPrivateKeyFromPEM(c.App.PrivateKey)
	switch {
	case err != nil:
		return fmt.Errorf("parsing the App's private key: %w", err)
	case key.N.BitLen() > maxKeyBits:
		return fmt.Errorf("the App's private key has %d bits, more than %d", key.N.BitLen(), maxKeyBits)
	}
	return nil
}

const (
	// maxKeyBits is the maximum size of an App's key. GitHub's keys have 2,048 bits. The time of a signature grows with the
	// cube of the size, and a signature cannot be interrupted.
	maxKeyBits = 4096
	// maxKeyBytes is the maximum length of the key's PEM text, which is parsed before its size is known.
	maxKeyBytes = 16 << 10
)

// Assertion returns the JSON Web Token that an App authenticates with. It is valid for a few minutes. See
// https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-json-web-token-jwt-for-a-github-app
func (a App) Assertion(now time.Time) (string, error) {
	key, err := jwt.ParseRSAPrivateKeyFromPEM(a.PrivateKey)
	if err != nil {
		return "", err
	}
	issued := now.Add(-time.Minute) // allows for clock skew
	return jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: a.ID, IssuedAt: jwt.NewNumericDate(issued), ExpiresAt: jwt.NewNumericDate(issued.Add(9 * time.Minute)),
	}).SignedString(key)
}

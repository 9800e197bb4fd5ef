// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/corral-dev/corral/internal/github"
)

// outdatedVersion is a version of the runner program from 2022, to which GitHub assigns no jobs.
const outdatedVersion = "2.300.0"

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 64 << 10

// maxHeld is the timeout of a call: GitHub holds a poll for 50 s.
const maxHeld = 70 * time.Second

// errNotBroker is the error for servers whose runners use another protocol.
var errNotBroker = errors.New("runners of this server do not use GitHub's broker")

// outdatedRunner calls GitHub like the runner program for a JIT configuration, but with an old version:
// https://github.com/actions/runner/blob/main/src/Sdk/WebApi/WebApi/BrokerHttpClient.cs
type outdatedRunner struct {
	network http.RoundTripper
	config  jitConfig
	token   string
}

// jitConfig contains the parts of a JIT configuration that outdatedRunner needs.
type jitConfig struct {
	Settings struct {
		AgentID                json.Number
		AgentName, ServerURLV2 string
	}
	Credentials struct {
		Data struct{ ClientID, AuthorizationURL, RequireFIPSCryptography string }
	}
	Key struct{ D, P, Q, Modulus, Exponent []byte }
}

// pollOutdated requests a job as an outdated runner. It returns KindForbidden if GitHub refuses the version, and nil if
// it does not.
func pollOutdated(ctx context.Context, network http.RoundTripper, encoded string) error {
	config, err := decodeJIT(encoded)
	if err != nil {
		return fmt.Errorf("reading the JIT configuration: %w", err)
	}
	if config.Settings.ServerURLV2 == "" {
		return errNotBroker
	}
	r := &outdatedRunner{network: network, config: config}
	if r.token, err = r.authenticate(ctx); err != nil {
		return err
	}
	return r.poll(ctx)
}

// decodeJIT decodes a JIT configuration: base64 of an object whose values are files in base64.
func decodeJIT(encoded string) (c jitConfig, err error) {
	var files map[string][]byte
	all, err := base64.StdEncoding.DecodeString(encoded)
	if err == nil {
		err = json.Unmarshal(all, &files)
	}
	return c, errors.Join(err, json.Unmarshal(files[".runner"], &c.Settings),
		json.Unmarshal(files[".credentials"], &c.Credentials), json.Unmarshal(files[".credentials_rsaparams"], &c.Key))
}

// key returns the runner's private key.
func (c jitConfig) key() *rsa.PrivateKey {
	number := func(b []byte) *big.Int { return new(big.Int).SetBytes(b) }
	return &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: number(c.Key.Modulus), E: int(number(c.Key.Exponent).Int64())},
		D:         number(c.Key.D), Primes: []*big.Int{number(c.Key.P), number(c.Key.Q)},
	}
}

// authenticate exchanges an assertion, signed with the runner's key, for a token: RFC 7523, section 2.2.
func (r *outdatedRunner) authenticate(ctx context.Context) (token string, err error) {
	data, now := r.config.Credentials.Data, time.Now()
	method := jwt.SigningMethod(jwt.SigningMethodRS256)
	if strings.EqualFold(data.RequireFIPSCryptography, "true") {
		method = jwt.SigningMethodPS256
	}
	assertion, err := jwt.NewWithClaims(method, jwt.RegisteredClaims{
		Issuer: data.ClientID, Subject: data.ClientID, Audience: jwt.ClaimStrings{data.AuthorizationURL}, ID: uuid.NewString(),
		NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(5 * time.Minute)),
	}).SignedString(r.config.key())
	if err != nil {
		return "", fmt.Errorf("signing with the runner's key: %w", err)
	}
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_assertion": {assertion},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}
	answer, err := r.call(ctx, http.MethodPost, data.AuthorizationURL, "application/x-www-form-urlencoded", form.Encode())
	return answer.AccessToken, err
}

// poll opens the runner's session, requests a message and closes the session. GitHub may refuse the session or the
// request for a message.
func (r *outdatedRunner) poll(ctx context.Context) error {
	broker, settings := strings.TrimSuffix(r.config.Settings.ServerURLV2, "/"), r.config.Settings
	open, err := json.Marshal(map[string]any{
		"sessionId": uuid.Nil, "ownerName": owner,
		"agent": map[string]any{"id": settings.AgentID, "name": settings.AgentName, "version": outdatedVersion, "osDescription": "Linux", "ephemeral": true},
	})
	if err != nil {
		return fmt.Errorf("writing the session: %w", err)
	}
	session, err := r.call(ctx, http.MethodPost, broker+"/session", "application/json", string(open))
	if err != nil {
		return err
	}
	defer func() { // an unclosed session ends with the runner
		_, _ = r.call(context.WithoutCancel(ctx), http.MethodDelete, broker+"/session", "", "")
	}()
	query := url.Values{
		"sessionId": {session.SessionID}, "status": {"Online"}, "runnerVersion": {outdatedVersion}, "os": {"Linux"},
		"architecture": {"X64"}, "disableUpdate": {"true"},
	}
	_, err = r.call(ctx, http.MethodGet, broker+"/message?"+query.Encode(), "", "")
	return err
}

// answer contains the parts of GitHub's answers that outdatedRunner needs.
type answer struct {
	AccessToken                        string `json:"access_token"`
	SessionID, ErrorKind, ErrorMessage string
}

// call sends a request. Its errors are *github.Error.
func (r *outdatedRunner) call(ctx context.Context, method, address, contentType, body string) (result answer, err error) {
	const doing = "calling GitHub as a runner"
	ctx, cancel := context.WithTimeout(ctx, maxHeld)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return result, github.NewError(github.KindUnexpected, doing, 0, 0, err.Error(), err)
	}
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.network.RoundTrip(req)
	if err != nil {
		return result, github.NewError(github.KindUnavailable, doing, 0, 0, err.Error(), err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return result, github.NewError(github.KindUnavailable, doing, 0, 0, err.Error(), err)
	}
	err = json.Unmarshal(text, &result)
	if resp.StatusCode/100 == 2 && (err == nil || len(text) == 0) {
		return result, nil
	}
	message := string(text)
	if result.ErrorKind != "" {
		message = result.ErrorKind + ": " + result.ErrorMessage
	}
	return result, github.NewError(github.KindOfStatus(resp.StatusCode), doing, resp.StatusCode, 0, message, err)
}

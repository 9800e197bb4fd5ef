// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package runnerwire holds what the simulated GitHub and the simulated runner
// say to each other: the JIT configuration and the bodies of the runner's calls.
//
// The configuration has the shape of GitHub's own. The calls are a short form
// of the broker protocol of the real runner, which nothing but a runner speaks.
package runnerwire

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
)

// Paths of the runner's calls, below the server's base URL.
const (
	// PathBroker is before the others.
	PathBroker = "/_runner/"
	// PathToken gives the credential of the other calls for an assertion that is signed with the configuration's key (POST), as to the real runner. The simulated
	// one doesn't ask: its credential is the client id.
	PathToken = "/_runner/token"
	// PathRegister registers a runner that takes job after job (POST), for a registration token.
	PathRegister = "/_runner/register"
	// PathSession is opened with POST and left with DELETE.
	PathSession = "/_runner/session"
	// PathMessage is polled with GET for a job.
	PathMessage = "/_runner/message"
	// PathAcknowledge accepts the job that a message carried (POST).
	PathAcknowledge = "/_runner/acknowledge"
	// PathRenew is held (POST) while the job runs: it keeps the job's lock and
	// carries the word that the job was cancelled.
	PathRenew = "/_runner/renew"
	// PathComplete reports the job's result (POST).
	PathComplete = "/_runner/complete"
)

// HeaderSession carries the runner's session id on each call but the first. Real runners name it in the query of their polls.
const HeaderSession = "X-Runner-Session"

// Settings is the ".runner" file of a JIT configuration.
type Settings struct {
	AgentID       string `json:"AgentId"`
	AgentName     string `json:"AgentName"`
	PoolID        string `json:"PoolId"`
	PoolName      string `json:"PoolName"`
	ServerURL     string `json:"ServerUrl"`
	ServerURLV2   string `json:"ServerUrlV2"`
	UseV2Flow     string `json:"UseV2Flow"`
	Ephemeral     string `json:"Ephemeral"`
	DisableUpdate string `json:"DisableUpdate"`
	WorkFolder    string `json:"WorkFolder"`
	GitHubURL     string `json:"GitHubUrl"`
}

// Credentials is the ".credentials" file of a JIT configuration.
type Credentials struct {
	Scheme string            `json:"Scheme"`
	Data   map[string]string `json:"Data"`
}

// Key is the ".credentials_rsaparams" file of a JIT configuration: numbers of an
// RSA key, big-endian, in base64.
type Key struct {
	D        string `json:"d"`
	DP       string `json:"dp"`
	DQ       string `json:"dq"`
	Exponent string `json:"exponent"`
	InverseQ string `json:"inverseQ"`
	Modulus  string `json:"modulus"`
	P        string `json:"p"`
	Q        string `json:"q"`
}

// Config is a decoded JIT configuration.
type Config struct {
	Settings    Settings
	Credentials Credentials
	Key         Key
}

// NewKey writes an RSA key with two primes as a JIT configuration has it.
func NewKey(key *rsa.PrivateKey) Key {
	text := func(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }
	return Key{
		D: text(key.D), DP: text(key.Precomputed.Dp), DQ: text(key.Precomputed.Dq), Exponent: text(big.NewInt(int64(key.E))),
		InverseQ: text(key.Precomputed.Qinv), Modulus: text(key.N), P: text(key.Primes[0]), Q: text(key.Primes[1]),
	}
}

// ClientID is what a runner proves its identity with; the real one signs with its key.
func (c Config) ClientID() string { return c.Credentials.Data["clientId"] }

// Encode gives the configuration as GitHub hands it out: base64 of a JSON
// object whose keys are file names and whose values are base64 of the files.
func (c Config) Encode() (string, error) {
	files := map[string][]byte{}
	for name, content := range map[string]any{
		".runner": c.Settings, ".credentials": c.Credentials, ".credentials_rsaparams": c.Key,
	} {
		file, err := json.Marshal(content)
		if err != nil {
			return "", fmt.Errorf("encoding %s: %w", name, err)
		}
		files[name] = file
	}
	all, err := json.Marshal(files)
	if err != nil {
		return "", fmt.Errorf("encoding the files: %w", err)
	}
	return base64.StdEncoding.EncodeToString(all), nil
}

// Decode is the inverse of [Config.Encode]. It errs when a file is missing or
// is not what it should be.
func Decode(encoded string) (Config, error) {
	all, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Config{}, fmt.Errorf("decoding the JIT configuration: %w", err)
	}
	files := map[string][]byte{}
	if err := json.Unmarshal(all, &files); err != nil {
		return Config{}, fmt.Errorf("decoding the JIT configuration's files: %w", err)
	}
	var c Config
	for name, into := range map[string]any{
		".runner": &c.Settings, ".credentials": &c.Credentials, ".credentials_rsaparams": &c.Key,
	} {
		if err := json.Unmarshal(files[name], into); err != nil {
			return Config{}, fmt.Errorf("decoding %s: %w", name, err)
		}
	}
	return c, nil
}

// Registration is what a runner registers itself with, as config.sh does.
type Registration struct {
	// URL of the enterprise, organization or repository.
	URL  string `json:"url"`
	Name string `json:"name"`
	// Group of runners; the default one if empty.
	Group  string   `json:"group,omitempty"`
	Labels []string `json:"labels"`
	// Replace takes the place of a runner of that name.
	Replace bool `json:"replace,omitempty"`
}

// Registered answers a registration.
type Registered struct {
	// Config is the encoded configuration: what config.sh leaves in its files.
	Config string `json:"config"`
}

// Session answers the opening of a session.
type Session struct {
	SessionID string `json:"sessionId"`
}

// JobMessage tells the runner that a job is its own.
type JobMessage struct {
	JobID string `json:"jobId"`
	Name  string `json:"name"`
}

// Work answers the acknowledgement: what to do, or to pretend to do.
type Work struct {
	// Script is a shell script whose exit code is the job's result; without one, the job takes its time and ends as it is told to.
	Script string `json:"script,omitempty"`
	// DurationMillis is how long the job takes, in milliseconds.
	DurationMillis int64 `json:"durationMillis"`
	// Result is what the job ends with when nobody cancels it.
	Result string `json:"result"`
}

// Renewal answers a renewal that was held.
type Renewal struct {
	// Cancelled says that the job has to stop.
	Cancelled bool `json:"cancelled"`
}

// Completion is the body of the report of a job's end.
type Completion struct {
	Result string `json:"result"`
	// Log is the end of what the job's script wrote.
	Log string `json:"log,omitempty"`
}

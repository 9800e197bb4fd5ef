// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package runnerwire defines the protocol between the simulated GitHub and the simulated runner: the JIT configuration
// and the bodies of the runner's calls.
//
// The configuration has GitHub's own format. The calls are a simplified form of the broker protocol, which only runners
// use.
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
	// PathBroker is the prefix of the other paths.
	PathBroker = "/_runner/"
	// PathToken (POST) returns the credential for the other calls to a runner with an assertion that is signed with the
	// configuration's key, as for the real runner. The simulated runner does not call it: its credential is the client
	// id.
	PathToken = "/_runner/token"
	// PathRegister (POST) registers a persistent runner with a registration token.
	PathRegister = "/_runner/register"
	// PathSession is opened with POST and closed with DELETE.
	PathSession = "/_runner/session"
	// PathMessage is polled with GET for a job.
	PathMessage = "/_runner/message"
	// PathAcknowledge (POST) accepts the job in a message.
	PathAcknowledge = "/_runner/acknowledge"
	// PathRenew (POST) is held while the job runs. It keeps the job's lock, and its answer reports a cancellation.
	PathRenew = "/_runner/renew"
	// PathComplete (POST) reports the job's result.
	PathComplete = "/_runner/complete"
)

// HeaderSession contains the runner's session id in each call but the first. Real runners send it in the query of their
// polls.
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

// Key is the ".credentials_rsaparams" file of a JIT configuration: the numbers of an RSA key, big-endian, in base64.
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

// NewKey converts an RSA key with two primes to the format of a JIT configuration.
func NewKey(key *rsa.PrivateKey) Key {
	text := func(n *big.Int) string { return base64.StdEncoding.EncodeToString(n.Bytes()) }
	return Key{
		D: text(key.D), DP: text(key.Precomputed.Dp), DQ: text(key.Precomputed.Dq), Exponent: text(big.NewInt(int64(key.E))),
		InverseQ: text(key.Precomputed.Qinv), Modulus: text(key.N), P: text(key.Primes[0]), Q: text(key.Primes[1]),
	}
}

// ClientID is the simulated runner's proof of identity; the real one signs with its key.
func (c Config) ClientID() string { return c.Credentials.Data["clientId"] }

// Encode encodes the configuration as GitHub does: base64 of a JSON object whose keys are file names and whose values
// are base64 of the files.
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

// Decode is the inverse of [Config.Encode]. It returns an error if a file is missing or malformed.
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

// Registration is what a runner sends to register itself, as config.sh does.
type Registration struct {
	// URL of the enterprise, organization or repository.
	URL  string `json:"url"`
	Name string `json:"name"`
	// Group of runners; empty for the default one.
	Group  string   `json:"group,omitempty"`
	Labels []string `json:"labels"`
	// Replace replaces a runner with the same name.
	Replace bool `json:"replace,omitempty"`
}

// Registered is the answer to a registration.
type Registered struct {
	// Config is the encoded configuration: the content of the files that config.sh writes.
	Config string `json:"config"`
}

// Session is the answer to the opening of a session.
type Session struct {
	SessionID string `json:"sessionId"`
}

// JobMessage assigns a job to the runner.
type JobMessage struct {
	JobID string `json:"jobId"`
	Name  string `json:"name"`
}

// Work is the answer to the acknowledgement: the work to do or to simulate.
type Work struct {
	// Script is a shell script whose exit code is the job's result. Without one, the job takes DurationMillis and ends
	// with Result.
	Script string `json:"script,omitempty"`
	// DurationMillis is the duration of the job in milliseconds.
	DurationMillis int64 `json:"durationMillis"`
	// Result is the result of the job unless it is cancelled.
	Result string `json:"result"`
}

// Renewal is the answer to a held renewal.
type Renewal struct {
	// Cancelled is true if the job has to stop.
	Cancelled bool `json:"cancelled"`
}

// Completion reports a job's end.
type Completion struct {
	Result string `json:"result"`
	// Log is the end of the script's output.
	Log string `json:"log,omitempty"`
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runnerwire_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

func TestConfigSurvivesTheWire(t *testing.T) {
	want := runnerwire.Config{
		Settings:    runnerwire.Settings{AgentID: "7", AgentName: "r1", ServerURLV2: "http://127.0.0.1"},
		Credentials: runnerwire.Credentials{Scheme: "OAuth", Data: map[string]string{"clientId": "x"}},
		Key:         runnerwire.Key{D: "d"},
	}
	encoded, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := runnerwire.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestKeyIsTheRSAKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	wire := runnerwire.NewKey(key)
	number := func(text string) *big.Int {
		bytes, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return new(big.Int).SetBytes(bytes)
	}
	read := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: number(wire.Modulus), E: int(number(wire.Exponent).Int64())}, D: number(wire.D),
		Primes: []*big.Int{number(wire.P), number(wire.Q)},
	}
	if err := read.Validate(); err != nil || !read.Equal(key) {
		t.Errorf("read another key: %v", err)
	}
	read.Precompute()
	if p := read.Precomputed; p.Dp.Cmp(number(wire.DP)) != 0 || p.Dq.Cmp(number(wire.DQ)) != 0 || p.Qinv.Cmp(number(wire.InverseQ)) != 0 {
		t.Error("its other numbers differ")
	}
}

func TestUnreadableConfigIsRefused(t *testing.T) {
	for name, in := range map[string]string{
		"empty":          "",
		"not base64":     "?",
		"not JSON":       base64.StdEncoding.EncodeToString([]byte("x")),
		"a file missing": base64.StdEncoding.EncodeToString([]byte(`{".runner":"e30="}`)),
	} {
		if config, err := runnerwire.Decode(in); err == nil {
			t.Errorf("%s: got %+v", name, config)
		}
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A review predicts the API server's rejections with the messages from the CRDs' validation rules.
func TestRefusalsAreTheAPIServers(t *testing.T) {
	source, err := os.ReadFile("classify.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile("connections.go")
	if err != nil {
		t.Fatal(err)
	}
	definitions := ""
	for _, kind := range []string{"runnerpools", "githubconnections"} {
		text, err := os.ReadFile("../../charts/corral/files/crds/corral.dev_" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		definitions += strings.Join(strings.Fields(string(text)), " ")
	}
	messages := regexp.MustCompile(`\.refuse(?:Change)?\([^"]*"[^"]*", "([^"]*)"\)`).FindAllStringSubmatch(string(source)+string(more), -1)
	if len(messages) < 4 {
		t.Fatalf("%d refusals found", len(messages))
	}
	for _, m := range messages {
		if !strings.Contains(definitions, m[1]) {
			t.Errorf("no CRD contains the message %q", m[1])
		}
	}
}

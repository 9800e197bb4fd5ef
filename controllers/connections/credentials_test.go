// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
)

func TestCredentialsAreOneTokenOrOneApp(t *testing.T) {
	const token, id, installation, private = v1alpha1.TokenKey, v1alpha1.AppIDKey, v1alpha1.AppInstallationIDKey, v1alpha1.AppPrivateKeyKey
	for name, tc := range map[string]struct {
		values map[string]string
		want   github.Credentials
		reason string
		says   []string
	}{
		"token":           {values: map[string]string{token: " t\n"}, want: github.Credentials{Token: "t"}},
		"app":             {values: map[string]string{id: "Iv1.x\n", installation: "12\n", private: "pem"}, want: github.Credentials{App: &github.App{ID: "Iv1.x", InstallationID: 12, PrivateKey: []byte("pem")}}},
		"empty token":     {values: map[string]string{token: "", id: "1", installation: "12", private: "pem"}, want: github.Credentials{App: &github.App{ID: "1", InstallationID: 12, PrivateKey: []byte("pem")}}},
		"both":            {values: map[string]string{token: "t", id: "1"}, reason: v1alpha1.InvalidSpecReason, says: []string{token, id, "Secret x"}},
		"nothing":         {reason: v1alpha1.CredentialsMissingReason, says: []string{token, id, "Secret x"}},
		"half an app":     {values: map[string]string{id: "1", private: " "}, reason: v1alpha1.CredentialsMissingReason, says: []string{installation, private}},
		"odd number":      {values: map[string]string{id: "1", installation: "12a", private: "pem"}, reason: v1alpha1.InvalidSpecReason, says: []string{installation}},
		"negative number": {values: map[string]string{id: "1", installation: "-1", private: "pem"}, reason: v1alpha1.InvalidSpecReason, says: []string{installation}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := credentialsOf(tc.values, "Secret x")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			checkStall(t, err, tc.reason, tc.says...)
		})
	}
}

func checkStall(t *testing.T, err error, reason string, says ...string) {
	t.Helper()
	if reason == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if err == nil || kube.ReasonOf(err, "") != reason || !kube.IsStalled(err) {
		t.Fatalf("got %v; want a Stall with %s", err, reason)
	}
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q doesn't say %q", err, word)
		}
	}
}

// newMounts creates a folder of mounts with links, as the kubelet does, and next to it a file that none of them may reach.
func newMounts(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	for path, content := range map[string]string{
		"outside/github_token":            "stolen",
		"mounts/good/..2026/github_token": "t",
		"mounts/large/github_token":       strings.Repeat("x", maxCredential+1),
		"mounts/file":                     "not a folder",
		"mounts/folder/github_token/x":    "not a file",
		"mounts/out/README":               "",
		"mounts/sibling/README":           "",
		"mounts/empty/README":             "",
	} {
		file := filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"mounts/good/..data":          "..2026",
		"mounts/good/github_token":    "..data/github_token",
		"mounts/out/github_token":     "../../outside/github_token",
		"mounts/sibling/github_token": "../good/github_token",
		"mounts/link":                 "../outside",
	} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(base, "mounts")
}

func TestMountedCredentialsStayInTheirFolder(t *testing.T) {
	dir := newMounts(t)
	values, err := readMount(dir, "good")
	if diff := cmp.Diff(map[string]string{v1alpha1.TokenKey: "t"}, values); diff != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, diff)
	}
	if values, err := readMount(dir, "empty"); len(values) != 0 || err != nil {
		t.Errorf("got %v, %v", values, err)
	}
	for _, name := range []string{"large", "file", "folder", "out", "sibling", "link", "absent", "..", "../outside"} {
		values, err := readMount(dir, name)
		if len(values) != 0 {
			t.Errorf("%s: read %v", name, values)
		}
		checkStall(t, err, v1alpha1.CredentialsMissingReason, name)
	}
	_, err = readMount("", "good")
	checkStall(t, err, v1alpha1.CredentialsMissingReason, "--credentials-dir")
}

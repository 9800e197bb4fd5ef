// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
)

// maxCredential limits a mounted file, in bytes. An RSA key of 8192 bits has 6.4 kB.
const maxCredential = 64 << 10

var credentialKeys = []string{
	v1alpha1.TokenKey, v1alpha1.AppIDKey, v1alpha1.AppInstallationIDKey, v1alpha1.AppPrivateKeyKey,
}

// readKeys are the keys that Corral reads: the keys of the credentials, and the key that names their server.
var readKeys = append([]string{v1alpha1.ServerKey}, credentialKeys...)

// Read reads the credentials and network settings of a connection as the controller does. The connection need not exist in
// the cluster. If the connection has no namespace, its spec.mount is the folder NAME in credentialsDir instead of
// NAMESPACE/NAME.
func Read(ctx context.Context, secrets client.Reader, credentialsDir string, conn *v1alpha1.GitHubConnection) (github.Credentials, error) {
	creds, named, err := (&Reconciler{Secrets: secrets, CredentialsDir: credentialsDir}).readCredentials(ctx, conn)
	if err == nil {
		err = checkNamed(conn, named)
	}
	return creds, err
}

// credentials reads the credentials of the connection. It returns a Stall that names the value that is missing,
// contradictory, or meant for another server.
func (r *Reconciler) credentials(ctx context.Context, conn *v1alpha1.GitHubConnection) (github.Credentials, error) {
	creds, named, err := r.readCredentials(ctx, conn)
	if err != nil {
		return github.Credentials{}, err
	}
	return creds, r.checkServer(ctx, conn, creds, named)
}

// readCredentials returns the credentials, and the server for which they are meant; empty if they name none.
func (r *Reconciler) readCredentials(ctx context.Context, conn *v1alpha1.GitHubConnection) (creds github.Credentials, named string, err error) {
	var values map[string]string
	var from string
	switch {
	case conn.Spec.SecretRef != nil:
		from = "Secret " + conn.Spec.SecretRef.Name
		values, err = r.read(ctx, from, types.NamespacedName{Namespace: conn.Namespace, Name: conn.Spec.SecretRef.Name}, &corev1.Secret{})
	case conn.Spec.Mount != nil:
		folder := path.Join(conn.Namespace, conn.Spec.Mount.Name) // neither name can contain a slash or be ..
		from = "mounted folder " + folder
		values, err = readMount(r.CredentialsDir, folder)
	default:
		err = kube.Stall(catalog.CredentialsNotNamed.With())
	}
	if err != nil {
		return github.Credentials{}, "", err
	}
	if creds, err = credentialsOf(values, from); err != nil {
		return github.Credentials{}, "", err
	}
	creds.ConfigURL = conn.Spec.URL
	creds.Network, err = r.network(ctx, conn)
	return creds, strings.TrimSpace(values[v1alpha1.ServerKey]), err
}

// readMount reads the files in a folder of dir whose names are keys, and nothing outside of the folder. A symbolic link
// that leads outside is an error.
func readMount(dir, name string) (map[string]string, error) {
	if dir == "" {
		return nil, kube.Stall(catalog.CredentialsDirMissing.With())
	}
	folder, err := openFolder(dir, name)
	if err != nil {
		return nil, kube.Stall(catalog.FolderUnreadable.With(name).Wrap(err))
	}
	defer folder.Close() //nolint:errcheck // only read from
	values := map[string]string{}
	for _, key := range readKeys {
		value, err := readFile(folder, key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, kube.Stall(catalog.FolderKeyUnreadable.With(name, key).Wrap(err))
		}
		values[key] = value
	}
	return values, nil
}

func openFolder(dir, name string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read from
	return root.OpenRoot(name)
}

func readFile(folder *os.Root, name string) (string, error) {
	file, err := folder.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxCredential+1))
	if err != nil {
		return "", err
	}
	if len(content) > maxCredential {
		return "", fmt.Errorf("the file has more than %d bytes", maxCredential)
	}
	return string(content), nil
}

// credentialsOf parses a token or an App from values. The keys are the same in Secrets and in mounted folders.
func credentialsOf(values map[string]string, from string) (github.Credentials, error) {
	var present, missing []string
	for _, key := range credentialKeys[1:] {
		if strings.TrimSpace(values[key]) == "" {
			missing = append(missing, key)
		} else {
			present = append(present, key)
		}
	}
	token := strings.TrimSpace(values[v1alpha1.TokenKey])
	switch {
	case token != "" && len(present) > 0:
		return github.Credentials{}, kube.Stall(catalog.CredentialsAmbiguous.With(from, v1alpha1.TokenKey, strings.Join(present, ", ")))
	case token != "":
		return github.Credentials{Token: token}, nil
	case len(present) == 0:
		return github.Credentials{}, kube.Stall(catalog.CredentialsAbsent.With(from, v1alpha1.TokenKey, strings.Join(missing, ", ")))
	case len(missing) > 0:
		return github.Credentials{}, kube.Stall(catalog.CredentialsIncomplete.With(from, strings.Join(missing, ", ")))
	}
	return appOf(values, from)
}

func appOf(values map[string]string, from string) (github.Credentials, error) {
	installation, err := strconv.ParseInt(strings.TrimSpace(values[v1alpha1.AppInstallationIDKey]), 10, 64)
	if err != nil || installation <= 0 {
		return github.Credentials{}, kube.Stall(catalog.InstallationIDInvalid.With(from, v1alpha1.AppInstallationIDKey))
	}
	return github.Credentials{App: &github.App{
		ID:             strings.TrimSpace(values[v1alpha1.AppIDKey]),
		InstallationID: installation,
		PrivateKey:     []byte(values[v1alpha1.AppPrivateKeyKey]),
	}}, nil
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/corral-dev/corral/hack/helmchart"
)

// helmVariable is the environment variable that makes the test binary act as Helm.
const helmVariable = "CORRAL_QUICKSTART_HELM"

func asHelm() bool { return os.Getenv(helmVariable) != "" }

// playHelm implements `helm install` with the flags that the page uses.
func playHelm(args []string) error {
	flags := pflag.NewFlagSet("helm", pflag.ContinueOnError)
	namespace := flags.String("namespace", "default", "")
	create := flags.Bool("create-namespace", false, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 3 || flags.Arg(0) != "install" {
		return fmt.Errorf("helm %q: only install NAME CHART is supported", args)
	}
	chart, err := helmchart.Load(os.DirFS(flags.Arg(2)))
	if err != nil {
		return err
	}
	kubeconfig := os.Getenv("KUBECONFIG")
	client := genericclioptions.NewConfigFlags(false)
	client.KubeConfig, client.Namespace = &kubeconfig, namespace
	config := action.NewConfiguration()
	if err := config.Init(client, *namespace, "secret"); err != nil {
		return err
	}
	i := action.NewInstall(config)
	i.ReleaseName, i.Namespace, i.CreateNamespace, i.WaitStrategy = flags.Arg(1), *namespace, *create, kube.HookOnlyStrategy
	_, err = i.RunWithContext(context.Background(), chart, nil)
	return err
}

// executable extracts the entry point from an archive for `docker load`. It fails unless the archive's image is
// the chart's default image.
func executable(t *testing.T, archive string) []byte {
	t.Helper()
	var manifest []struct {
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(entry(t, open(t, archive), "manifest.json"), &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{"corral:dev"}) {
		t.Fatalf("the archive has %+v, want the image that the chart runs", manifest)
	}
	layers := manifest[0].Layers
	layer, err := gzip.NewReader(bytes.NewReader(entry(t, open(t, archive), layers[len(layers)-1])))
	if err != nil {
		t.Fatal(err)
	}
	return entry(t, layer, "usr/local/bin/corral")
}

func open(t *testing.T, name string) io.Reader {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// entry returns a file from a tar archive.
func entry(t *testing.T, archive io.Reader, name string) []byte {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("the archive has no %s", name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != name {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
}

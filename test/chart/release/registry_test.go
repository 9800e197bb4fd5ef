// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/corral-dev/corral/hack/helmchart"
	"github.com/corral-dev/corral/sim/harness"
)

// distVariable is the environment variable with the folder that `make image` wrote. If it is set, this package
// tests that release instead of the working tree.
const distVariable = "CORRAL_RELEASE"

// TestAReleaseInARegistry pushes the image and the chart to a registry, installs the release from there, and runs
// a job.
func TestAReleaseInARegistry(t *testing.T) {
	dist := os.Getenv(distVariable)
	if dist == "" {
		t.Skip("make release-dry-run runs it")
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	image := pushImage(t, dist, host+"/corral-dev/corral:v0.0.1-dry-run")
	v := version{chart: throughRegistry(t, present(t).chart, host), binary: pullBinary(t, image)}
	repository, tag, _ := strings.Cut(image.String(), ":v")
	install(t, v, map[string]any{"image": map[string]any{"repository": repository, "tag": "v" + tag}})
	deployment := &appsv1.Deployment{}
	must(t, w.Client.Get(t.Context(), harness.Key(helmchart.Namespace, helmchart.Release), deployment))
	if got := deployment.Spec.Template.Spec.Containers[0].Image; got != image.String() {
		t.Errorf("the Deployment runs the image %s, want %s", got, image)
	}
	deployed(t, v)
	must(t, w.Connect(t.Context(), team, "acme", "registry-org"))
	makePool(t, "released", nil)
	harness.AllDone(t, w.GitHub, harness.AddJobs(t, w.GitHub, "registry-org", "released", 3, 100*time.Millisecond))
}

func pushImage(t *testing.T, dist, reference string) name.Reference {
	t.Helper()
	to, err := name.ParseReference(reference, name.Insecure)
	must(t, err)
	folder, err := layout.ImageIndexFromPath(filepath.Join(dist, "image"))
	must(t, err)
	manifest, err := folder.IndexManifest()
	must(t, err)
	index, err := folder.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	must(t, remote.WriteIndex(to, index))
	return to
}

// pullBinary downloads the image and returns the path of its entry point's binary.
func pullBinary(t *testing.T, from name.Reference) string {
	t.Helper()
	image, err := remote.Image(from, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	must(t, err)
	config, err := image.ConfigFile()
	must(t, err)
	binary := filepath.Join(t.TempDir(), "corral")
	must(t, os.WriteFile(binary, entry(t, mutate.Extract(image), strings.TrimPrefix(config.Config.Entrypoint[0], "/")), 0o755))
	return binary
}

// throughRegistry packages a chart as `helm package` does, pushes it, and returns the chart that `helm install
// oci://` would pull.
func throughRegistry(t *testing.T, chart *chartv2.Chart, host string) *chartv2.Chart {
	t.Helper()
	archive, err := util.Save(chart, t.TempDir())
	must(t, err)
	packed, err := os.ReadFile(archive)
	must(t, err)
	c, err := helmregistry.NewClient(helmregistry.ClientOptPlainHTTP(), helmregistry.ClientOptWriter(io.Discard))
	must(t, err)
	reference := host + "/corral-dev/charts/corral:" + chart.Metadata.Version
	_, err = c.Push(packed, reference)
	must(t, err)
	result, err := c.Pull(reference)
	must(t, err)
	pulled, err := loader.LoadArchive(bytes.NewReader(result.Chart.Data))
	must(t, err)
	return pulled
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package flux runs Corral with Flux's real source-controller and kustomize-controller, a real Git server, an OCI
// registry and a real API server. Both controllers are built from nested modules, which is slow. `make interop`
// runs the package.
package flux

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cuelabs.dev/go/oci/ociregistry"
	"cuelabs.dev/go/oci/ociregistry/ociclient"
	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/opencontainers/go-digest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

var (
	must       = harness.Must
	eventually = harness.Eventually
)

var w *harness.World

func TestMain(m *testing.M) {
	if os.Getenv("CORRAL_INTEROP") == "" {
		fmt.Fprintln(os.Stderr, "skipped: building Flux is dear; make interop runs this")
		return
	}
	options := world.Options{GitHub: githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second}}
	os.Exit(harness.Run(m, options, func(made *harness.World) (func() error, error) {
		w = made
		for _, name := range []string{"source-controller", "kustomize-controller"} {
			manifests, err := definitions(name)
			if err != nil {
				return nil, err
			}
			if err := w.Cluster.Apply(context.Background(), manifests...); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}))
}

// TestFluxFetchesAndCorralRuns pushes to a Git server. Flux's source-controller packages the commit as an
// artifact, and Corral runs the pools in it.
func TestFluxFetchesAndCorralRuns(t *testing.T) {
	events := harness.NewReceiver(t)
	startSourceController(t, events)
	w.Controller(t, "--events-addr="+events.URL)
	must(t, w.Connect(t.Context(), "team", "acme", "team-org"))
	repo := newRepository(t)
	repo.Write("pools/pools.cue", pools("linux:3", "extra:2"))
	first := repo.Push("Two pools")
	create(t, gitRepository("team", "pools", repo.server))
	source := createSource(t, "team", "pools", v1alpha1.SourceReference{Kind: v1alpha1.GitRepositoryKind, Name: "pools"}, "pools")

	t.Run("a push becomes an artifact, and runners", func(t *testing.T) {
		applied(t, source, first)
		ids := harness.AddJobs(t, w.GitHub, "team-org", "linux", 3, 10*time.Millisecond)
		harness.AllDone(t, w.GitHub, ids)
	})
	t.Run("a bad push stalls with file and line, and is told", func(t *testing.T) {
		repo.Write("pools/pools.cue", strings.Replace(pools("linux:3", "extra:2"), "max: 3", "max: -3", 1))
		bad := repo.Push("A negative max")
		request(t, "GitRepository", "team", "pools")
		stalled := failed(t, source)
		if !strings.Contains(stalled.Message, "pools/pools.cue:8:") || !strings.Contains(stalled.Message, first) {
			t.Errorf("the message does not name both the line and the revision that stays in force:\n%s", stalled.Message)
		}
		e := awaitEvent(t, events, "PoolSource", "team", "pools", eventv1.EventSeverityError)
		if !strings.Contains(e.Message, "pools/pools.cue:8:") || !strings.HasSuffix(e.Metadata["corral.dev/revision"], bad) || e.Reason != v1alpha1.BuildFailedReason {
			t.Errorf("got the event %+v", e)
		}
		if pool := poolOf(t, "team", "linux"); pool == nil || pool.Spec.Scale.GetMax() != 3 {
			t.Errorf("the pool is %+v", pool)
		}
	})
	t.Run("a fix recovers", func(t *testing.T) {
		repo.Write("pools/pools.cue", pools("linux:4", "extra:2"))
		fix := repo.Push("A max of 4")
		request(t, "GitRepository", "team", "pools")
		applied(t, source, fix)
		if pool := poolOf(t, "team", "linux"); pool.Spec.Scale.GetMax() != 4 {
			t.Errorf("max is %d", pool.Spec.Scale.GetMax())
		}
		awaitEvent(t, events, "PoolSource", "team", "pools", eventv1.EventSeverityInfo)
	})
	t.Run("a pool that leaves Git lets its job finish, and is gone", func(t *testing.T) {
		busy := harness.AddJobs(t, w.GitHub, "team-org", "extra", 1, 4*time.Second)
		eventually(t, func(context.Context) error { return running(busy[0]) })
		repo.Write("pools/pools.cue", pools("linux:4"))
		last := repo.Push("One pool")
		request(t, "GitRepository", "team", "pools")
		applied(t, source, last)
		harness.AllDone(t, w.GitHub, busy)
		eventually(t, func(context.Context) error {
			if pool := poolOf(t, "team", "extra"); pool != nil {
				return fmt.Errorf("the pool is still there: %+v", pool.Status.Conditions)
			}
			for _, s := range w.GitHub.Report().ScaleSets {
				if s.Name == "extra" && strings.Contains(s.Scope, "team-org") {
					return fmt.Errorf("its scale set is still on GitHub: %+v", s)
				}
			}
			return nil
		})
	})
}

// TestPoolsComeFromARegistry pushes an artifact to an OCI registry, as `flux push artifact` does.
func TestPoolsComeFromARegistry(t *testing.T) {
	startSourceController(t, harness.NewReceiver(t))
	w.Controller(t)
	must(t, w.Connect(t.Context(), "oci", "acme", "oci-org"))
	host := registry(t)
	pushArtifact(t, host, "v1", map[string]string{"cue.mod/module.cue": module, "pools.cue": pools("linux:2")})
	create(t, object("source.toolkit.fluxcd.io/v1", "OCIRepository", "oci", "pools", map[string]any{
		"interval": "1h", "insecure": true, "url": "oci://" + host + "/pools", "ref": map[string]any{"tag": "v1"},
	}))
	source := createSource(t, "oci", "pools", v1alpha1.SourceReference{Kind: v1alpha1.OCIRepositoryKind, Name: "pools"}, ".")
	applied(t, source, "v1@sha256:")
	harness.AllDone(t, w.GitHub, harness.AddJobs(t, w.GitHub, "oci-org", "linux", 2, 10*time.Millisecond))

	pushArtifact(t, host, "v1", map[string]string{"cue.mod/module.cue": module, "pools.cue": pools("linux:5")})
	request(t, "OCIRepository", "oci", "pools")
	eventually(t, func(context.Context) error {
		if pool := poolOf(t, "oci", "linux"); pool.Spec.Scale.GetMax() != 5 {
			return fmt.Errorf("max is %d", pool.Spec.Scale.GetMax())
		}
		return nil
	})
}

// TestAParentKustomizationWaits has Flux's kustomize-controller apply a PoolSource and wait until it is ready.
func TestAParentKustomizationWaits(t *testing.T) {
	events := harness.NewReceiver(t)
	startSourceController(t, events)
	run(t, w, "kustomize-controller", "--events-addr="+events.URL)
	w.Controller(t, "--events-addr="+events.URL)
	must(t, w.Connect(t.Context(), "apps", "acme", "apps-org"))
	repo := newRepository(t)
	repo.Write("pools/pools.cue", strings.Replace(pools("linux:3"), "max: 3", `max: "three"`, 1))
	repo.Write("cluster/source.yaml", `apiVersion: corral.dev/v1alpha1
kind: PoolSource
metadata: {name: pools, namespace: apps}
spec:
  sourceRef: {kind: GitRepository, name: platform}
  path: pools
  interval: 1h
  deletionPolicy: Delete
`)
	repo.Push("A source whose pools are broken")
	create(t, gitRepository("apps", "platform", repo.server))
	create(t, object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "apps", "pools", map[string]any{
		"interval": "1h", "retryInterval": "1s", "timeout": "5m", "prune": true, "wait": true, "path": "./cluster",
		"sourceRef": map[string]any{"kind": "GitRepository", "name": "platform"},
	}))

	t.Run("fails at once when the source is stalled", func(t *testing.T) {
		ready(t, "apps", "pools", func(status, reason, message string) bool {
			return status == "False" && reason == "HealthCheckFailed" && strings.Contains(message, "PoolSource/apps/pools status: 'Failed'")
		})
	})
	t.Run("is ready once the pools run", func(t *testing.T) {
		repo.Write("pools/pools.cue", pools("linux:3"))
		good := repo.Push("A number")
		request(t, "GitRepository", "apps", "platform")
		applied(t, client.ObjectKey{Namespace: "apps", Name: "pools"}, good)
		ready(t, "apps", "pools", func(status, _, message string) bool { return status == "True" && strings.Contains(message, good) })
		harness.AllDone(t, w.GitHub, harness.AddJobs(t, w.GitHub, "apps-org", "linux", 1, 10*time.Millisecond))
	})
	t.Run("prunes the source, and with it its pools", func(t *testing.T) {
		repo.Write("cluster/source.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing, namespace: apps}\n")
		repo.Push("No source")
		request(t, "GitRepository", "apps", "platform")
		eventually(t, func(context.Context) error {
			if pool := poolOf(t, "apps", "linux"); pool != nil {
				return fmt.Errorf("the pool is still there")
			}
			return nil
		})
	})
}

func startSourceController(t *testing.T, events *harness.Receiver) {
	t.Helper()
	address, err := world.FreeAddress()
	must(t, err)
	run(t, w, "source-controller", "--events-addr="+events.URL, "--storage-path="+t.TempDir(), "--storage-addr="+address, "--storage-adv-addr="+address)
}

const module = "module: \"acme.example/pools@v0\"\nlanguage: version: \"v0.16.0\"\ndeps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n"

// pools returns CUE that declares pools on the connection acme, each given as NAME:MAX. The first pool's max is on
// line 8.
func pools(list ...string) string {
	text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\n"
	for _, item := range list {
		name, maximum, _ := strings.Cut(item, ":")
		text += fmt.Sprintf("pools: %q: spec: {\n\tconnectionRef: name: \"acme\"\n\tscale: max: %s\n\trunnerLabels: [%[1]q]\n"+
			"\ttemplate: spec: containers: [{name: \"runner\", image: \"runner:1\"}]\n}\n", name, maximum)
	}
	return text
}

// repository is a repository on the Git server.
type repository struct {
	*harness.Repository
	server string // its URL on the server
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{Repository: harness.NewRepository(t)}
	bare := strings.TrimPrefix(r.URL(), "file://")
	r.server = gitServer(t, filepath.Dir(bare)) + "/" + filepath.Base(bare)
	return r
}

func object(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func gitRepository(namespace, name, url string) *unstructured.Unstructured {
	return object("source.toolkit.fluxcd.io/v1", "GitRepository", namespace, name, map[string]any{
		"interval": "1h", "url": url, "ref": map[string]any{"branch": "main"},
	})
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	must(t, w.Client.Create(t.Context(), o))
}

func createSource(t *testing.T, namespace, name string, ref v1alpha1.SourceReference, path string) client.ObjectKey {
	t.Helper()
	create(t, &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.PoolSourceSpec{SourceRef: &ref, Path: path, Interval: metav1.Duration{Duration: time.Hour}},
	})
	return client.ObjectKey{Namespace: namespace, Name: name}
}

var requests int

// request annotates a Flux source for immediate reconciliation, as a Flux Receiver does when GitHub reports a
// push.
func request(t *testing.T, kind, namespace, name string) {
	t.Helper()
	requests++
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, meta.ReconcileRequestAnnotation, requests)
	must(t, w.Client.Patch(t.Context(), object("source.toolkit.fluxcd.io/v1", kind, namespace, name, nil), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// applied waits until the source is ready and its last applied revision contains the given text.
func applied(t *testing.T, key client.ObjectKey, revision string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		s := &v1alpha1.PoolSource{}
		if err := w.Client.Get(ctx, key, s); err != nil {
			return err
		}
		if !strings.Contains(s.Status.LastAppliedRevision, revision) || !conditions.IsReady(s) {
			return fmt.Errorf("the applied revision is %q, want %q: %+v", s.Status.LastAppliedRevision, revision, s.Status.Conditions)
		}
		return nil
	})
}

// failed waits until a source is stalled, and returns its Ready condition.
func failed(t *testing.T, key client.ObjectKey) *metav1.Condition {
	t.Helper()
	s := &v1alpha1.PoolSource{}
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key, s); err != nil {
			return err
		}
		if !conditions.IsStalled(s) || s.Status.ObservedGeneration != s.Generation {
			return fmt.Errorf("not stalled: %+v", s.Status.Conditions)
		}
		return nil
	})
	return conditions.Get(s, meta.ReadyCondition)
}

// awaitEvent waits for an event of the given severity about an object, and returns the latest one.
func awaitEvent(t *testing.T, r *harness.Receiver, kind, namespace, name, severity string) (last eventv1.Event) {
	t.Helper()
	eventually(t, func(context.Context) error {
		all := r.Events(kind, harness.Key(namespace, name))
		for _, e := range slices.Backward(all) {
			if e.Severity == severity {
				last = e
				return nil
			}
		}
		return fmt.Errorf("events: %+v", all)
	})
	return last
}

// ready waits until the Ready condition of a Kustomization satisfies check.
func ready(t *testing.T, namespace, name string, check func(status, reason, message string) bool) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		k := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace, name, nil)
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(k), k); err != nil {
			return err
		}
		list, _, err := unstructured.NestedSlice(k.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, item := range list {
			c := item.(map[string]any)
			if c["type"] == "Ready" && check(c["status"].(string), c["reason"].(string), c["message"].(string)) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", list)
	})
}

// poolOf returns a pool, or nil if it does not exist.
func poolOf(t *testing.T, namespace, name string) *v1alpha1.RunnerPool {
	t.Helper()
	pool := &v1alpha1.RunnerPool{}
	err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pool)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return pool
}

// running returns an error unless the job has started.
func running(id string) error {
	for _, j := range w.GitHub.Jobs() {
		if j.ID == id && !j.Started.IsZero() {
			return nil
		}
	}
	return fmt.Errorf("job %s has not started", id)
}

// Media types of the artifacts that `flux push artifact` produces.
const (
	configType  = "application/vnd.cncf.flux.config.v1+json"
	contentType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// pushArtifact pushes files under a tag to the repository "pools" of a registry.
func pushArtifact(t *testing.T, host, tag string, files map[string]string) {
	t.Helper()
	client, err := ociclient.New(host, &ociclient.Options{Insecure: true})
	must(t, err)
	blob := func(mediaType string, data []byte) ociregistry.Descriptor {
		d := ociregistry.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		pushed, err := client.PushBlob(t.Context(), "pools", d, bytes.NewReader(data))
		must(t, err)
		pushed.MediaType = mediaType
		return pushed
	}
	config, layer := blob(configType, []byte("{}")), blob(contentType, archive(t, files))
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
		`"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
		configType, config.Digest, config.Size, contentType, layer.Digest, layer.Size)
	_, err = client.PushManifest(t.Context(), "pools", tag, []byte(manifest), "application/vnd.oci.image.manifest.v1+json")
	must(t, err)
}

// archive packs files into a compressed tar archive.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	packed := tar.NewWriter(zipped)
	for name, text := range files {
		must(t, packed.WriteHeader(&tar.Header{Name: name, Mode: int64(fs.FileMode(0o644)), Size: int64(len(text)), Typeflag: tar.TypeReg}))
		_, err := packed.Write([]byte(text))
		must(t, err)
	}
	must(t, packed.Close())
	must(t, zipped.Close())
	return b.Bytes()
}

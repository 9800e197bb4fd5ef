// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Artifacts simulates the artifact server of source-controller. Each archive has its own name.
type Artifacts struct {
	// Host is the address of the server as HOST:PORT.
	Host string

	mu       sync.Mutex
	archives map[string][]byte
}

// NewArtifacts starts an empty server.
func NewArtifacts(t *testing.T) *Artifacts {
	t.Helper()
	a := &Artifacts{archives: map[string][]byte{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.Host = server.Listener.Addr().String()
	return a
}

// ServeHTTP serves an archive.
func (a *Artifacts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	archive, ok := a.archives[r.URL.Path]
	a.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(archive)
}

// Put packs a folder and returns the artifact as source-controller reports it, with a cluster-internal URL.
func (a *Artifacts) Put(t *testing.T, folder, revision string) *fluxmeta.Artifact {
	t.Helper()
	archive := pack(t, folder)
	sum := fmt.Sprintf("%x", sha256.Sum256(archive))
	at := path.Join("gitrepository", sum+".tar.gz")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.archives["/"+at] = archive
	size := int64(len(archive))
	return &fluxmeta.Artifact{
		URL: "http://source-controller.flux-system.svc.cluster.local./" + at, Path: at, Revision: revision,
		Digest: "sha256:" + sum, Size: &size, LastUpdateTime: metav1.Now(),
	}
}

// Forget removes all archives, as source-controller does with old ones.
func (a *Artifacts) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.archives)
}

func pack(t *testing.T, folder string) []byte {
	t.Helper()
	packed := &bytes.Buffer{}
	compressed := gzip.NewWriter(packed)
	w := tar.NewWriter(compressed)
	Must(t, filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && entry.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		err = w.WriteHeader(&tar.Header{Name: filepath.ToSlash(inside), Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))})
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}))
	Must(t, errors.Join(w.Close(), compressed.Close()))
	return packed.Bytes()
}

// fluxKinds are the kinds that source-controller creates artifacts for, by their plural names.
var fluxKinds = map[string]string{
	"gitrepositories": "GitRepository", "ocirepositories": "OCIRepository", "buckets": "Bucket", "externalartifacts": "ExternalArtifact",
}

// InstallFlux installs CustomResourceDefinitions for the kinds of Flux's sources until the test ends. They have no
// schemas: the tests write typed objects, and test/interop/flux runs with the real definitions.
func (w *World) InstallFlux(t *testing.T) {
	t.Helper()
	for plural, kind := range fluxKinds {
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + sourcev1.GroupVersion.Group},
			"spec": map[string]any{
				"group": sourcev1.GroupVersion.Group, "scope": "Namespaced",
				"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
				"versions": []any{map[string]any{
					"name": sourcev1.GroupVersion.Version, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}
		Must(t, w.Client.Create(t.Context(), definition))
		t.Cleanup(func() { // the context of the test has ended by then
			if err := w.Client.Delete(context.Background(), definition); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
	Eventually(t, func(ctx context.Context) error {
		for _, list := range []client.ObjectList{
			&sourcev1.GitRepositoryList{}, &sourcev1.OCIRepositoryList{}, &sourcev1.BucketList{}, &sourcev1.ExternalArtifactList{},
		} {
			if err := w.Client.List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
}

// Receiver simulates notification-controller: it accepts events in the documented format, and responds 429 to
// duplicates.
type Receiver struct {
	// URL to post events to.
	URL string

	mu      sync.Mutex
	events  []eventv1.Event
	refused []string
	seen    map[string]bool
}

// NewReceiver starts a receiver. A request in another format fails the test.
func NewReceiver(t *testing.T) *Receiver {
	t.Helper()
	r := &Receiver{seen: map[string]bool{}}
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		server.Close()
		for _, why := range r.refused {
			t.Error(why)
		}
	})
	r.URL = server.URL + "/"
	return r
}

// ServeHTTP receives an event.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	event := eventv1.Event{}
	decoder := json.NewDecoder(http.MaxBytesReader(w, request.Body, 1<<20))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&event)
	if err == nil {
		err = checkEvent(request, event)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.refused = append(r.refused, fmt.Sprintf("a post that notification-controller would not take: %v", err))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	key := fmt.Sprint(event.InvolvedObject.UID, event.Reason, event.Message, event.Metadata)
	if r.seen[key] {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	r.seen[key] = true
	r.events = append(r.events, event)
	w.WriteHeader(http.StatusAccepted)
}

// checkEvent validates an event against https://fluxcd.io/flux/components/notification/events/ and the markers of
// eventv1.Event.
func checkEvent(request *http.Request, event eventv1.Event) error {
	group, _, _ := strings.Cut(event.InvolvedObject.APIVersion, "/")
	if request.Method != http.MethodPost {
		return fmt.Errorf("the method is %s", request.Method)
	}
	for field, value := range map[string]string{
		"involvedObject.apiVersion": group, "involvedObject.kind": event.InvolvedObject.Kind, "involvedObject.name": event.InvolvedObject.Name,
		"involvedObject.namespace": event.InvolvedObject.Namespace, "reason": event.Reason, "message": event.Message,
		"reportingController": event.ReportingController,
	} {
		if value == "" {
			return fmt.Errorf("%s is required", field)
		}
	}
	if event.Severity != eventv1.EventSeverityInfo && event.Severity != eventv1.EventSeverityError {
		return fmt.Errorf("the severity is %q", event.Severity)
	}
	if event.Timestamp.IsZero() || len([]rune(event.Message)) > 39_000 {
		return fmt.Errorf("the timestamp is %s, the message has %d bytes", event.Timestamp, len(event.Message))
	}
	for key := range event.Metadata {
		if !strings.HasPrefix(key, group+"/") && !strings.HasPrefix(key, eventv1.Group+"/") {
			return fmt.Errorf("the metadata key %s has neither the object's group nor notification-controller's", key)
		}
	}
	return nil
}

// Events returns the events received so far for an object.
func (r *Receiver) Events(kind string, key client.ObjectKey) []eventv1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []eventv1.Event
	for _, e := range r.events {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Namespace == key.Namespace && e.InvolvedObject.Name == key.Name {
			events = append(events, e)
		}
	}
	return events
}

// SetArtifact changes the status of an object with set, as source-controller does for a new artifact. It creates the
// object if it does not exist.
func (w *World) SetArtifact(t *testing.T, object client.Object, set func()) {
	t.Helper()
	if object.GetResourceVersion() == "" {
		if err := w.Client.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	Must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	set()
	Must(t, w.Client.Status().Update(t.Context(), object))
}

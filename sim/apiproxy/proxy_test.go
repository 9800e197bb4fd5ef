// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package apiproxy_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/localcluster"
)

// limit bounds each test; a test comes near it only if something is broken.
const limit = time.Minute

var (
	cluster *localcluster.Cluster // shared; each test has its own namespace and proxy
	direct  kubernetes.Interface  // does not go through a proxy
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var err error
	if cluster, err = localcluster.Start(context.Background(), localcluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if direct, err = kubernetes.NewForConfig(cluster.Config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// bench contains a proxy, a client that uses it, and a namespace.
type bench struct {
	*testing.T
	ctx       context.Context
	proxy     *apiproxy.Proxy
	api       kubernetes.Interface
	namespace string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	proxy, err := apiproxy.Start(cluster.Config)
	must(t, err)
	t.Cleanup(proxy.Close)
	b := &bench{T: t, ctx: ctx, proxy: proxy, api: clientOf(t, proxy.Config(cluster.Config)), namespace: strings.ToLower("n-" + rand.Text())}
	must(t, cluster.CreateNamespace(ctx, b.namespace))
	return b
}

// clientOf returns a client that prefers protobuf, like the controller's client, and has no client-side rate limit.
func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	api, err := kubernetes.NewForConfig(config)
	must(t, err)
	return api
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create creates a ConfigMap.
func (b *bench) create(api kubernetes.Interface, name string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := api.CoreV1().ConfigMaps(b.namespace).Create(b.ctx, object, metav1.CreateOptions{})
	return err
}

// exists reports whether the API server has the ConfigMap.
func (b *bench) exists(name string) bool {
	b.Helper()
	list, err := direct.CoreV1().ConfigMaps(b.namespace).List(b.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	must(b.T, err)
	return len(list.Items) == 1
}

// watch watches ConfigMaps through the proxy.
func (b *bench) watch() watch.Interface {
	b.Helper()
	w, err := b.api.CoreV1().ConfigMaps(b.namespace).Watch(b.ctx, metav1.ListOptions{})
	must(b.T, err)
	b.Cleanup(w.Stop)
	return w
}

// next returns the next event as "ADDED name", or "end" once the watch has ended.
func (b *bench) next(w watch.Interface) string {
	b.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return "end"
		}
		object, ok := e.Object.(metav1.Object)
		if !ok {
			b.Fatalf("got %s with %T", e.Type, e.Object)
		}
		return fmt.Sprintf("%s %s", e.Type, object.GetName())
	case <-b.ctx.Done():
		b.Fatal("no event came")
		return ""
	}
}

// sees fails the test unless these are the next events.
func (b *bench) sees(w watch.Interface, events ...string) {
	b.Helper()
	for _, want := range events {
		if got := b.next(w); got != want {
			b.Fatalf("got %q, want %q", got, want)
		}
	}
}

// seesNothing fails the test if an event has arrived.
func (b *bench) seesNothing(w watch.Interface) {
	b.Helper()
	select {
	case e := <-w.ResultChan():
		b.Fatalf("got %s %v", e.Type, e.Object)
	default:
	}
}

// Without faults, a client with a kubeconfig file reads, writes and watches with its own permissions.
func TestProxyForwards(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, localcluster.WriteKubeconfig(path, b.proxy.Config(cluster.Config)))
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must(t, err)
	b.api = clientOf(t, config)
	w := b.watch()
	must(t, b.create(b.api, "a"))
	b.sees(w, "ADDED a")
	if _, err := b.api.CoreV1().ConfigMaps(b.namespace).Get(b.ctx, "b", metav1.GetOptions{}); err == nil {
		t.Error("got what is not there")
	}
	for _, c := range []struct {
		verb   apiproxy.Verb
		status []int
		want   int
	}{
		{apiproxy.Create, nil, 1}, {apiproxy.Create, []int{201}, 1}, {apiproxy.Create, []int{200, 404}, 0}, {apiproxy.Get, []int{200, 404}, 1},
		{apiproxy.Watch, nil, 1}, {apiproxy.All, nil, 3},
	} {
		if got := b.proxy.Count(c.verb, "configmaps", c.status...); got != c.want {
			t.Errorf("counted %d of %s with status %v, want %d", got, c.verb, c.status, c.want)
		}
	}
}

// The API server responds before it has read the request body.
func TestProxyForwardsEarlyAnswers(t *testing.T) {
	b := newBench(t)
	config := b.proxy.Config(cluster.Config)
	config.BearerToken = "wrong"
	api := clientOf(t, config)
	const times = 50
	for range times {
		if err := b.create(api, "a"); !apierrors.IsUnauthorized(err) {
			t.Fatalf("got %v", err)
		}
	}
	if got := b.proxy.Count(apiproxy.Create, apiproxy.All, http.StatusUnauthorized); got != times {
		t.Errorf("counted %d", got)
	}
}

func TestCloseEndsAllGoroutines(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	b := newBench(t)
	w := b.watch()
	b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.FreezeWatch})
	must(t, b.create(b.api, "a"))
	b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.Delay, For: time.Hour})
	failed := make(chan error, 1)
	go func() { failed <- b.create(b.api, "b") }()
	b.proxy.Close()
	if err := <-failed; err == nil {
		t.Error("created through a closed proxy")
	}
	for range w.ResultChan() { // ends with or without an error event
	}
	goleak.VerifyNone(t, ignore)
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elazarl/goproxy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/test/recorder"
)

// proxied is a host that only the proxy can resolve.
const proxied = "ghes.example.com"

// An Enterprise Server has a certificate from a private CA, and is reachable only through a proxy with
// authentication. The controller, the management of webhooks, and runners all use both. If one of the settings is
// missing, the error names it.
func TestAnEnterpriseServerWithAPrivateCABehindAProxy(t *testing.T) {
	const namespace = "proxied"
	t.Parallel()
	w := newStoryOn(t, githubsim.Options{Mode: githubsim.Acquire, PublicURL: "https://" + proxied, SessionExpiry: 3 * time.Second},
		"--watch-namespaces="+namespace, "--leader-elect=false")
	ctx := t.Context()
	server := httptest.NewTLSServer(w.GitHub.Server)
	t.Cleanup(server.Close)
	proxy, passed := newProxy(t, server.Listener.Addr().String())

	address := w.listen(t)
	d := w.newDemandWorld(t, namespace, address)
	must(t, w.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy"}, StringData: map[string]string{"username": "corral", "password": "wrong"}}))
	d.connection(`{"proxy":{"https":{"url":"` + proxy + `","secretRef":{"name":"proxy"}},"scope":"ControllerAndRunners"}}`)
	d.says("ProxyNotNamed\nspec.proxy.https\nproxy\naddress\n" + proxy)
	secret := func(key, value string) {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"stringData":{%q:%q}}`, key, value))
		must(t, w.Client.Patch(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy"}}, patch))
	}
	secret("address", proxy)
	d.connection(`{"allowedNamespaces":["none"]}`) // triggers a reconciliation
	d.says("Proxy Authentication Required")
	secret("password", "p@ss:word")
	d.connection(`{"ca":{"configMapRef":{"name":"ca"}}}`)
	d.says("ReferenceMissing\nspec.ca.configMapRef: ca")
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	must(t, w.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ca"}, Data: map[string]string{"ca.crt": certificate}}))
	d.connection(`{"verification":"Active"}`)
	d.says("FeatureMissing\nRunnerReleases")

	d.example("webhooks", "max: 50", "max: 4")
	must(t, w.Client.Create(ctx, newPool(namespace, "sets", "acme")))
	for _, pool := range []string{"linux-web", "sets"} {
		d.until(pool, ready)
	}
	before := passed.Load()
	w.allDone(t, append(d.jobs(4, "web-shop", "linux", "web"), d.jobs(4, "app", "sets")...))
	if n := passed.Load() - before; n < 8 {
		t.Errorf("only %d connections of runners went through the proxy", n)
	}
	w.cleanUp(t, namespace)
}

// connection changes the spec of the connection.
func (d *demandWorld) connection(spec string) {
	d.t.Helper()
	connection := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "acme"}}
	must(d.t, d.w.Client.Patch(d.t.Context(), connection, client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))))
}

// says waits until the causes of the connection's condition Ready have these facts.
func (d *demandWorld) says(text string) {
	d.t.Helper()
	eventually(d.t, func(ctx context.Context) error {
		connection := &v1alpha1.GitHubConnection{}
		must(d.t, d.w.Client.Get(ctx, key(d.namespace, "acme"), connection))
		if facts := recorder.Facts(connection, v1alpha1.ReadyCondition); !strings.Contains(facts, text) {
			return fmt.Errorf("the connection has %q, want %q", facts, text)
		}
		return nil
	})
}

// newProxy runs a proxy that requires a password. It counts the connections that the proxy made to the server.
func newProxy(t *testing.T, server string) (url string, passed *atomic.Int64) {
	t.Helper()
	passed = &atomic.Int64{}
	p := goproxy.NewProxyHttpServer()
	p.Logger = discard{}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("corral:p@ss:word"))
	p.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		if ctx.Req.Header.Get("Proxy-Authorization") == want {
			return goproxy.OkConnect, host
		}
		ctx.Resp = goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, http.StatusProxyAuthRequired, "") //nolint:bodyclose // the proxy writes it
		return goproxy.RejectConnect, host
	})
	p.ConnectDial = func(network, address string) (net.Conn, error) {
		if address != proxied+":443" {
			return nil, fmt.Errorf("%s isn't the server", address)
		}
		passed.Add(1)
		return (&net.Dialer{}).DialContext(t.Context(), network, server)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL, passed
}

// discard is a logger that drops all messages.
type discard struct{}

func (discard) Printf(string, ...any) {}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// idlePools is the number of idle pools.
	idlePools = 200
	// calm is how long a controller is left idle before its memory is read, and collectLimit how long the next garbage
	// collection may then take: Go runs one every two minutes.
	calm         = time.Minute
	collectLimit = 4 * time.Minute
	// appID and installationID identify the App.
	appID, installationID = 7, 70
)

// restEndpoints are the endpoints of the REST API, whose calls GitHub limits per hour.
var restEndpoints = map[githubsim.Endpoint]bool{
	githubsim.EndpointApp: true, githubsim.EndpointInstallation: true, githubsim.EndpointAccessToken: true,
	githubsim.EndpointUser: true, githubsim.EndpointMeta: true, githubsim.EndpointOrg: true, githubsim.EndpointRepository: true,
	githubsim.EndpointRunnerGroups: true, githubsim.EndpointRunnerGroup: true, githubsim.EndpointRunners: true,
	githubsim.EndpointRunner: true, githubsim.EndpointDeleteRunner: true, githubsim.EndpointRegistrationToken: true,
	githubsim.EndpointRunnerRegistration: true, githubsim.EndpointReleases: true,
}

// runIdle measures the cost of idle pools, compared to the controller without pools.
func runIdle(ctx context.Context, o *options, latency time.Duration) (f figures, err error) {
	b, err := makeBed(ctx, o, latency, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		b.failed = err != nil
		err = errors.Join(err, b.remove())
	}()
	empty, err := b.calmMemory(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.addIdlePools(ctx); err != nil {
		return nil, err
	}
	full, err := b.calmMemory(ctx)
	if err != nil {
		return nil, err
	}
	f = figures{
		"pools": idlePools, "rss_mib": full.rss, "rss_empty_mib": empty.rss,
		"rss_mib_per_pool": (full.rss - empty.rss) / idlePools, "heap_mib_per_pool": (full.heap - empty.heap) / idlePools,
		"stack_mib_per_pool": (full.stack - empty.stack) / idlePools,
	}
	return f, b.watchIdle(ctx, f, o.idleWindow)
}

// addIdlePools creates the pools on one App and waits until they listen.
func (b *bed) addIdlePools(ctx context.Context) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	b.GitHub.AddApp(githubsim.App{
		ID: appID, InstallationID: installationID, Account: organization, PublicKey: &key.PublicKey,
		Permissions: map[string]string{"organization_self_hosted_runners": "write"},
	})
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: appConnection},
		Data: map[string][]byte{
			v1alpha1.AppIDKey: []byte(strconv.Itoa(appID)), v1alpha1.AppInstallationIDKey: []byte(strconv.Itoa(installationID)),
			v1alpha1.AppPrivateKeyKey: text,
		},
	}
	if err := b.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("making the App's Secret: %w", err)
	}
	connection := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: appConnection},
		Spec: v1alpha1.GitHubConnectionSpec{
			URL: b.GitHub.ConfigURL(organization), SecretRef: &v1alpha1.LocalObjectReference{Name: appConnection},
		},
	}
	if err := b.client.Create(ctx, connection); err != nil {
		return fmt.Errorf("making the App's connection: %w", err)
	}
	var names []string
	for i := range idlePools {
		names = append(names, fmt.Sprintf("idle-%03d", i+1))
	}
	if err := b.createPools(ctx, namespace, appConnection, names); err != nil {
		return err
	}
	return listen(ctx, b.GitHub, idlePools)
}

// watchIdle counts the requests in a period in which nothing happens.
func (b *bed) watchIdle(ctx context.Context, f figures, window time.Duration) error {
	before, after, audit, err := b.during(ctx, func() error { return pause(ctx, window) })
	if err != nil {
		return err
	}
	github := githubRequests(before.github.Requests, after.github.Requests)
	for endpoint, n := range github {
		if restEndpoints[githubsim.Endpoint(endpoint)] {
			f["rest_calls"] += float64(n)
		}
	}
	f["window_s"] = after.at.Sub(before.at).Seconds()
	f["idle_cpu_ms_per_s"] = float64((after.cpu - before.cpu).Milliseconds()) / f["window_s"]
	f["writes_per_pool"] = float64(writes(audit)) / idlePools
	f.counts("kube_per_pool", kubePrefix, audit, idlePools)
	f.counts("github_per_pool", githubPrefix, github, idlePools)
	return nil
}

// during returns the resource use before and after do runs, and the Kubernetes requests meanwhile.
func (b *bed) during(ctx context.Context, do func() error) (before, after use, audit map[string]int, err error) {
	if before, err = b.use(ctx); err != nil {
		return before, after, nil, err
	}
	if err = do(); err != nil {
		return before, after, nil, err
	}
	if after, err = b.use(ctx); err != nil {
		return before, after, nil, err
	}
	if err = pause(ctx, auditDelay); err != nil {
		return before, after, nil, err
	}
	audit, err = readAudit(b.Cluster.AuditLog(), before.at, after.at)
	return before, after, audit, err
}

// writes counts the requests that change objects, except the leader's lease.
func writes(audit map[string]int) int {
	n := 0
	for name, count := range audit {
		verb, resource, _ := strings.Cut(name, " ")
		switch verb {
		case "create", "update", "patch", "delete", "deletecollection":
			if resource != "leases" {
				n += count
			}
		}
	}
	return n
}

// memoryUse is the memory of a process, in MiB.
type memoryUse struct{ rss, heap, stack float64 }

// calmMemory reads the controller's memory after it was idle for a while and earlier garbage was collected.
func (b *bed) calmMemory(ctx context.Context) (memoryUse, error) {
	if err := pause(ctx, calm); err != nil {
		return memoryUse{}, err
	}
	since := float64(time.Now().Unix())
	var u memoryUse
	err := world.Until(ctx, collectLimit, func(context.Context) error {
		metrics, err := goMetrics(ctx, b.controller.MetricsURL)
		if err != nil {
			return err
		}
		if metrics["go_memstats_last_gc_time_seconds"] < since {
			return errors.New("there was no garbage collection")
		}
		u.heap, u.stack = metrics["go_memstats_heap_inuse_bytes"]/(1<<20), metrics["go_memstats_stack_inuse_bytes"]/(1<<20)
		return nil
	})
	if err != nil {
		return memoryUse{}, err
	}
	memory, err := b.controller.Memory()
	u.rss = memory.Resident
	return u, err
}

// goMetrics reads the Go runtime's values from the controller's metrics.
func goMetrics(ctx context.Context, url string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	defer answer.Body.Close()
	metrics := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasPrefix(name, "go_memstats_") && name != "go_gc_heap_live_bytes" {
			continue
		}
		if metrics[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("reading metric %s: %w", name, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return metrics, nil
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/sim/githubsim"
)

// storageClass is a class of volumes on the node's disk. A volume is created after the scheduler has chosen the
// node for its claim.
const storageClass = "node-disk"

// cachePool compiles Go programs. In production, the image would contain Go's toolchain.
const cachePool = `
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: build}
spec:
  connectionRef: {name: acme}
  scale: {max: 1}
  cache: {size: 1Gi, storageClassName: ` + storageClass + `, mountPath: /home/runner/.cache, maxClaims: 1}
  template:
    spec:
      securityContext: {fsGroup: 1001, fsGroupChangePolicy: OnRootMismatch}
      containers:
      - name: runner
        image: corral.test/runner:1
        command: [/home/runner/run.sh]
        resources: {requests: {cpu: "1"}}
        env: [{name: GOCACHE, value: /home/runner/.cache/go-build}, {name: CGO_ENABLED, value: "0"}, {name: HOME, value: /home/runner}]
        volumeMounts: [{name: go, mountPath: /usr/local/go, readOnly: true}]
      volumes: [{name: go, hostPath: {path: GOROOT}}]
`

// build is a job that compiles a program. It prints the size of the cache that it found, and the duration of the
// build.
const build = `
echo "found $(find ~/.cache -type f | wc -l) files, $(du -sm ~/.cache | cut -f1) MB"
printf 'package main\nimport ("encoding/json"; "os")\nfunc main() { panic(json.NewEncoder(os.Stdout).Encode(os.Args)) }\n' >main.go
time /usr/local/go/bin/go build -o program main.go
`

func (b *bed) theSecondJobFindsTheCache(t *testing.T) {
	b.provision(t)
	b.pool(t, "cache", strings.ReplaceAll(cachePool, "GOROOT", os.Getenv("CORRAL_E2E_GOROOT")))
	var jobs [2]githubsim.JobTimeline
	var claims [2]corev1.PersistentVolumeClaim
	for i := range jobs { // the second job is queued before the pod of the first one is gone
		jobs[i] = b.job(t, "cache-org", "build", build)
		t.Logf("job %d: queued %s, worked %s, %s", i+1, jobs[i].Started.Sub(jobs[i].Queued).Round(time.Millisecond), jobs[i].Finished.Sub(jobs[i].Started).Round(time.Millisecond), jobs[i].Log)
		claims[i] = b.onlyClaim(t, "cache")
	}
	if !strings.HasPrefix(jobs[0].Log, "found 0 files") || strings.HasPrefix(jobs[1].Log, "found 0 files") {
		t.Error("the second job found an empty cache, or the first one a filled cache")
	}
	if jobs[0].Runner == jobs[1].Runner || claims[0].UID != claims[1].UID {
		t.Errorf("runner %s had claim %s, then runner %s claim %s", jobs[0].Runner, claims[0].UID, jobs[1].Runner, claims[1].UID)
	}
	first, second := jobs[0].Finished.Sub(jobs[0].Started), jobs[1].Finished.Sub(jobs[1].Started)
	if second > first/2 {
		t.Errorf("with the cache a job took %s, without %s", second, first)
	}
	b.end(t, "cache", "build")
}

func (b *bed) onlyClaim(t *testing.T, namespace string) corev1.PersistentVolumeClaim {
	t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	must(t, b.world.Client.List(t.Context(), claims, client.InNamespace(namespace)))
	if len(claims.Items) != 1 {
		t.Fatalf("%d claims, want one", len(claims.Items))
	}
	return claims.Items[0]
}

// provision creates a volume on the node's disk for each claim of the storage class, until the test ends.
func (b *bed) provision(t *testing.T) {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: storageClass}, Provisioner: "corral.test/node-disk",
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	must(t, b.world.Client.Create(t.Context(), class))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := b.makeVolumes(ctx); err != nil && ctx.Err() == nil {
					ended <- err
					return
				}
			case <-ctx.Done():
				ended <- nil
				return
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
}

// makeVolumes creates the volumes for pending claims.
func (b *bed) makeVolumes(ctx context.Context) error {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := b.world.Client.List(ctx, claims); err != nil {
		return err
	}
	for _, claim := range claims.Items {
		host := claim.Annotations["volume.kubernetes.io/selected-node"]
		if claim.Spec.VolumeName != "" || host == "" {
			continue
		}
		volume := b.volumeFor(&claim, host)
		if err := os.MkdirAll(volume.Spec.Local.Path, 0o755); err != nil {
			return err
		}
		if err := b.world.Client.Create(ctx, volume); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	return nil
}

func (b *bed) volumeFor(claim *corev1.PersistentVolumeClaim, host string) *corev1.PersistentVolume {
	name := "disk-" + string(claim.UID)
	onHost := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: storageClass,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: b.node.path("disks/" + name)}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{onHost}}},
		}},
	}}
}

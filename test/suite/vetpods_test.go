// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/admission"
)

// podBases are specs of pods that together have a value in almost every list and object of a PodSpec.
var podBases = []string{`
activeDeadlineSeconds: 3600
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
        matchFields: [{key: metadata.name, operator: In, values: [a]}]
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}]
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - {topologyKey: kubernetes.io/hostname, namespaces: [a], labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}, namespaceSelector: {matchLabels: {a: b}}, matchLabelKeys: [version]}
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {a: b}}}}]
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {a: b}}, mismatchLabelKeys: [version]}]
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {topologyKey: zone}}]
automountServiceAccountToken: false
dnsPolicy: None
dnsConfig: {nameservers: [10.0.0.10], searches: [a.example], options: [{name: ndots, value: "2"}]}
enableServiceLinks: false
hostAliases: [{ip: 10.0.0.1, hostnames: [a.example]}]
hostname: runner
subdomain: runners
imagePullSecrets: [{name: registry}]
nodeSelector: {kubernetes.io/os: linux}
os: {name: linux}
readinessGates: [{conditionType: example.com/ready}]
resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}, {name: nic, resourceClaimName: nic}]
restartPolicy: Never
schedulerName: default-scheduler
schedulingGates: [{name: example.com/quota}]
securityContext:
  {runAsUser: 1001, runAsGroup: 1001, fsGroup: 1001, runAsNonRoot: true, supplementalGroups: [1, 2], fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: RuntimeDefault}, seLinuxOptions: {level: "s0:c1,c2"}, sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}], supplementalGroupsPolicy: Merge}
serviceAccountName: default
shareProcessNamespace: true
terminationGracePeriodSeconds: 30
tolerations: [{key: a, operator: Exists, effect: NoSchedule}, {key: b, operator: Equal, value: c, effect: NoExecute, tolerationSeconds: 5}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, nodeAffinityPolicy: Honor, nodeTaintsPolicy: Ignore, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [version]}]
initContainers:
- {name: prepare, image: "busybox:1", command: [cp], args: [a], volumeMounts: [{name: work, mountPath: /b}]}
- name: docker
  image: docker:dind
  restartPolicy: Always
  securityContext: {privileged: true}
  startupProbe: {exec: {command: [docker]}, periodSeconds: 1}
  readinessProbe: {tcpSocket: {port: 2375, host: a}}
  lifecycle: {postStart: {sleep: {seconds: 1}}}
containers:
- name: runner
  image: ghcr.io/actions/actions-runner:2.330.0
  imagePullPolicy: IfNotPresent
  command: [/home/runner/run.sh]
  args: [a]
  workingDir: /work
  env:
  - {name: A, value: b}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName, apiVersion: v1}}}
  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: runner, divisor: "1"}}}
  - {name: TOKEN, valueFrom: {secretKeyRef: {name: tokens, key: npm, optional: true}}}
  - {name: SETTING, valueFrom: {configMapKeyRef: {name: settings, key: a}}}
  envFrom: [{prefix: X_, configMapRef: {name: settings}}, {secretRef: {name: tokens}}]
  ports: [{name: http, containerPort: 8080, hostPort: 8080, protocol: TCP, hostIP: 127.0.0.1}]
  resources: {requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi, example.com/gpu: "1"}, limits: {cpu: "2", memory: 2Gi, example.com/gpu: "1"}, claims: [{name: gpu, request: a}]}
  resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
  volumeMounts:
  - {name: work, mountPath: /work, subPath: a, mountPropagation: None}
  - {name: pvc, mountPath: /tools, readOnly: true, recursiveReadOnly: Disabled}
  - {name: empty, mountPath: /expr, subPathExpr: $(A)}
  volumeDevices: [{name: block, devicePath: /dev/xvda}]
  livenessProbe: {grpc: {port: 2375, service: a}, terminationGracePeriodSeconds: 5}
  readinessProbe: {httpGet: {path: /, port: http, scheme: HTTPS, host: a, httpHeaders: [{name: X-A, value: b}]}, successThreshold: 2, failureThreshold: 3, initialDelaySeconds: 1, timeoutSeconds: 1, periodSeconds: 1}
  lifecycle: {preStop: {exec: {command: [sleep]}}, postStart: {httpGet: {port: 80}}}
  terminationMessagePath: /dev/log
  terminationMessagePolicy: File
  securityContext:
    {capabilities: {add: [NET_ADMIN], drop: [ALL]}, privileged: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsUser: 1001, runAsGroup: 1001, runAsNonRoot: true, procMount: Default, seccompProfile: {type: Localhost, localhostProfile: a.json}, appArmorProfile: {type: Localhost, localhostProfile: a}, seLinuxOptions: {user: a, role: b, type: c, level: s0}}
volumes:
- {name: work, emptyDir: {sizeLimit: 1Gi, medium: Memory}}
- {name: empty}
- {name: pvc, persistentVolumeClaim: {claimName: tools, readOnly: true}}
- {name: block, persistentVolumeClaim: {claimName: block}}
- {name: settings, configMap: {name: settings, defaultMode: 420, items: [{key: a, path: a, mode: 292}], optional: true}}
- {name: secret, secret: {secretName: tokens, defaultMode: 420, items: [{key: a, path: a, mode: 292}], optional: true}}
- {name: down, downwardAPI: {defaultMode: 420, items: [{path: a, fieldRef: {fieldPath: metadata.labels}, mode: 292}, {path: b, resourceFieldRef: {containerName: runner, resource: limits.cpu, divisor: "1"}}]}}
- name: projected
  projected:
    defaultMode: 420
    sources:
    - {serviceAccountToken: {path: token, audience: a, expirationSeconds: 3600}}
    - {configMap: {name: settings, items: [{key: b, path: c}]}}
    - {secret: {name: tokens, items: [{key: c, path: d}]}}
    - {downwardAPI: {items: [{path: e, fieldRef: {fieldPath: metadata.name}}]}}
- name: claim
  ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}, selector: {matchLabels: {a: b}}}}}
- {name: image, image: {reference: "example.com/tools:1", pullPolicy: IfNotPresent}}
- {name: host, hostPath: {path: /var/lib, type: Directory}}
- {name: nfs, nfs: {server: a, path: /a, readOnly: true}}
- {name: csi, csi: {driver: a.example, readOnly: true, fsType: ext4, volumeAttributes: {a: b}, nodePublishSecretRef: {name: a}}}
- {name: iscsi, iscsi: {targetPortal: "10.0.0.1:3260", iqn: "iqn.2001-04.com.example:storage", lun: 0, fsType: ext4, portals: ["10.0.0.2:3260"], secretRef: {name: a}, initiatorName: "iqn.2001-04.com.example:b"}}
- {name: git, gitRepo: {repository: "https://a.example/b", revision: a, directory: b}}
- {name: azure, azureFile: {secretName: a, shareName: b}}
- {name: azured, azureDisk: {diskName: a, diskURI: "/subscriptions/a", kind: Managed, cachingMode: None, fsType: ext4}}
- {name: ebs, awsElasticBlockStore: {volumeID: a, fsType: ext4, partition: 1}}
- {name: gce, gcePersistentDisk: {pdName: a, fsType: ext4, partition: 1}}
- {name: rbd, rbd: {monitors: [a], image: b, pool: c, user: d, keyring: e, fsType: ext4, secretRef: {name: a}}}
- {name: ceph, cephfs: {monitors: [a], path: /a, user: b, secretFile: /c, secretRef: {name: a}}}
- {name: gluster, glusterfs: {endpoints: a, path: b}}
- {name: flex, flexVolume: {driver: a.example/b, fsType: ext4, options: {a: b}, secretRef: {name: a}}}
- {name: cinder, cinder: {volumeID: a, fsType: ext4, secretRef: {name: a}}}
- {name: fc, fc: {targetWWNs: [a], lun: 0, fsType: ext4}}
- {name: flocker, flocker: {datasetName: a}}
- {name: vsphere, vsphereVolume: {volumePath: a, fsType: ext4}}
- {name: quobyte, quobyte: {registry: "a:1", volume: b, user: c, group: d}}
- {name: photon, photonPersistentDisk: {pdID: a, fsType: ext4}}
- {name: portworx, portworxVolume: {volumeID: a, fsType: ext4}}
- {name: scaleio, scaleIO: {gateway: a, system: b, volumeName: c, secretRef: {name: a}}}
- {name: storageos, storageos: {volumeName: a, volumeNamespace: b, secretRef: {name: a}}}
`, `
hostNetwork: true
hostPID: true
hostIPC: true
hostUsers: true
dnsPolicy: ClusterFirstWithHostNet
preemptionPolicy: PreemptLowerPriority
setHostnameAsFQDN: true
nodeName: node
containers:
- {name: runner, image: a, ports: [{containerPort: 80, hostPort: 80}], resources: {limits: {hugepages-2Mi: 2Mi, memory: 1Gi, cpu: 1}}, volumeMounts: [{name: huge, mountPath: /huge}]}
- {name: other, image: b, restartPolicy: OnFailure, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}], lifecycle: {stopSignal: SIGTERM}}
os: {name: linux}
volumes: [{name: huge, emptyDir: {medium: HugePages}}]
`, `
os: {name: windows}
nodeSelector: {kubernetes.io/os: windows}
securityContext: {windowsOptions: {runAsUserName: ContainerUser, gmsaCredentialSpecName: a, gmsaCredentialSpec: b}}
containers:
- {name: runner, image: a, securityContext: {windowsOptions: {runAsUserName: "a", hostProcess: false}}, volumeMounts: [{name: c, mountPath: 'C:\\work'}]}
volumes: [{name: c, emptyDir: {}}]
`, `
resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}
hostUsers: false
hostnameOverride: other.example
containers:
- {name: runner, image: a, resources: {requests: {cpu: 100m}}}
- {name: b, image: a}
`}

// path is a field of a type, by the names of fields, with "[]" for elements of a list.
type fieldPath struct {
	names []string
	kind  reflect.Type
}

// fieldsOf lists every field below a type, in order.
func fieldsOf(t reflect.Type, names []string) []fieldPath {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	all := []fieldPath{{names, t}}
	switch {
	case t == reflect.TypeFor[resource.Quantity](), t == reflect.TypeFor[intstr.IntOrString](), t == reflect.TypeFor[metav1.Time](), t == reflect.TypeFor[metav1.FieldsV1]():
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if name == "" {
				all = append(all, fieldsOf(t.Field(i).Type, names)[1:]...)
			} else if name != "ownerReferences" && name != "managedFields" {
				all = append(all, fieldsOf(t.Field(i).Type, append(slices.Clone(names), name))...)
			}
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		all = append(all, fieldsOf(t.Elem(), append(slices.Clone(names), "[]"))...)
	}
	return all
}

// put sets a field in an object and creates missing parents. In a list, it uses an element that has the next field, if there
// is one.
func put(r *rand.Rand, in any, names []string, value any) any {
	if len(names) == 0 {
		return value
	}
	if names[0] != "[]" {
		object, ok := in.(map[string]any)
		if !ok {
			object = map[string]any{}
		}
		if object[names[0]] = put(r, object[names[0]], names[1:], value); object[names[0]] == takenAway {
			delete(object, names[0])
		}
		return object
	}
	list, _ := in.([]any)
	var fit []int
	for i, element := range list {
		if fields, ok := element.(map[string]any); len(names) > 1 && (!ok || fields[names[1]] != nil) {
			fit = append(fit, i)
		}
	}
	i := len(list)
	switch {
	case len(fit) > 0:
		i = fit[r.IntN(len(fit))]
	case len(list) > 0 && (len(names) == 1 || r.IntN(3) > 0):
		i = r.IntN(len(list))
	default:
		list = append(list, map[string]any{})
	}
	if list[i] = put(r, list[i], names[1:], value); list[i] == takenAway {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// takenAway is the value that stands for a removed field.
const takenAway = "\x00absent"

// mistakes are values of a type that are invalid in some or all fields.
func mistakes(r *rand.Rand, t reflect.Type, has any) any {
	pick := func(of ...any) any { return of[r.IntN(len(of))] }
	if r.IntN(12) == 0 {
		return takenAway
	}
	if r.IntN(40) == 0 {
		return pick("a", int64(1), true, []any{}, map[string]any{}, 1.5)
	}
	quantity := func() any { return pick("1", "-1", "0", "1.5", "100m", "2Gi", "1n", "2Mi", "abc", "1e3", int64(3)) }
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		return quantity()
	case t == reflect.TypeFor[intstr.IntOrString]():
		return pick(int64(80), "http", int64(0), "a--b", int64(70000), "80", "")
	case t.Kind() == reflect.String:
		return pick("", "a", "A_b", "a b", "-a", "a/b", "/a", "../a", "a.example", "a.example/b", "10.0.0.1", "::1", "1.2.3", "1", "Always", "Never", "OnFailure", "Exists", "Equal", "In", "NotIn", "DoesNotExist", "Gt", "Lt",
			"NoSchedule", "Memory", "File", "TCP", "SCTP", "HTTPS", "None", "Bidirectional", "HostToContainer", "Localhost", "Unconfined", "RuntimeDefault", "Unmasked", "IfPossible", "Enabled", "Block", "ReadWriteMany", "linux", "windows",
			"runner", "docker", "work", "gpu", "metadata.annotations['a']", "status.podIP", "limits.memory", "requests.example.com/gpu", "$(A)", "SIGTERM", "SIGKILL", "Restart", "RestartAllContainers", "RestartContainer", "NotRequired", "cpu",
			"*", "kernel.shm_rmid_forced", strings.Repeat("a", 64), strings.Repeat("b", 254), " a", "é", "a\nb", has)
	case t.Kind() == reflect.Bool:
		return r.IntN(2) == 0
	case t.Kind() == reflect.Int32, t.Kind() == reflect.Int64:
		return pick(int64(0), int64(-1), int64(1), int64(2), int64(101), int64(70000), int64(511), int64(512), int64(1<<31-1), int64(1<<40), int64(755))
	case t == reflect.TypeFor[corev1.ResourceList]():
		return map[string]any{pick("cpu", "memory", "gpu", "example.com/gpu", "hugepages-2Mi", "ephemeral-storage", "storage", "pods", "requests.cpu", "a b", "kubernetes.io/a").(string): quantity()}
	case t.Kind() == reflect.Map:
		return map[string]any{pick("a", "a b", "example.com/a", "", "A", "-").(string): pick("a", "a b", "", strings.Repeat("a", 64))}
	case t.Kind() == reflect.Slice:
		list, _ := has.([]any)
		if len(list) > 0 && r.IntN(3) > 0 {
			return append(slices.Clone(list), list[r.IntN(len(list))])
		}
		return pick([]any{}, []any{map[string]any{}}, []any{"a", "a"})
	}
	return map[string]any{}
}

// at returns the value at a path of an object, using the first element of each list that has the field.
func at(in any, names []string) any {
	if len(names) == 0 {
		return in
	}
	if object, ok := in.(map[string]any); ok {
		return at(object[names[0]], names[1:])
	}
	list, _ := in.([]any)
	for _, element := range list {
		if found := at(element, names[1:]); found != nil {
			return found
		}
	}
	return nil
}

// ofCluster matches refusals that depend on other objects, so that only the cluster can know them.
var ofCluster = []string{"error looking up service account", "no PriorityClass with name", "RuntimeClass \"", "priority admission controller computed", "pod rejected: RuntimeClass", "serviceaccount \""}

// Each pod has one mistake, in one field of a PodSpec. vet refuses the pods that an API server refuses, with the same fields
// and messages.
func TestVetPassesThePodsThatTheAPIServerTakes(t *testing.T) {
	t.Parallel()
	n := 1000
	if asked := os.Getenv("CORRAL_MUTATIONS"); asked != "" {
		n, _ = strconv.Atoi(asked)
		n = max(n, 5000) // as in make nightly
	}
	const namespace = "vetted-pods"
	must(t, shared.Cluster.CreateNamespace(t.Context(), namespace))
	asServer(t)
	fields := fieldsOf(reflect.TypeFor[corev1.PodSpec](), nil)[1:]
	var refused, passed, unknown, later int
	var counting sync.Mutex
	work := make(chan int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for seed := range work {
				pod, what := mutatedPod(seed, namespace, fields)
				text, err := json.Marshal(pod)
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
					continue
				}
				here, there := vetsPod(text), served(t, pod)
				counting.Lock()
				switch {
				case slices.ContainsFunc(ofCluster, func(words string) bool { return strings.Contains(strings.Join(there, ""), words) }):
					unknown++
				case slices.Equal(there, newer):
					later++
				case !slices.Equal(here, there) && !strings.Contains(strings.Join(there, ""), "Pod Overhead set without corresponding RuntimeClass"):
					t.Errorf("seed %d: %s\nvet says\n\t%s\nthe API server says\n\t%s", seed, what, strings.Join(here, "\n\t"), strings.Join(there, "\n\t"))
				case len(here) > 0:
					refused++
				default:
					passed++
				}
				counting.Unlock()
			}
		})
	}
	for seed := range n {
		work <- seed
	}
	close(work)
	workers.Wait()
	t.Logf("%d fields, %d pods: %d refused, %d accepted, %d left to the cluster, %d with a field of a newer release", len(fields), n, refused, passed, unknown, later)
	if refused < n/4 || passed < n/8 || unknown+later > n/10 {
		t.Error("few pods were compared")
	}
}

// mutatedPod returns a pod with a change of one field, and a description of the change. The first pods have no change.
func mutatedPod(seed int, namespace string, fields []fieldPath) (pod map[string]any, what string) {
	r := rand.New(rand.NewPCG(uint64(seed), 49)) //nolint:gosec // a test
	spec := map[string]any{}
	base := seed
	if seed >= len(podBases) {
		base = max(0, r.IntN(len(podBases)+3)-3)
	}
	if err := yaml.Unmarshal([]byte(podBases[base]), &spec); err != nil {
		panic(err)
	}
	what = "nothing"
	if seed >= len(podBases) {
		f := fields[seed%len(fields)]
		value := mistakes(r, f.kind, at(spec, f.names))
		what = fmt.Sprintf("%s of base %d is %#v", strings.Join(f.names, "."), base, value)
		put(r, spec, f.names, value)
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": map[string]any{"name": "linux-specimen", "namespace": namespace, "labels": map[string]any{"version": "1"}},
	}, what
}

// asServer makes vet validate like the release of the server.
func asServer(t *testing.T) {
	t.Helper()
	server, err := discovery.NewDiscoveryClientForConfigOrDie(shared.Cluster.Config).ServerVersion()
	must(t, err)
	gates := utilfeature.DefaultMutableFeatureGate
	before := gates.EmulationVersion()
	must(t, gates.SetEmulationVersion(version.MustParseGeneric(server.Major+"."+strings.TrimSuffix(server.Minor, "+"))))
	t.Cleanup(func() { must(t, gates.SetEmulationVersion(before)) })
}

// vetsPod returns vet's messages about a pod.
func vetsPod(text []byte) (says []string) {
	pod := &corev1.Pod{}
	strict, err := kjson.UnmarshalStrict(text, pod)
	if err := errors.Join(append(strict, err)...); err != nil {
		return []string{"undecodable"}
	}
	for _, e := range admission.CheckPod(pod) {
		says = append(says, e.Error())
	}
	slices.Sort(says)
	return slices.Compact(says)
}

// newer matches messages about fields that the API server's release does not have yet. The tests use only existing fields.
var newer = []string{"unknown to this release"}

// served returns the API server's messages.
func served(t *testing.T, pod map[string]any) (says []string) {
	err := shared.Client.Create(t.Context(), &unstructured.Unstructured{Object: pod}, &client.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "unknown field"):
		return newer
	case apierrors.IsBadRequest(err):
		return []string{"undecodable"}
	case !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0:
		return []string{err.Error()}
	}
	for _, cause := range status.Status().Details.Causes {
		says = append(says, cause.Field+": "+cause.Message)
	}
	slices.Sort(says)
	return slices.Compact(says)
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

// naive are typical first versions of rules: they check only containers, and only the usual names and values of fields.
const naive = `package corral.template

deny contains "privileged" if input.pod.spec.containers[_].securityContext.privileged
deny contains "root" if input.pod.spec.containers[_].securityContext.runAsUser == 0
deny contains "may be root" if not input.pod.spec.securityContext.runAsNonRoot
deny contains "capability" if input.pod.spec.containers[_].securityContext.capabilities.add[_]
deny contains "seccomp" if input.pod.spec.containers[_].securityContext.seccompProfile.type == "Unconfined"
deny contains "procMount" if input.pod.spec.containers[_].securityContext.procMount == "Unmasked"
deny contains "escalation" if input.pod.spec.containers[_].securityContext.allowPrivilegeEscalation
deny contains "hostPort" if input.pod.spec.containers[_].ports[_].hostPort
deny contains "host" if input.pod.spec[["hostNetwork", "hostPID", "hostIPC"][_]]
deny contains "socket" if input.pod.spec.volumes[_].hostPath.path in {"/", "/var/run", "/var/run/docker.sock", "/run/docker.sock", "/etc"}
deny contains "secret" if input.pod.spec.volumes[_].secret
deny contains "secret" if input.pod.spec.containers[_].envFrom[_].secretRef
deny contains "secret" if {
	name := input.pod.spec.containers[_].env[_].valueFrom.secretKeyRef.name
	not endswith(name, "-jit")
}
deny contains "account" if input.pod.spec.serviceAccountName != "default"
deny contains "token" if input.pod.spec.automountServiceAccountToken
deny contains "memory" if not input.pod.spec.containers[0].resources.limits.memory
deny contains "memory" if input.pod.spec.containers[_].resources.limits[["nvidia.com/gpu", "amd.com/gpu"][_]]
deny contains "node" if input.pod.spec.nodeSelector["node-role.kubernetes.io/control-plane"]
deny contains "node" if {
	term := input.pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[_]
	term.matchExpressions[_].key == "node-role.kubernetes.io/control-plane"
}
deny contains "toleration" if input.pod.spec.tolerations[_].key == "node-role.kubernetes.io/control-plane"
deny contains "priority" if startswith(input.pod.spec.priorityClassName, "system-")
deny contains "class" if input.pod.spec.volumes[_].ephemeral.volumeClaimTemplate.spec.storageClassName == "fast"
deny contains "device" if input.pod.spec.containers[_].volumeDevices
deny contains "lifecycle" if input.pod.spec.containers[_].lifecycle
deny contains "memory" if {
	volume := input.pod.spec.volumes[_]
	volume.emptyDir.medium == "Memory"
	not volume.emptyDir.sizeLimit
}
deny contains "inject" if input.pod.metadata.labels["sidecar.istio.io/inject"]
`

// trick is a pod that differs from a good pod: in its metadata, its spec, its runner container, an init container, or one volume.
type trick struct {
	name                                      string
	metadata, spec, container, before, volume string
	// codes are the rules of Tenant that deny it, each once; reason is why none does.
	codes, reason string
	// over is the network configuration that the pod gets from its connection.
	over podspec.Network
	// cache is mounted by the pod.
	cache *v1alpha1.CacheSpec
}

// claim is an ephemeral volume with a claim template.
func claim(spec string) string {
	return `"ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},` + spec + `}}}`
}

func nodeAffinity(rule string) string { return `"affinity":{"nodeAffinity":{` + rule + `}}` }

func required(term string) string {
	return nodeAffinity(`"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{` + term + `}]}`)
}

func projected(source string) string { return `"projected":{"sources":[{` + source + `}]}` }

var tricks = []trick{
	// Secrets
	{name: "a variable of an init container", before: `"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"deploy-key","key":"k"}}}]`, codes: "SEC-001"},
	{name: "all variables of a sidecar, with a prefix", before: `"restartPolicy":"Always","envFrom":[{"prefix":"A_","secretRef":{"name":"deploy-key"}}]`, codes: "SEC-001"},
	{name: "a projected Secret", volume: projected(`"secret":{"name":"deploy-key"}`), codes: "SEC-001"},
	{name: "a Secret among other projections", volume: `"projected":{"sources":[{"downwardAPI":{}},{"configMap":{"name":"a"}},{"secret":{"name":"deploy-key","optional":true}}]}`, codes: "SEC-001"},
	{name: "a pull secret", spec: `"imagePullSecrets":[{"name":"deploy-key"}]`, codes: "SEC-001"},
	{name: "a Secret of Azure Files", volume: `"azureFile":{"secretName":"deploy-key","shareName":"a"}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "a Secret of CephFS", volume: `"cephfs":{"monitors":["a"],"secretRef":{"name":"deploy-key"}}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "a Secret of RBD", volume: `"rbd":{"monitors":["a"],"image":"a","secretRef":{"name":"deploy-key"}}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "a Secret of iSCSI", volume: `"iscsi":{"targetPortal":"a","iqn":"a","lun":0,"secretRef":{"name":"deploy-key"}}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "a Secret of ScaleIO", volume: `"scaleIO":{"gateway":"a","system":"a","secretRef":{"name":"deploy-key"}}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "a Secret of StorageOS", volume: `"storageos":{"secretRef":{"name":"deploy-key"}}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "a Secret of Cinder", volume: `"cinder":{"volumeID":"a","secretRef":{"name":"deploy-key"}}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "options of a FlexVolume", volume: `"flexVolume":{"driver":"a/b","options":{"kubernetes.io/secretName":"deploy-key"}}`, codes: "PSS-101 SEC-001 VOL-001"},
	{name: "a Secret that a CSI driver publishes with", volume: `"csi":{"driver":"a.b","nodePublishSecretRef":{"name":"deploy-key"}}`, codes: "SEC-001 VOL-001"},
	{name: "a Secret of another namespace in a driver's attributes", volume: `"csi":{"driver":"file.csi.azure.com","volumeAttributes":{"SecretName":"a","secretnamespace":"kube-system"}}`, codes: "SEC-001 VOL-001"},
	{name: "a class of a store of Secrets", volume: `"csi":{"driver":"secrets-store.csi.k8s.io","volumeAttributes":{"secretProviderClass":"vault"}}`, codes: "SEC-001 VOL-001"},
	// Service accounts
	{name: "an account by its former field", spec: `"serviceAccount":"deployer"`, codes: "SA-001"},
	{name: "a token that is projected, not mounted", spec: `"automountServiceAccountToken":false`, volume: projected(`"serviceAccountToken":{"path":"token"}`), codes: "SA-002"},
	{name: "a token for a cloud", volume: projected(`"serviceAccountToken":{"audience":"sts.amazonaws.com","path":"token"}`), codes: "SA-001"},
	{name: "a certificate for the pod", volume: projected(`"podCertificate":{"signerName":"acme.example/deploy","keyType":"ED25519","credentialBundlePath":"a"}`), codes: "SA-001"},
	{name: "a group account of Windows", spec: `"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"},"windowsOptions":{"gmsaCredentialSpecName":"admin"}}`, codes: "FIELD-001"},
	// Scheduling
	{name: "past the scheduler", spec: `"nodeName":"control-plane-1"`, codes: "SCHED-001"},
	{name: "a toleration without a key", spec: `"tolerations":[{"operator":"Exists"}]`, codes: "SCHED-002"},
	{name: "the former taint of control planes", spec: `"tolerations":[{"key":"node-role.kubernetes.io/master","operator":"Exists","effect":"NoSchedule"}]`, codes: "SCHED-002"},
	{name: "a toleration by a bound", spec: `"tolerations":[{"key":"tier","operator":"Gt","value":"0"}]`, codes: "SCHED-002"},
	{name: "the taint of another team", spec: `"tolerations":[{"key":"team","value":"payments"}]`, codes: "SCHED-002"},
	{name: "a node by its name", spec: required(`"matchFields":[{"key":"metadata.name","operator":"In","values":["control-plane-1"]}]`), codes: "SCHED-001"},
	{name: "every node that is no worker", spec: required(`"matchExpressions":[{"key":"node-role.kubernetes.io/worker","operator":"NotIn","values":[""]}]`), codes: "SCHED-001"},
	{name: "a preference for control planes", spec: nodeAffinity(`"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"preference":{"matchExpressions":[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]}}]`), codes: "SCHED-001"},
	{name: "a node by its label", spec: `"nodeSelector":{"kubernetes.io/hostname":"control-plane-1"}`, codes: "SCHED-001"},
	{name: "nodes of another team", spec: `"nodeSelector":{"eks.amazonaws.com/nodegroup":"payments"}`, codes: "SCHED-001"},
	{name: "keeping all others away", spec: `"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"topology.kubernetes.io/zone","namespaceSelector":{}}]}}`, codes: "SCHED-001"},
	{name: "beside a pod of another team", spec: `"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","namespaces":["payments"]}}]}}`, codes: "SCHED-001"},
	{name: "a scheduler of one's own", spec: `"schedulerName":"mine"`, codes: "SCHED-001"},
	{name: "a runtime that isolates less", spec: `"runtimeClassName":"runc-legacy"`, codes: "SCHED-001"},
	{name: "a priority that evicts others", spec: `"priorityClassName":"production"`, codes: "SCHED-001"},
	{name: "a gate that nobody opens", spec: `"schedulingGates":[{"name":"acme.example/never"}]`, codes: "SCHED-001"},
	{name: "who delays an eviction", spec: `"evictionResponders":[{"name":"acme.example/never","priority":100000}]`, codes: "SCHED-001"},
	// Volumes
	{name: "a volume that another left", volume: claim(`"volumeName":"pv-payments"`), codes: "VOL-001"},
	{name: "a copy of another's claim", volume: claim(`"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"db","namespace":"payments"}`), codes: "VOL-001"},
	{name: "no storage class: a volume made by hand", volume: claim(`"storageClassName":""`), codes: "VOL-001"},
	{name: "a storage class by its former annotation", volume: `"ephemeral":{"volumeClaimTemplate":{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"fast"}},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}`, codes: "META-001 VOL-001"},
	{name: "a class of volume attributes", volume: claim(`"volumeAttributesClassName":"fast"`), codes: "VOL-001"},
	{name: "a raw device of an init container", volume: claim(`"volumeMode":"Block"`), before: `"volumeDevices":[{"name":"trick","devicePath":"/dev/xvda"}]`, codes: "VOL-001"},
	{name: "a claim of another pool", volume: `"persistentVolumeClaim":{"claimName":"release-cache"}`, codes: "VOL-001"},
	{name: "a socket with two slashes", volume: `"hostPath":{"path":"//var/run/docker.sock"}`, codes: "PSS-005"},
	{name: "a socket with a dot", volume: `"hostPath":{"path":"/var/run/./docker.sock"}`, codes: "PSS-005"},
	{name: "a socket through a process", volume: `"hostPath":{"path":"/proc/1/root/run/containerd"}`, codes: "PSS-005"},
	{name: "a disk of the cloud", volume: `"awsElasticBlockStore":{"volumeID":"vol-1"}`, codes: "PSS-101 VOL-001"},
	{name: "code from a Git repository, fetched by the kubelet", volume: `"gitRepo":{"repository":"https://evil.example/x"}`, codes: "PSS-101 VOL-001"},
	{name: "memory of the size 0, which is no size", volume: `"emptyDir":{"medium":"Memory","sizeLimit":"0"}`, codes: "VOL-002"},
	{name: "memory of more than the node", volume: `"emptyDir":{"medium":"Memory","sizeLimit":"10Ti"}`, codes: "VOL-002"},
	{name: "huge pages", volume: `"emptyDir":{"medium":"HugePages-2Mi"}`, before: `"resources":{"limits":{"memory":"1Gi","hugepages-2Mi":"1Gi"},"requests":{"cpu":"1"}}`, codes: "EXT-001 VOL-002"},
	// Devices
	{name: "a part of a GPU", container: `"resources":{"limits":{"cpu":"1","memory":"4Gi","nvidia.com/mig-1g.5gb":"1"}}`, codes: "EXT-001"},
	{name: "a GPU of an init container", before: `"resources":{"limits":{"cpu":"1","memory":"1Gi","nvidia.com/gpu":"1"}}`, codes: "EXT-001"},
	{name: "a device class as a resource", container: `"resources":{"limits":{"cpu":"1","memory":"4Gi","deviceclass.resource.kubernetes.io/gpu":"8"}}`, codes: "EXT-001"},
	{name: "a device by a claim", spec: `"resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"gpu"}]`, codes: "EXT-001"},
	{name: "an init container without a limit", before: `"resources":{"requests":{"cpu":"1","memory":"1Gi"}}`, codes: "RES-002"},
	// Metadata
	{name: "a label that gives a cloud's identity", metadata: `"labels":{"azure.workload.identity/use":"true"}`, codes: "META-001"},
	{name: "a label in other letters", metadata: `"labels":{"Sidecar.istio.io/inject":"false"}`, codes: "META-001"},
	{name: "a role of the cloud by annotation", metadata: `"annotations":{"iam.amazonaws.com/role":"admin"}`, codes: "META-001"},
	{name: "seccomp switched off by its former annotation", metadata: `"annotations":{"container.seccomp.security.alpha.kubernetes.io/runner":"unconfined"}`, codes: "META-001"},
	{name: "AppArmor switched off by its former annotation", metadata: `"annotations":{"container.apparmor.security.beta.kubernetes.io/runner":"unconfined"}`, codes: "META-001 PSS-009"},
	// Fields
	{name: "another address for GitHub", spec: `"hostAliases":[{"ip":"10.0.0.1","hostnames":["api.github.com"]}]`, codes: "FIELD-001"},
	{name: "name servers of one's own", spec: `"dnsPolicy":"None","dnsConfig":{"nameservers":["8.8.8.8"]}`, codes: "FIELD-001"},
	{name: "the node's name servers", spec: `"dnsPolicy":"Default"`, codes: "FIELD-001"},
	{name: "the name of another host", spec: `"hostnameOverride":"registry.acme.example"`, codes: "FIELD-001"},
	{name: "processes of all containers", spec: `"shareProcessNamespace":true`, codes: "FIELD-001"},
	{name: "a hook of a sidecar", before: `"restartPolicy":"Always","lifecycle":{"postStart":{"exec":{"command":["sh"]}}}`, codes: "FIELD-001"},
	{name: "a probe that runs a command", container: `"livenessProbe":{"exec":{"command":["sh","-c","curl evil.example"]}}`, codes: "FIELD-001"},
	{name: "a container that starts again by a rule", before: `"restartPolicy":"Never","restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[0]}}]`, codes: "FIELD-001"},
	{name: "a group of the node", spec: `"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"},"supplementalGroups":[999]}`, codes: "FIELD-001"},
	{name: "the SELinux categories of another's container", container: `"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"seLinuxOptions":{"level":"s0:c1,c2"}}`, codes: "FIELD-001"},
	{name: "beside pods on a node with a label", spec: `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"acme.example/gpu"}]}}`, codes: "SCHED-001"},
	{name: "spread over nodes with a label", spec: `"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"acme.example/gpu","whenUnsatisfiable":"DoNotSchedule"}]`, codes: "SCHED-001"},
	{name: "away from its like", spec: `"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"acme.example/rack"}}]}}`, codes: "SCHED-001"},
	{name: "spread over zones and nodes", spec: `"topologySpreadConstraints":[{"topologyKey":"kubernetes.io/hostname"},{"topologyKey":"topology.kubernetes.io/zone"}]`, reason: "each node has these labels"},
	{name: "an image volume that others pulled", volume: `"image":{"reference":"a","pullPolicy":"Never"}`, codes: "FIELD-001"},
	{name: "an image that others pulled", container: `"imagePullPolicy":"Never"`, codes: "FIELD-001"},
	{name: "an ephemeral container", spec: `"ephemeralContainers":[{"name":"debug","image":"a","targetContainerName":"runner"}]`, codes: "FIELD-001"},
	// Pod security
	{name: "a privileged init container", before: `"securityContext":{"privileged":true}`, codes: "PSS-003 PSS-102 PSS-106"},
	{name: "root in an init container of a pod that isn't", before: `"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"runAsNonRoot":false,"runAsUser":0}`, codes: "PSS-103 PSS-104"},
	{name: "seccomp switched off for the whole pod", spec: `"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"Unconfined"}}`, codes: "PSS-013"},
	{name: "a capability of an init container", before: `"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"],"add":["SYS_PTRACE"]}}`, codes: "PSS-004"},
	{name: "a host port of a sidecar", before: `"restartPolicy":"Always","ports":[{"containerPort":22,"hostPort":22}]`, codes: "PSS-006"},
	{name: "/proc as it is, in an init container", before: `"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"procMount":"Unmasked"}`, codes: "PSS-012"},
	{name: "a host process by the pod's context", spec: `"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"},"windowsOptions":{"hostProcess":true}}`, codes: "PSS-001"},
	{name: "a probe that has the kubelet call the cloud's metadata", container: `"readinessProbe":{"httpGet":{"host":"169.254.169.254","port":80}}`, codes: "PSS-007"},

	{name: "an image from any registry", before: `"image":"evil.example/x"`, reason: "no list of registries fits every cluster; add the family images"},
	{name: "an image from the node's cache", container: `"imagePullPolicy":"IfNotPresent"`, reason: "use the admission plugin AlwaysPullImages, or a kubelet that verifies credentials again"},
	{name: "a ConfigMap", container: `"envFrom":[{"configMapRef":{"name":"settings"}}]`, reason: "a ConfigMap holds no credentials, and belongs to the namespace of the pod"},
	{name: "a variable from a file", container: `"env":[{"name":"A","valueFrom":{"fileKeyRef":{"volumeName":"trick","path":"a","key":"A"}}}]`, volume: `"emptyDir":{}`, reason: "the file is in a volume of the pod, and the rules check volumes"},
	{name: "the node's address", container: `"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"status.hostIP"}}}]`, reason: "the address is not secret; block access to the node with a NetworkPolicy"},
	{name: "a claim of 100 Ti", volume: `"ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"100Ti"}}}}}`, reason: "use a ResourceQuota for requests.storage"},
	{name: "a long grace period", spec: `"terminationGracePeriodSeconds":86400`, reason: "a job may take that long; a drain of a node has its own time limit"},
	{name: "a seccomp profile of the node", spec: `"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"Localhost","localhostProfile":"lax.json"}}`, reason: "the Pod Security Standards allow it, because creating a profile needs write access to the node"},
	{name: "the group 0", spec: `"securityContext":{"runAsNonRoot":true,"runAsGroup":0,"seccompProfile":{"type":"RuntimeDefault"}}`, reason: "the Pod Security Standards allow it, because the group opens only files of the image and of checked volumes"},
	{name: "a disk full of files", volume: `"emptyDir":{}`, reason: "add ephemeral-storage to resources.requireLimits"},
	{name: "one zone alone", spec: `"nodeSelector":{"topology.kubernetes.io/zone":"a"}`, reason: "a zone belongs to no tenant; reserve nodes of other tenants with taints"},
}

// pod returns the runner pod that Corral would create from the template.
func (c *trick) pod(t *testing.T) json.RawMessage {
	t.Helper()
	good := `"resources":{"limits":{"memory":"4Gi"},"requests":{"cpu":"1"}},` +
		`"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}},"volumeMounts":[{"name":"work","mountPath":"/work"}]`
	with := func(base, more string) map[string]any {
		object := map[string]any{}
		for _, text := range []string{base, more} {
			part := map[string]any{}
			if err := json.Unmarshal([]byte("{"+text+"}"), &part); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			maps.Copy(object, part)
		}
		return object
	}
	spec := with(`"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}`, c.spec)
	spec["containers"] = []any{with(`"name":"runner","image":"ghcr.io/acme/runner:1",`+good, c.container)}
	if c.before != "" {
		spec["initContainers"] = []any{with(`"name":"before","image":"ghcr.io/acme/before:1",`+good, c.before)}
	}
	volumes := []any{with(`"name":"work","emptyDir":{}`, "")}
	if c.volume != "" {
		volumes = append(volumes, with(`"name":"trick"`, c.volume))
	}
	spec["volumes"] = volumes
	template, err := json.Marshal(map[string]any{"metadata": with("", c.metadata), "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux"}}
	pool.Spec.Template.Raw, pool.Spec.Cache = template, c.cache
	pod, err := podspec.SpecimenOver(pool, c.over)
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// bind loads a policy and binds it to a pool.
func bind(t *testing.T, source policy.Source) *policy.Bound {
	t.Helper()
	source.Kind, source.Name = policy.KindClusterRunnerPolicy, "guard"
	loaded, diagnostics := policy.Load(source)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	return policy.NewSet(loaded).For(somePool)
}

var somePool = policy.Pool{Namespace: "ci", Name: "linux", Labels: map[string]string{}}

// denials returns the denials for a pod.
func denials(t *testing.T, bound *policy.Bound, pod json.RawMessage) []v1alpha1.PolicyFinding {
	t.Helper()
	answer := bound.Template(t.Context(), policy.TemplateInput{Pool: somePool, Pod: pod})
	if len(answer.Failures) > 0 {
		t.Fatal(answer.Failures)
	}
	return answer.Denials
}

func codesOf(found []v1alpha1.PolicyFinding) string {
	var codes []string
	for _, f := range found {
		codes = append(codes, strings.TrimPrefix(f.Code, "CORRAL-"))
	}
	slices.Sort(codes)
	return strings.Join(slices.Compact(codes), " ")
}

func naiveRules() policy.Source {
	return policy.Source{Modules: map[string]string{"naive.rego": naive}}
}

func tenant() policy.Source {
	return policy.Source{Library: &v1alpha1.PolicyLibrary{Preset: v1alpha1.PresetTenant}}
}

const leastTricks = 60

func TestTenantCatchesWhatNaiveRulesMiss(t *testing.T) {
	page, err := os.ReadFile("../docs/policies/library.md")
	if err != nil {
		t.Fatal(err)
	}
	plain, whole, caught := bind(t, naiveRules()), bind(t, tenant()), 0
	for _, c := range tricks {
		pod := c.pod(t)
		if found := denials(t, plain, pod); len(found) > 0 {
			t.Errorf("%s: a naive rule denies it: %+v", c.name, found)
		}
		found := denials(t, whole, pod)
		if got := codesOf(found); got != c.codes {
			t.Errorf("%s: denied for %q, want %q", c.name, got, c.codes)
		}
		for _, f := range found {
			if f.Message == "" || f.Path == "" || f.Severity == "" || f.Remediation == "" {
				t.Errorf("%s: a denial is incomplete: %+v", c.name, f)
			}
		}
		if c.codes != "" {
			caught++
		} else if row := fmt.Sprintf("| %s | %s |", c.name, c.reason); !strings.Contains(string(page), row) {
			t.Errorf("docs/policies/library.md does not contain the row: %s", row)
		}
	}
	if caught < leastTricks {
		t.Errorf("only %d pods are denied", caught)
	}
}

// The naive rules find violations in their usual form, so that missing the tricks is not trivial.
func TestNaiveRulesFindTheUsual(t *testing.T) {
	plain, whole := bind(t, naiveRules()), bind(t, tenant())
	for _, c := range []trick{
		{name: "privileged", container: `"securityContext":{"privileged":true}`},
		{name: "secret", container: `"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"deploy-key","key":"k"}}}]`},
		{name: "secret", volume: `"secret":{"secretName":"deploy-key"}`},
		{name: "account", spec: `"serviceAccountName":"deployer"`},
		{name: "token", spec: `"automountServiceAccountToken":true`},
		{name: "node", spec: `"nodeSelector":{"node-role.kubernetes.io/control-plane":"true"}`},
		{name: "toleration", spec: `"tolerations":[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]`},
		{name: "socket", volume: `"hostPath":{"path":"/var/run/docker.sock"}`},
		{name: "memory", volume: `"emptyDir":{"medium":"Memory"}`},
		{name: "class", volume: claim(`"storageClassName":"fast"`)},
	} {
		pod := c.pod(t)
		found := denials(t, plain, pod)
		if len(found) != 1 || found[0].Message != c.name || len(denials(t, whole, pod)) == 0 {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
}

func TestTenantAllowsAGoodPod(t *testing.T) {
	good := trick{spec: `"dnsPolicy":"ClusterFirst","shareProcessNamespace":false,"nodeSelector":{"kubernetes.io/arch":"arm64"}`, before: `"restartPolicy":"Always"`, over: podspec.Network{Proxies: true, CA: true},
		cache: &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache"}}
	if found := denials(t, bind(t, tenant()), good.pod(t)); len(found) > 0 {
		t.Error(found)
	}
}

// A family that is set in addition to the preset has its own parameters.
func TestTenantWithExceptions(t *testing.T) {
	source := tenant()
	source.Library.PodSecurity = &v1alpha1.PodSecurityRules{Level: "baseline"}
	source.Library.Secrets = &v1alpha1.SecretRules{Allowed: v1alpha1.AllowedNames{"npm-*"}}
	allowed := trick{spec: `"imagePullSecrets":[{"name":"npm-read"}]`, container: `"securityContext":{"runAsUser":0}`}
	if found := denials(t, bind(t, source), allowed.pod(t)); len(found) > 0 {
		t.Error(found)
	}
	denied := trick{spec: `"imagePullSecrets":[{"name":"deploy-key"}],"nodeName":"a","hostPID":true`}
	if got := codesOf(denials(t, bind(t, source), denied.pod(t))); got != "PSS-002 SCHED-001 SEC-001" {
		t.Error(got)
	}
}

// Checks each field of the Kubernetes pod API that refers to a Secret.
func TestNoFieldNamesASecretUnseen(t *testing.T) {
	bound, found := bind(t, policy.Source{Library: &v1alpha1.PolicyLibrary{Secrets: &v1alpha1.SecretRules{}}}), 0
	var walk func(at reflect.Type, path []string, names bool, above []reflect.Type)
	walk = func(at reflect.Type, path []string, names bool, above []reflect.Type) {
		switch {
		case at.Kind() == reflect.Pointer:
			walk(at.Elem(), path, names, above)
		case at.Kind() == reflect.Slice:
			walk(at.Elem(), append(slices.Clone(path), "[]"), names, above)
		case at.Kind() == reflect.String && names && (path[len(path)-1] == "name" || path[len(path)-1] == "secretName"):
			found++
			var value any = "deploy-key"
			for _, step := range slices.Backward(path) {
				if step == "[]" {
					value = []any{value}
				} else {
					value = map[string]any{step: value}
				}
			}
			pod, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "linux-1"}, "spec": value})
			if err != nil {
				t.Fatal(err)
			}
			if got := codesOf(denials(t, bound, pod)); got != "SEC-001" {
				t.Errorf("%s was denied for %q", strings.Join(path, "."), got)
			}
		case at.Kind() == reflect.Struct && !slices.Contains(above, at):
			for field := range at.Fields() {
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				inner := path
				if name != "" {
					inner = append(slices.Clone(path), name)
				}
				walk(field.Type, inner, names || strings.Contains(strings.ToLower(name), "secret"), append(slices.Clone(above), at))
			}
		}
	}
	walk(reflect.TypeFor[corev1.PodSpec](), nil, false, nil)
	if least := 18; found < least {
		t.Errorf("found %d fields that name Secrets", found)
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Names of the objects that spec.containerMode adds to a template. They are the same as in ARC, so that templates
// written for ARC work unchanged.
const (
	dockerContainer    = "dind"
	externalsContainer = "init-dind-externals"
	workVolume         = "work"
	socketVolume       = "dind-sock"
	externalsVolume    = "dind-externals"
	hookTemplateVolume = "hook-template"
)

// Folders in the runner's image, where the runner and its hooks expect them.
const (
	runnerFolder    = "/home/runner"
	externalsFolder = "/home/runner/externals"
	socketFolder    = "/var/run"
	hooksFolder     = "/etc/corral/hook-template"
	tokenFolder     = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// Variables of the runner's container hooks.
const (
	hooksEnv        = "ACTIONS_RUNNER_CONTAINER_HOOKS"
	hookTemplateEnv = "ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE"
	claimEnv        = "ACTIONS_RUNNER_CLAIM_NAME"
	hostEnv         = "DOCKER_HOST" // read by the Docker client
)

// hooks are the paths of the container hooks in the runner's image.
var hooks = map[v1alpha1.ContainerModeType]string{
	v1alpha1.KubernetesMode:         "/home/runner/k8s/index.js",
	v1alpha1.KubernetesNoVolumeMode: "/home/runner/k8s-novolume/index.js",
}

// runnerGroup is the group ID of the user in the runner's image. This user writes to the work volume.
const runnerGroup = 1001

// object is a part of a template as JSON. Additions are written in this form because the encoding of Kubernetes' Go types
// can change with their library. That would change the digests of all templates.
type object = map[string]any

// expansion is a template with its additions.
type expansion struct {
	template *corev1.PodTemplateSpec // as declared
	index    int                     // index of the runner's container
	content  object
	work     string // path of the work folder; "" if it is a Windows path
}

func newExpansion(pool *v1alpha1.RunnerPool) (*expansion, error) {
	declared := pool.Spec.Template.Raw
	t, err := decode(declared)
	if err != nil {
		return nil, err
	}
	x := &expansion{template: t}
	if x.index, err = runnerIndex(&t.Spec); err != nil {
		return nil, err
	}
	folder, err := x.workFolder(&pool.Spec)
	if err != nil {
		return nil, err
	}
	x.work = workPath(folder)
	d := json.NewDecoder(bytes.NewReader(declared))
	d.UseNumber()
	if err := d.Decode(&x.content); err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	return x, nil
}

func (x *expansion) declaredRunner() *corev1.Container { return &x.template.Spec.Containers[x.index] }

func (x *expansion) spec() object { return x.content["spec"].(object) }

// runner returns the runner's container. It exists, because it was found in the typed template.
func (x *expansion) runner() object { return x.spec()["containers"].([]any)[x.index].(object) }

// at returns the path of a field of the runner's container.
func (x *expansion) at(format string, args ...any) string {
	return fmt.Sprintf("spec.template.spec.containers[%d].", x.index) + fmt.Sprintf(format, args...)
}

// add appends the items whose name the list does not contain yet.
func add(o object, field string, items ...object) {
	list, _ := o[field].([]any)
	for _, item := range items {
		isSame := func(have any) bool {
			o, _ := have.(object) // an element may be null
			return o["name"] == item["name"]
		}
		if !slices.ContainsFunc(list, isSame) {
			list = append(list, item)
		}
	}
	o[field] = list
}

// setDefault sets a field that is missing or null.
func setDefault(o object, field string, value any) {
	if o[field] == nil {
		o[field] = value
	}
}

func env(name, value string) object { return object{"name": name, "value": value} }

// addDocker adds the Docker daemon, and the volumes and variables through which the runner uses it.
func (x *expansion) addDocker(declared *v1alpha1.DockerSpec) error {
	work, err := x.checkDocker(declared)
	if err != nil {
		return err
	}
	d := &v1alpha1.DockerSpec{}
	if declared != nil {
		d = declared
	}
	init, _ := x.spec()["initContainers"].([]any)
	var first []any
	for _, c := range []object{x.externals(), dockerDaemon(d, work)} {
		if x.find(c["name"].(string)) == "" {
			first = append(first, c)
		}
	}
	x.spec()["initContainers"] = append(first, init...)
	add(x.runner(), "env", env(hostEnv, "unix://"+socketFolder+"/docker.sock"), env("RUNNER_WAIT_FOR_DOCKER_IN_SECONDS", "120"))
	add(x.runner(), "volumeMounts", mountOf(work), object{"name": socketVolume, "mountPath": socketFolder})
	for _, name := range []string{work.Name, socketVolume, externalsVolume} {
		add(x.spec(), "volumes", object{"name": name, "emptyDir": object{}})
	}
	return nil
}

// externals returns the container that copies the tools for actions out of the runner's image. The daemon mounts them
// into the containers of jobs.
func (x *expansion) externals() object {
	c := object{
		"name": externalsContainer, "command": []any{"cp"}, "args": []any{"-r", externalsFolder + "/.", "/home/runner/tmpDir/"},
		"volumeMounts": []any{object{"name": externalsVolume, "mountPath": "/home/runner/tmpDir"}},
	}
	for _, field := range []string{"image", "imagePullPolicy", "resources"} { // a quota may require resources for each container
		if value, ok := x.runner()[field]; ok {
			c[field] = value
		}
	}
	return c
}

// dockerDaemon returns the daemon's container.
func dockerDaemon(d *v1alpha1.DockerSpec, work corev1.VolumeMount) object {
	args := []any{"dockerd", "--host=unix://" + socketFolder + "/docker.sock", "--group=$(DOCKER_GROUP_GID)"}
	for _, mirror := range d.RegistryMirrors {
		args = append(args, "--registry-mirror="+mirror)
	}
	if d.MTU != nil { // for the default network, and for the networks that the runner creates for jobs
		args = append(args, fmt.Sprintf("--mtu=%d", *d.MTU), fmt.Sprintf("--default-network-opt=bridge=com.docker.network.driver.mtu=%d", *d.MTU))
	}
	c := object{
		"name": dockerContainer, "image": d.GetImage(), "args": args,
		"env":             []any{env("DOCKER_GROUP_GID", strconv.FormatInt(d.GetGroupID(), 10))},
		"securityContext": object{"privileged": true}, "restartPolicy": "Always",
		"startupProbe": object{
			"exec":          object{"command": []any{"docker", "info"}},
			"periodSeconds": 5, "failureThreshold": 24, "timeoutSeconds": 5,
		},
		"volumeMounts": []any{
			mountOf(work), object{"name": socketVolume, "mountPath": socketFolder},
			object{"name": externalsVolume, "mountPath": externalsFolder},
		},
	}
	if d.Resources != nil {
		c["resources"] = d.Resources
	}
	return c
}

func mountOf(m corev1.VolumeMount) object {
	o := object{"name": m.Name, "mountPath": m.MountPath}
	if m.SubPath != "" {
		o["subPath"] = m.SubPath
	}
	return o
}

// find returns the path of a container in the template by its name; empty if there is none.
func (x *expansion) find(name string) string {
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", x.template.Spec.InitContainers}, {"containers", x.template.Spec.Containers}} {
		if i := slices.IndexFunc(list.containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return fmt.Sprintf("spec.template.spec.%s[%d]", list.field, i)
		}
	}
	return ""
}

// checkDocker refuses settings that would not work. It returns the runner's mount of its work folder. The daemon must have
// the same mount, because the containers of jobs mount the work folder by the runner's path.
func (x *expansion) checkDocker(d *v1alpha1.DockerSpec) (work corev1.VolumeMount, err error) {
	own := x.find(dockerContainer)
	if own != "" && d != nil {
		return work, fmt.Errorf("spec.containerMode.docker: %s is a container %s of the template's own, so this would have no effect; remove one of the two", own, dockerContainer)
	}
	mounts := x.declaredRunner().VolumeMounts
	for i, m := range mounts {
		if folderOf(m) == socketFolder && m.Name != socketVolume {
			return work, fmt.Errorf("%s: %s is where the socket of the Docker daemon is; name the volume %s, or mount it elsewhere", x.at("volumeMounts[%d].mountPath", i), socketFolder, socketVolume)
		}
	}
	if i := x.socketElsewhere(); i >= 0 {
		return work, fmt.Errorf("%s: must be %s, or %s be set: otherwise the runner does not find the socket of the Docker daemon", x.at("volumeMounts[%d].mountPath", i), socketFolder, hostEnv)
	}
	work = corev1.VolumeMount{Name: workVolume, MountPath: x.work}
	if i := x.workMount(); i >= 0 {
		work = mounts[i]
		if own == "" && work.SubPathExpr != "" {
			return work, fmt.Errorf("%s: must not be set: the Docker daemon doesn't have the runner's variables; set subPath instead, or declare a container %s that mounts the volume in the same way", x.at("volumeMounts[%d].subPathExpr", i), dockerContainer)
		}
	}
	return work, x.checkOwnDaemon(own, work)
}

// socketElsewhere returns the index of a mount of the socket's volume if no such mount is at a path where the runner's
// Docker client looks for the socket. Otherwise it returns -1.
func (x *expansion) socketElsewhere() int {
	at := -1
	for i, m := range x.declaredRunner().VolumeMounts {
		if m.Name == socketVolume && strings.HasSuffix(socketFolder, folderOf(m)) { // /var/run is a link to /run
			return -1
		}
		if m.Name == socketVolume && !hasEnv(x.declaredRunner(), hostEnv) {
			at = i
		}
	}
	return at
}

// folderOf returns the path of a mount without a trailing slash.
func folderOf(m corev1.VolumeMount) string { return strings.TrimSuffix(m.MountPath, "/") }

// workMount returns the index of the runner's mount of its work folder: the mount with its path, or else the first
// mount of the work volume; -1 if there is none.
func (x *expansion) workMount() int {
	mounts := x.declaredRunner().VolumeMounts
	if i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return folderOf(m) == x.work }); i >= 0 {
		return i
	}
	return slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == workVolume })
}

// checkOwnDaemon refuses a daemon in the template that mounts the volume of the work folder, but not at the runner's path.
// The daemon may also mount the volume at other paths. Without any such mount, it can serve only jobs that run no
// containers; DaemonApart warns about it.
func (x *expansion) checkOwnDaemon(own string, work corev1.VolumeMount) error {
	for _, c := range containersOf(&x.template.Spec) {
		if c.Name != dockerContainer || isApart(c, work) {
			continue
		}
		i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return folderOf(m) == folderOf(work) })
		if i < 0 {
			return fmt.Errorf("%s.volumeMounts: must have a mount of the volume %s at %s, as the runner's container has: the containers of jobs mount the work folder by that path; add %s",
				own, work.Name, work.MountPath, mountText(work))
		}
		if m := c.VolumeMounts[i]; m.Name != work.Name || m.SubPath != work.SubPath || m.SubPathExpr != work.SubPathExpr {
			return fmt.Errorf("%s.volumeMounts[%d]: must be of the volume %s with the subPath %q and the subPathExpr %q, as in the runner's container: the containers of jobs mount it by that path",
				own, i, work.Name, work.SubPath, work.SubPathExpr)
		}
	}
	return nil
}

// isApart reports whether a daemon mounts neither the volume nor the path of the runner's work folder.
func isApart(daemon *corev1.Container, work corev1.VolumeMount) bool {
	return !slices.ContainsFunc(daemon.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == work.Name || folderOf(m) == folderOf(work) })
}

// DaemonApart returns a warning if the template declares a Docker daemon that does not mount the work folder; otherwise it
// returns "". Such a daemon builds images, but the containers of jobs would find an empty work folder.
func DaemonApart(pool *v1alpha1.RunnerPool) string {
	if mode := pool.Spec.ContainerMode; mode == nil || mode.Type != v1alpha1.DockerMode {
		return ""
	}
	x, err := newExpansion(pool)
	if err != nil {
		return ""
	}
	work, err := x.checkDocker(pool.Spec.ContainerMode.Docker)
	for _, c := range containersOf(&x.template.Spec) {
		if err == nil && c.Name == dockerContainer && isApart(c, work) {
			return fmt.Sprintf("container %s does not mount the work folder, so the containers of jobs find an empty one; if jobs have containers, add the mount %s", dockerContainer, mountText(work))
		}
	}
	return ""
}

// mountText returns a mount in YAML, for messages.
func mountText(m corev1.VolumeMount) string {
	text := fmt.Sprintf("{name: %q, mountPath: %q", m.Name, m.MountPath)
	if m.SubPath != "" {
		text += fmt.Sprintf(", subPath: %q", m.SubPath)
	}
	if m.SubPathExpr != "" {
		text += fmt.Sprintf(", subPathExpr: %q", m.SubPathExpr)
	}
	return text + "}"
}

// addHooks adds the settings of the runner's container hooks. account is the ServiceAccount that Corral creates for the
// pool; empty if the template names one.
func (x *expansion) addHooks(mode *v1alpha1.ContainerMode, account string) error {
	h := &v1alpha1.HooksSpec{}
	if mode.Kubernetes != nil {
		h = mode.Kubernetes
	}
	if err := x.checkHooks(mode.Type, h); err != nil {
		return err
	}
	add(x.runner(), "env", env(hooksEnv, hooks[mode.Type]),
		object{"name": "ACTIONS_RUNNER_POD_NAME", "valueFrom": object{"fieldRef": object{"fieldPath": "metadata.name"}}},
		env("ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER", "true"))
	if mode.Type == v1alpha1.KubernetesMode {
		x.addWork(h.WorkVolumeClaim)
	} else {
		add(x.runner(), "env", env("ACTIONS_RUNNER_IMAGE", x.declaredRunner().Image)) // the hooks copy externals from it
	}
	if t := h.HookTemplate; t != nil {
		add(x.runner(), "env", env(hookTemplateEnv, hooksFolder+"/"+t.Key))
		add(x.runner(), "volumeMounts", object{"name": hookTemplateVolume, "mountPath": hooksFolder, "readOnly": true})
		add(x.spec(), "volumes", object{"name": hookTemplateVolume, "configMap": object{
			"name": t.Name, "items": []any{object{"key": t.Key, "path": t.Key}},
		}})
	}
	if account != "" {
		x.spec()["serviceAccountName"] = account
	}
	setDefault(x.spec(), "automountServiceAccountToken", true)
	return nil
}

// addWork adds the volume that the runner shares with the pods of its job.
func (x *expansion) addWork(claim *v1alpha1.WorkVolumeClaim) {
	add(x.runner(), "volumeMounts", object{"name": workVolume, "mountPath": x.work})
	setDefault(x.spec(), "securityContext", object{})
	setDefault(x.spec()["securityContext"].(object), "fsGroup", runnerGroup)
	if claim == nil { // the template declares the volume
		own := x.volume(workVolume)
		if shared := x.template.Spec.Volumes[own].PersistentVolumeClaim; shared != nil {
			add(x.runner(), "env", env(claimEnv, shared.ClaimName)) // otherwise the hooks use the claim POD-work
		}
		return
	}
	spec := object{"accessModes": claim.GetAccessModes(), "resources": object{"requests": object{"storage": claim.Size}}}
	if claim.StorageClassName != "" {
		spec["storageClassName"] = claim.StorageClassName
	}
	add(x.spec(), "volumes", object{"name": workVolume, "ephemeral": object{"volumeClaimTemplate": object{"spec": spec}}})
}

// volume returns the index of a volume in the template by its name, or -1.
func (x *expansion) volume(name string) int {
	return slices.IndexFunc(x.template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
}

// checkHooks refuses settings with which the hooks cannot work.
func (x *expansion) checkHooks(mode v1alpha1.ContainerModeType, h *v1alpha1.HooksSpec) error {
	runner := x.declaredRunner()
	if mounts := x.template.Spec.AutomountServiceAccountToken; mounts != nil && !*mounts && !mountsToken(runner) {
		return fmt.Errorf("spec.template.spec.automountServiceAccountToken: must not be false: the runner's hooks make pods with the token")
	}
	if h.HookTemplate != nil {
		if i := x.volume(hookTemplateVolume); i >= 0 {
			return fmt.Errorf("spec.template.spec.volumes[%d].name: %s is the volume of spec.containerMode.kubernetes.hookTemplate; choose another name, or remove one of the two", i, hookTemplateVolume)
		}
		if hasEnv(runner, hookTemplateEnv) {
			return fmt.Errorf("spec.containerMode.kubernetes.hookTemplate: the template sets %s itself, so this would have no effect; remove one of the two", hookTemplateEnv)
		}
	}
	if mode == v1alpha1.KubernetesNoVolumeMode {
		return nil
	}
	if path.Dir(x.work) != runnerFolder || !strings.HasSuffix(x.work, v1alpha1.DefaultWorkFolder) {
		return fmt.Errorf("spec.workFolder: must be a name that ends in %s, such as my%s: the runner's hooks know the folder by that, and share it with the pods of jobs; or choose type KubernetesNoVolume",
			v1alpha1.DefaultWorkFolder, v1alpha1.DefaultWorkFolder)
	}
	return x.checkWork(h.WorkVolumeClaim)
}

// mountsToken reports whether a container explicitly mounts a token where clients of the API server look for it.
func mountsToken(c *corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return folderOf(m) == tokenFolder })
}

// checkWork refuses a work folder that the hooks cannot share with the pods of jobs.
func (x *expansion) checkWork(claim *v1alpha1.WorkVolumeClaim) error {
	own := x.volume(workVolume)
	switch {
	case own < 0 && claim == nil:
		return fmt.Errorf("spec.containerMode.kubernetes.workVolumeClaim: must be set, or a volume %s in the template: the pods of jobs share it; or choose type KubernetesNoVolume", workVolume)
	case own >= 0 && claim != nil:
		return fmt.Errorf("spec.template.spec.volumes[%d].name: %s is the volume of spec.containerMode.kubernetes.workVolumeClaim; remove one of the two", own, workVolume)
	case own >= 0 && x.template.Spec.Volumes[own].Ephemeral == nil && x.template.Spec.Volumes[own].PersistentVolumeClaim == nil:
		return fmt.Errorf("spec.template.spec.volumes[%d]: %s must be ephemeral or a persistentVolumeClaim: the pods of jobs share it; or choose type KubernetesNoVolume", own, workVolume)
	}
	for i, m := range x.declaredRunner().VolumeMounts {
		switch {
		case m.Name == workVolume && m.SubPath+m.SubPathExpr != "":
			return fmt.Errorf("%s: must not be set: the pods of jobs look for the work folder at the top of the volume", x.at("volumeMounts[%d].subPath", i))
		case m.Name != workVolume && folderOf(m) == x.work:
			return fmt.Errorf("%s: must not be %s: volume %s is mounted there, which the pods of jobs share", x.at("volumeMounts[%d].mountPath", i), x.work, workVolume)
		}
	}
	return nil
}

// HooksMayRead returns a warning if jobs of the pool could read the credentials of its connection; otherwise it returns "".
func HooksMayRead(pool *v1alpha1.RunnerPool) string {
	ref := pool.Spec.ConnectionRef
	if !pool.Spec.ContainerMode.UsesHooks() || ref.From(pool.Namespace).Namespace != pool.Namespace {
		return ""
	}
	return fmt.Sprintf("jobs can read each Secret of the namespace, and GitHubConnection %s is in it: keep its credentials in another, and name this one in its spec.allowedNamespaces", ref.Name)
}

// HooksAccount returns the ServiceAccount with which the container hooks of a template create pods; empty if the template
// has no such hooks, or if they have no token.
func HooksAccount(template []byte) string {
	t, runner := runnerWith(template, hooksEnv)
	if runner == nil {
		return ""
	}
	if mounts := t.Spec.AutomountServiceAccountToken; (mounts == nil || !*mounts) && !mountsToken(runner) {
		return "" // the hooks have no access
	}
	return cmp.Or(t.Spec.ServiceAccountName, t.Spec.DeprecatedServiceAccount, "default")
}

// runnerWith returns a template and its runner's container if the container has the given environment variable. Otherwise,
// or for an invalid template, it returns nil. It does not decode templates without the variable.
func runnerWith(template []byte, variable string) (*corev1.PodTemplateSpec, *corev1.Container) {
	if !bytes.Contains(template, []byte(variable)) {
		return nil, nil
	}
	t, err := decode(template)
	if err != nil {
		return nil, nil
	}
	i, err := runnerIndex(&t.Spec)
	if err != nil || !hasEnv(&t.Spec.Containers[i], variable) {
		return nil, nil
	}
	return t, &t.Spec.Containers[i]
}

// DeclaredPath returns the path at which a field of the expanded template is declared. In the expanded template, the
// containers of spec.containerMode precede the init containers of spec.template, and labels and annotations may come from
// spec.objectMetadata.
func DeclaredPath(pool *v1alpha1.RunnerPool, path string) string {
	if of, ok := strings.CutPrefix(path, "spec.template.metadata."); ok && pool.Spec.ObjectMetadata != nil {
		return declaredMetadata(pool, of)
	}
	const list = "spec.template.spec.initContainers["
	rest, ok := strings.CutPrefix(path, list)
	number, field, closed := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if mode := pool.Spec.ContainerMode; !ok || !closed || err != nil || mode == nil || mode.Type != v1alpha1.DockerMode {
		return path
	}
	x, err := newExpansion(pool)
	if err != nil {
		return path
	}
	for _, name := range []string{externalsContainer, dockerContainer} {
		if x.find(name) == "" {
			i--
		}
	}
	if i < 0 {
		return "spec.containerMode"
	}
	return list + strconv.Itoa(i) + "]" + field
}

// declaredMetadata is DeclaredPath for the path of all labels, of all annotations, or of a single key, relative to metadata.
func declaredMetadata(pool *v1alpha1.RunnerPool, path string) string {
	end := len(path)
	if i := strings.IndexAny(path, ".["); i >= 0 {
		end = i
	}
	key := strings.Trim(path[end:], `.[]"`)
	declared, added := map[string]string{}, pool.Spec.AnnotationsOfObjects()
	if t, err := decode(pool.Spec.Template.Raw); err == nil {
		declared = t.Annotations
		if path[:end] == "labels" {
			declared, added = t.Labels, pool.Spec.LabelsOfObjects()
		}
	}
	_, isOwn := declared[key]
	_, isAdded := added[key]
	if !isOwn && isAdded || key == "" && len(declared) == 0 {
		return "spec.objectMetadata." + path
	}
	return "spec.template.metadata." + path
}

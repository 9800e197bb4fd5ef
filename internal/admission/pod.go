// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An API server checks pods with code that is in no library. These are its rules (k8s.io/kubernetes, pkg/apis/core/validation) that
// templates of runners break; the others are told by a dry run in the cluster.

// checkTemplate returns what is wrong with the pod of a pool.
func checkTemplate(pool map[string]any) field.ErrorList {
	at := field.NewPath("spec", "template")
	spec, _ := pool["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	t := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(template, t, true); err != nil {
		return field.ErrorList{field.Invalid(at, nil, err.Error())}
	}
	c := &podCheck{volumes: sets.New[string](), containers: sets.New[string]()}
	c.errs = append(c.errs, metav1validation.ValidateLabels(t.Labels, at.Child("metadata", "labels"))...)
	c.errs = append(c.errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("metadata", "annotations"))...)
	c.pod(&t.Spec, at.Child("spec"))
	return c.errs
}

// podCheck goes through a pod.
type podCheck struct {
	errs                field.ErrorList
	volumes, containers sets.Set[string]
}

func (c *podCheck) pod(spec *corev1.PodSpec, at *field.Path) {
	for i := range spec.Volumes {
		c.volume(&spec.Volumes[i], at.Child("volumes").Index(i))
	}
	for i := range spec.InitContainers {
		c.container(&spec.InitContainers[i], true, at.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		c.container(&spec.Containers[i], false, at.Child("containers").Index(i))
	}
	c.name(spec.ServiceAccountName, at.Child("serviceAccountName"), validation.IsDNS1123Subdomain)
	c.name(spec.PriorityClassName, at.Child("priorityClassName"), validation.IsDNS1123Subdomain)
	c.name(spec.NodeName, at.Child("nodeName"), validation.IsDNS1123Subdomain)
	c.name(spec.Hostname, at.Child("hostname"), validation.IsDNS1123Label)
	c.name(spec.Subdomain, at.Child("subdomain"), validation.IsDNS1123Label)
	c.errs = append(c.errs, metav1validation.ValidateLabels(spec.NodeSelector, at.Child("nodeSelector"))...)
	c.atLeast(spec.ActiveDeadlineSeconds, 1, at.Child("activeDeadlineSeconds"))
	for i, toleration := range spec.Tolerations {
		c.toleration(toleration, at.Child("tolerations").Index(i))
	}
	for i, secret := range spec.ImagePullSecrets {
		c.name(secret.Name, at.Child("imagePullSecrets").Index(i).Child("name"), validation.IsDNS1123Subdomain)
	}
	if s := spec.SecurityContext; s != nil {
		c.atLeast(s.RunAsUser, 0, at.Child("securityContext", "runAsUser"))
		c.atLeast(s.RunAsGroup, 0, at.Child("securityContext", "runAsGroup"))
		c.atLeast(s.FSGroup, 0, at.Child("securityContext", "fsGroup"))
	}
	c.spread(spec.TopologySpreadConstraints, at.Child("topologySpreadConstraints"))
}

func (c *podCheck) add(err *field.Error) { c.errs = append(c.errs, err) }

// name checks a name that may be left out.
func (c *podCheck) name(name string, at *field.Path, valid func(string) []string) {
	if name == "" {
		return
	}
	for _, message := range valid(name) {
		c.add(field.Invalid(at, name, message))
	}
}

// unique checks a name that must be there, once.
func (c *podCheck) unique(name string, taken sets.Set[string], at *field.Path) {
	switch {
	case name == "":
		c.add(field.Required(at, ""))
	case taken.Has(name):
		c.add(field.Duplicate(at, name))
	}
	taken.Insert(name)
	c.name(name, at, validation.IsDNS1123Label)
}

func (c *podCheck) atLeast(n *int64, least int64, at *field.Path) {
	if n != nil && *n < least {
		c.add(field.Invalid(at, *n, "must be at least "+string(rune('0'+least))))
	}
}

func (c *podCheck) toleration(t corev1.Toleration, at *field.Path) {
	if t.Key != "" {
		for _, message := range validation.IsQualifiedName(t.Key) {
			c.add(field.Invalid(at.Child("key"), t.Key, message))
		}
	}
	switch {
	case t.Key == "" && t.Operator != corev1.TolerationOpExists:
		c.add(field.Invalid(at.Child("operator"), string(t.Operator), "must be Exists where there is no key"))
	case t.Operator == corev1.TolerationOpExists && t.Value != "":
		c.add(field.Invalid(at.Child("value"), t.Value, "must not be set where operator is Exists"))
	case t.Operator != corev1.TolerationOpExists:
		c.name(t.Value, at.Child("value"), validation.IsValidLabelValue)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		c.add(field.Invalid(at.Child("effect"), string(t.Effect), "must be NoExecute where tolerationSeconds is set"))
	}
}

func (c *podCheck) spread(constraints []corev1.TopologySpreadConstraint, at *field.Path) {
	type pair struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	taken := sets.New[pair]()
	for i, s := range constraints {
		if p := (pair{s.TopologyKey, s.WhenUnsatisfiable}); taken.Has(p) {
			c.add(field.Duplicate(at.Index(i).Child("topologyKey"), s.TopologyKey))
		} else {
			taken.Insert(p)
		}
		if s.MaxSkew < 1 {
			c.add(field.Invalid(at.Index(i).Child("maxSkew"), s.MaxSkew, "must be at least 1"))
		}
		if s.TopologyKey == "" {
			c.add(field.Required(at.Index(i).Child("topologyKey"), ""))
		}
	}
}

// volume checks a volume. Without a source it is an emptyDir.
func (c *podCheck) volume(v *corev1.Volume, at *field.Path) {
	c.unique(v.Name, c.volumes, at.Child("name"))
	if set := setFields(reflect.ValueOf(v.VolumeSource)); len(set) > 1 {
		c.add(field.Forbidden(at, "must have one source, not "+strings.Join(set, " and ")))
	}
	if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() < 0 {
		c.add(field.Invalid(at.Child("emptyDir", "sizeLimit"), v.EmptyDir.SizeLimit.String(), "must not be negative"))
	}
}

// setFields names the fields of a struct of pointers that are set.
func setFields(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

func (c *podCheck) container(container *corev1.Container, isInit bool, at *field.Path) {
	c.unique(container.Name, c.containers, at.Child("name"))
	switch image := container.Image; {
	case image == "":
		c.add(field.Required(at.Child("image"), ""))
	case strings.TrimSpace(image) != image:
		c.add(field.Invalid(at.Child("image"), image, "must not begin or end with a space"))
	}
	ports := sets.New[string]()
	for i, port := range container.Ports {
		c.port(port, ports, at.Child("ports").Index(i))
	}
	for i, env := range container.Env {
		c.env(env, at.Child("env").Index(i))
	}
	for i, from := range container.EnvFrom {
		c.envFrom(from, at.Child("envFrom").Index(i))
	}
	c.mounts(container.VolumeMounts, at.Child("volumeMounts"))
	c.resources(container.Resources, at.Child("resources"))
	c.security(container.SecurityContext, at.Child("securityContext"))
	isSidecar := container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
	if isInit && !isSidecar {
		c.endsByItself(container, at)
		return
	}
	c.probe(container.LivenessProbe, true, at.Child("livenessProbe"))
	c.probe(container.ReadinessProbe, false, at.Child("readinessProbe"))
	c.probe(container.StartupProbe, true, at.Child("startupProbe"))
	if l := container.Lifecycle; l != nil {
		c.lifecycle(l.PreStop, at.Child("lifecycle", "preStop"))
		c.lifecycle(l.PostStart, at.Child("lifecycle", "postStart"))
	}
}

// endsByItself checks an init container that others wait for.
func (c *podCheck) endsByItself(container *corev1.Container, at *field.Path) {
	for name, isSet := range map[string]bool{
		"livenessProbe": container.LivenessProbe != nil, "readinessProbe": container.ReadinessProbe != nil,
		"startupProbe": container.StartupProbe != nil, "lifecycle": container.Lifecycle != nil,
	} {
		if isSet {
			c.add(field.Forbidden(at.Child(name), "must not be set of an init container that does not restart"))
		}
	}
}

func (c *podCheck) security(s *corev1.SecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	c.atLeast(s.RunAsUser, 0, at.Child("runAsUser"))
	c.atLeast(s.RunAsGroup, 0, at.Child("runAsGroup"))
	if s.Privileged != nil && *s.Privileged && s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		c.add(field.Invalid(at.Child("allowPrivilegeEscalation"), false, "must be true where privileged is"))
	}
}

// port checks a port; taken are the names of others of the container.
func (c *podCheck) port(p corev1.ContainerPort, taken sets.Set[string], at *field.Path) {
	for _, message := range validation.IsValidPortNum(int(p.ContainerPort)) {
		c.add(field.Invalid(at.Child("containerPort"), p.ContainerPort, message))
	}
	c.name(p.Name, at.Child("name"), validation.IsValidPortName)
	if p.Name != "" && taken.Has(p.Name) {
		c.add(field.Duplicate(at.Child("name"), p.Name))
	}
	taken.Insert(p.Name)
	if p.HostPort != 0 {
		for _, message := range validation.IsValidPortNum(int(p.HostPort)) {
			c.add(field.Invalid(at.Child("hostPort"), p.HostPort, message))
		}
	}
}

func (c *podCheck) env(e corev1.EnvVar, at *field.Path) {
	if e.Name == "" {
		c.add(field.Required(at.Child("name"), ""))
	} else {
		c.name(e.Name, at.Child("name"), validation.IsRelaxedEnvVarName)
	}
	if e.ValueFrom == nil {
		return
	}
	set := setFields(reflect.ValueOf(*e.ValueFrom))
	switch {
	case e.Value != "":
		c.add(field.Invalid(at.Child("valueFrom"), "", "must not be set beside value"))
	case len(set) != 1:
		c.add(field.Invalid(at.Child("valueFrom"), "", "must have one source"))
	}
	if ref := e.ValueFrom.SecretKeyRef; ref != nil {
		c.reference(ref.Name, at.Child("valueFrom", "secretKeyRef", "name"))
		c.key(ref.Key, at.Child("valueFrom", "secretKeyRef", "key"))
	}
	if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
		c.reference(ref.Name, at.Child("valueFrom", "configMapKeyRef", "name"))
		c.key(ref.Key, at.Child("valueFrom", "configMapKeyRef", "key"))
	}
}

func (c *podCheck) envFrom(e corev1.EnvFromSource, at *field.Path) {
	switch {
	case (e.SecretRef == nil) == (e.ConfigMapRef == nil):
		c.add(field.Invalid(at, "", "must have one source"))
	case e.SecretRef != nil:
		c.reference(e.SecretRef.Name, at.Child("secretRef", "name"))
	default:
		c.reference(e.ConfigMapRef.Name, at.Child("configMapRef", "name"))
	}
}

// reference checks the name of an object that must be there.
func (c *podCheck) reference(name string, at *field.Path) {
	if name == "" {
		c.add(field.Required(at, ""))
	}
	c.name(name, at, validation.IsDNS1123Subdomain)
}

// key checks the key of a Secret or a ConfigMap.
func (c *podCheck) key(key string, at *field.Path) {
	if key == "" {
		c.add(field.Required(at, ""))
	}
	c.name(key, at, validation.IsConfigMapKey)
}

func (c *podCheck) mounts(mounts []corev1.VolumeMount, at *field.Path) {
	paths := sets.New[string]()
	for i, m := range mounts {
		c.mount(m, paths, at.Index(i))
		paths.Insert(m.MountPath)
	}
}

// mount checks a mount; taken are the paths of others.
func (c *podCheck) mount(m corev1.VolumeMount, taken sets.Set[string], at *field.Path) {
	switch {
	case m.Name == "":
		c.add(field.Required(at.Child("name"), ""))
	case !c.volumes.Has(m.Name):
		c.add(field.Invalid(at.Child("name"), m.Name, "no volume has this name"))
	}
	switch {
	case m.MountPath == "":
		c.add(field.Required(at.Child("mountPath"), ""))
	case taken.Has(m.MountPath):
		c.add(field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
	}
	for name, sub := range map[string]string{"subPath": m.SubPath, "subPathExpr": m.SubPathExpr} {
		if path.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..") {
			c.add(field.Invalid(at.Child(name), sub, "must be a relative path without '..'"))
		}
	}
	if m.SubPath != "" && m.SubPathExpr != "" {
		c.add(field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "must not be set beside subPath"))
	}
}

func (c *podCheck) resources(r corev1.ResourceRequirements, at *field.Path) {
	c.quantities(r.Limits, at.Child("limits"))
	c.quantities(r.Requests, at.Child("requests"))
	for name, request := range r.Requests {
		limit, limited := r.Limits[name]
		isExtended := strings.Contains(string(name), "/")
		switch {
		case limited && request.Cmp(limit) > 0:
			c.add(field.Invalid(at.Child("requests").Key(string(name)), request.String(), "must be at most the limit, "+limit.String()))
		case isExtended && (!limited || request.Cmp(limit) != 0):
			c.add(field.Invalid(at.Child("requests").Key(string(name)), request.String(), "must be the same as the limit of a resource with a domain"))
		}
	}
}

func (c *podCheck) quantities(list corev1.ResourceList, at *field.Path) {
	for name, quantity := range list {
		of := at.Key(string(name))
		for _, message := range validation.IsQualifiedName(string(name)) {
			c.add(field.Invalid(of, string(name), message))
		}
		if quantity.Sign() < 0 {
			c.add(field.Invalid(of, quantity.String(), "must not be negative"))
		}
		if !strings.Contains(string(name), "/") && !standard.Has(string(name)) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			c.add(field.Invalid(of, string(name), "must be a standard resource, or have a domain, as nvidia.com/gpu"))
		}
	}
}

// standard are the resources without a domain that a container may ask for.
var standard = sets.New(string(corev1.ResourceCPU), string(corev1.ResourceMemory), string(corev1.ResourceEphemeralStorage))

// lifecycle checks what a container does when it starts or ends.
func (c *podCheck) lifecycle(h *corev1.LifecycleHandler, at *field.Path) {
	if h == nil {
		return
	}
	if set := setFields(reflect.ValueOf(*h)); len(set) != 1 {
		c.add(field.Invalid(at, "", "must have one handler"))
	}
	c.handlers(h.Exec, h.HTTPGet, h.TCPSocket, at)
}

func (c *podCheck) handlers(exec *corev1.ExecAction, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction, at *field.Path) {
	switch {
	case exec != nil && len(exec.Command) == 0:
		c.add(field.Required(at.Child("exec", "command"), ""))
	case get != nil:
		c.portReference(get.Port, at.Child("httpGet", "port"))
	case socket != nil:
		c.portReference(socket.Port, at.Child("tcpSocket", "port"))
	}
}

// probe checks a probe; once is true where one success is all that counts.
func (c *podCheck) probe(p *corev1.Probe, once bool, at *field.Path) {
	if p == nil {
		return
	}
	set := setFields(reflect.ValueOf(p.ProbeHandler))
	switch {
	case len(set) == 0:
		c.add(field.Required(at, "must have a handler: exec, httpGet, tcpSocket or grpc"))
	case len(set) > 1:
		c.add(field.Forbidden(at, "must have one handler, not "+strings.Join(set, " and ")))
	}
	for name, seconds := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		if seconds < 0 {
			c.add(field.Invalid(at.Child(name), seconds, "must not be negative"))
		}
	}
	if once && p.SuccessThreshold > 1 {
		c.add(field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	c.atLeast(p.TerminationGracePeriodSeconds, 1, at.Child("terminationGracePeriodSeconds"))
	c.handlers(p.Exec, p.HTTPGet, p.TCPSocket, at)
	if p.GRPC != nil {
		c.portReference(intstr.FromInt32(p.GRPC.Port), at.Child("grpc", "port"))
	}
}

// portReference checks the number or the name of a port.
func (c *podCheck) portReference(p intstr.IntOrString, at *field.Path) {
	messages := validation.IsValidPortNum(p.IntValue())
	if p.Type == intstr.String {
		messages = validation.IsValidPortName(p.StrVal)
	}
	for _, message := range messages {
		c.add(field.Invalid(at, p.String(), message))
	}
}

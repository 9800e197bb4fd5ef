// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// An API server checks pods with code that is in no library. These are its rules (k8s.io/kubernetes, pkg/apis/core/validation) that
// templates of runners break; the others are told by a dry run in the cluster.

// checkSize returns that a pool's spec is too large, which the chart's ValidatingAdmissionPolicy and the controller refuse.
func checkSize(spec any) field.ErrorList {
	text, err := json.Marshal(spec)
	if err == nil {
		err = v1alpha1.CheckPoolSize(len(text))
	}
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())}
	}
	return nil
}

// checkTemplate returns what is wrong with the pod of a pool.
func checkTemplate(pool map[string]any) field.ErrorList {
	at := field.NewPath("spec", "template")
	spec, _ := pool["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	t := &corev1.PodTemplateSpec{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(template, t, true)
	var fields map[string]any // as Go writes them: without what isn't set
	if err == nil {
		fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&t.Spec)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(at, nil, err.Error())}
	}
	errs := metav1validation.ValidateLabels(t.Labels, at.Child("metadata", "labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("metadata", "annotations"))...)
	errs = append(errs, metav1validation.ValidateLabels(t.Spec.NodeSelector, at.Child("spec", "nodeSelector"))...)
	part{fields, at.Child("spec"), &errs}.pod(&t.Spec)
	return errs
}

// part is an object in a pod by its fields that are set, none of them if it isn't there.
type part struct {
	fields map[string]any
	at     *field.Path
	errs   *field.ErrorList
}

func (p part) add(err *field.Error) { *p.errs = append(*p.errs, err) }

// has says whether a field is set, and no empty text.
func (p part) has(name string) bool { return p.fields[name] != nil && p.fields[name] != "" }

// text is a field, empty if it isn't set.
func (p part) text(name string) string {
	text, _ := p.fields[name].(string)
	return text
}

// get returns the object of a field.
func (p part) get(name string) part {
	fields, _ := p.fields[name].(map[string]any)
	return part{fields, p.at.Child(name), p.errs}
}

// each returns the objects of a list.
func (p part) each(name string) []part {
	list, _ := p.fields[name].([]any)
	parts := make([]part, len(list))
	for i := range list {
		fields, _ := list[i].(map[string]any)
		parts[i] = part{fields, p.at.Child(name).Index(i), p.errs}
	}
	return parts
}

// optional checks texts that may be left out.
func (p part) optional(valid func(string) []string, names ...string) {
	for _, name := range names {
		if text := p.text(name); text != "" {
			p.invalid(name, valid(text)...)
		}
	}
}

// required checks a text that must be there.
func (p part) required(valid func(string) []string, name string) {
	if p.text(name) == "" {
		p.add(field.Required(p.at.Child(name), ""))
	}
	p.optional(valid, name)
}

func anyText(string) []string { return nil }

// unique checks a name that others may have taken, if it is there.
func (p part) unique(taken sets.Set[string]) {
	if name := p.text("name"); name != "" && taken.Has(name) {
		p.add(field.Duplicate(p.at.Child("name"), name))
	}
	taken.Insert(p.text("name"))
}

func (p part) atLeast(least int64, names ...string) {
	for _, name := range names {
		if n, ok := p.fields[name].(int64); ok && n < least {
			p.invalid(name, fmt.Sprintf("must be at least %d", least))
		}
	}
}

// port checks the number or the name of a port.
func (p part) port(name string) {
	switch port := p.fields[name].(type) {
	case int64:
		p.invalid(name, validation.IsValidPortNum(int(port))...)
	case string:
		p.invalid(name, validation.IsValidPortName(port)...)
	}
}

// invalid adds what is wrong with the value of a field.
func (p part) invalid(name string, messages ...string) {
	value := p.fields[name]
	if value == nil {
		value = ""
	}
	for _, message := range messages {
		p.add(field.Invalid(p.at.Child(name), value, message))
	}
}

// must adds that the value of a field isn't as it must be.
func (p part) must(ok bool, name, message string) {
	if !ok {
		p.invalid(name, "must "+message)
	}
}

func (p part) pod(spec *corev1.PodSpec) {
	volumes, containers := sets.New[string](), sets.New[string]()
	for i, v := range p.each("volumes") {
		v.volume(spec.Volumes[i].EmptyDir, volumes)
	}
	for i, c := range p.each("initContainers") {
		c.container(spec.InitContainers[i].Resources, volumes, containers)
		if c.text("restartPolicy") == string(corev1.ContainerRestartPolicyAlways) {
			c.hooks()
		} else {
			c.endsByItself()
		}
	}
	for i, c := range p.each("containers") {
		c.container(spec.Containers[i].Resources, volumes, containers)
		c.hooks()
	}
	p.optional(validation.IsDNS1123Subdomain, "serviceAccountName", "priorityClassName", "nodeName")
	p.optional(validation.IsDNS1123Label, "hostname", "subdomain")
	p.atLeast(1, "activeDeadlineSeconds")
	p.get("securityContext").atLeast(0, "runAsUser", "runAsGroup", "fsGroup")
	for _, t := range p.each("tolerations") {
		t.toleration()
	}
	for _, secret := range p.each("imagePullSecrets") {
		secret.optional(validation.IsDNS1123Subdomain, "name")
	}
	spread := sets.New[[2]string]()
	for _, s := range p.each("topologySpreadConstraints") {
		key := s.text("topologyKey")
		if pair := [2]string{key, s.text("whenUnsatisfiable")}; spread.Has(pair) {
			s.add(field.Duplicate(s.at.Child("topologyKey"), key))
		} else {
			spread.Insert(pair)
		}
		s.required(anyText, "topologyKey")
		s.atLeast(1, "maxSkew")
	}
}

func (p part) toleration() {
	isExists := p.text("operator") == string(corev1.TolerationOpExists)
	p.optional(validation.IsQualifiedName, "key")
	p.must(p.has("key") || isExists, "operator", "be Exists where there is no key")
	p.must(!isExists || !p.has("value"), "value", "not be set where operator is Exists")
	if p.has("key") && !isExists {
		p.optional(validation.IsValidLabelValue, "value")
	}
	isKept := p.text("effect") == string(corev1.TaintEffectNoExecute)
	p.must(isKept || !p.has("tolerationSeconds"), "effect", "be NoExecute where tolerationSeconds is set")
}

// volume checks a volume. Without a source it is an emptyDir.
func (p part) volume(emptyDir *corev1.EmptyDirVolumeSource, taken sets.Set[string]) {
	p.required(validation.IsDNS1123Label, "name")
	p.unique(taken)
	sources := slices.DeleteFunc(slices.Sorted(maps.Keys(p.fields)), func(name string) bool { return name == "name" })
	if len(sources) > 1 {
		p.add(field.Forbidden(p.at, "must have one source, not "+strings.Join(sources, " and ")))
	}
	isNegative := emptyDir != nil && emptyDir.SizeLimit != nil && emptyDir.SizeLimit.Sign() < 0
	p.get("emptyDir").must(!isNegative, "sizeLimit", "not be negative")
}

// container checks a container; taken are the names of others.
func (p part) container(resources corev1.ResourceRequirements, volumes, taken sets.Set[string]) {
	p.required(validation.IsDNS1123Label, "name")
	p.unique(taken)
	p.required(anyText, "image")
	p.must(strings.TrimSpace(p.text("image")) == p.text("image"), "image", "not begin or end with a space")
	ports := sets.New[string]()
	for _, port := range p.each("ports") {
		port.port("containerPort")
		port.port("hostPort")
		port.optional(validation.IsValidPortName, "name")
		port.unique(ports)
	}
	for _, env := range p.each("env") {
		env.required(validation.IsRelaxedEnvVarName, "name")
		env.valueFrom()
	}
	for _, from := range p.each("envFrom") {
		from.source()
	}
	paths := sets.New[string]()
	for _, m := range p.each("volumeMounts") {
		m.mount(volumes, paths)
	}
	p.get("resources").resources(resources)
	security := p.get("securityContext")
	security.atLeast(0, "runAsUser", "runAsGroup")
	escalates := security.fields["privileged"] != true || security.fields["allowPrivilegeEscalation"] != false
	security.must(escalates, "allowPrivilegeEscalation", "be true where privileged is")
}

// endsByItself checks an init container that others wait for.
func (p part) endsByItself() {
	for _, name := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} {
		if p.has(name) {
			p.add(field.Forbidden(p.at.Child(name), "must not be set of an init container that does not restart"))
		}
	}
}

// valueFrom checks where a variable has its value from.
func (p part) valueFrom() {
	from := p.get("valueFrom")
	switch {
	case !p.has("valueFrom"):
	case p.has("value"):
		p.add(field.Invalid(from.at, "", "must not be set beside value"))
	case len(from.fields) != 1:
		p.add(field.Invalid(from.at, "", "must have one source"))
	}
	for _, kind := range []string{"secretKeyRef", "configMapKeyRef"} {
		if from.has(kind) {
			from.get(kind).required(validation.IsDNS1123Subdomain, "name")
			from.get(kind).required(validation.IsConfigMapKey, "key")
		}
	}
}

// source checks where variables are from.
func (p part) source() {
	if p.has("secretRef") == p.has("configMapRef") {
		p.add(field.Invalid(p.at, "", "must have one source"))
		return
	}
	for _, kind := range []string{"secretRef", "configMapRef"} {
		if p.has(kind) {
			p.get(kind).required(validation.IsDNS1123Subdomain, "name")
		}
	}
}

// mount checks a mount; taken are the paths of others.
func (p part) mount(volumes, taken sets.Set[string]) {
	p.required(anyText, "name")
	if p.has("name") && !volumes.Has(p.text("name")) {
		p.invalid("name", "no volume has this name")
	}
	p.required(anyText, "mountPath")
	p.must(!p.has("mountPath") || !taken.Has(p.text("mountPath")), "mountPath", "be unique")
	taken.Insert(p.text("mountPath"))
	for _, name := range []string{"subPath", "subPathExpr"} {
		sub := p.text(name)
		p.must(!path.IsAbs(sub) && !slices.Contains(strings.Split(sub, "/"), ".."), name, "be a relative path without '..'")
	}
	p.must(!p.has("subPath") || !p.has("subPathExpr"), "subPathExpr", "not be set beside subPath")
}

func (p part) resources(r corev1.ResourceRequirements) {
	p.quantities(r.Limits, p.at.Child("limits"))
	p.quantities(r.Requests, p.at.Child("requests"))
	for name, request := range r.Requests {
		limit, limited := r.Limits[name]
		isExtended := strings.Contains(string(name), "/")
		at := p.at.Child("requests").Key(string(name))
		switch {
		case limited && request.Cmp(limit) > 0:
			p.add(field.Invalid(at, request.String(), "must be at most the limit, "+limit.String()))
		case isExtended && (!limited || request.Cmp(limit) != 0):
			p.add(field.Invalid(at, request.String(), "must be the same as the limit of a resource with a domain"))
		}
	}
}

func (p part) quantities(list corev1.ResourceList, at *field.Path) {
	for name, quantity := range list {
		of := at.Key(string(name))
		for _, message := range validation.IsQualifiedName(string(name)) {
			p.add(field.Invalid(of, string(name), message))
		}
		if quantity.Sign() < 0 {
			p.add(field.Invalid(of, quantity.String(), "must not be negative"))
		}
		if !strings.Contains(string(name), "/") && !standard.Has(name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			p.add(field.Invalid(of, string(name), "must be a standard resource, or have a domain, as nvidia.com/gpu"))
		}
	}
}

// standard are the resources without a domain that a container may ask for.
var standard = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage)

// hooks checks the probes of a container, and what it does when it starts or ends.
func (p part) hooks() {
	for _, name := range []string{"preStop", "postStart"} {
		if lifecycle := p.get("lifecycle"); lifecycle.has(name) {
			hook := lifecycle.get(name)
			if len(hook.fields) != 1 {
				p.add(field.Invalid(hook.at, "", "must have one handler"))
			}
			hook.handlers()
		}
	}
	for _, name := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		if p.has(name) {
			p.get(name).probe(name != "readinessProbe")
		}
	}
}

func (p part) handlers() {
	if p.has("exec") && !p.get("exec").has("command") {
		p.add(field.Required(p.at.Child("exec", "command"), ""))
	}
	for _, name := range []string{"httpGet", "tcpSocket", "grpc"} {
		p.get(name).port("port")
	}
}

// probe checks a probe; once is true where one success is all that counts.
func (p part) probe(once bool) {
	handlers := slices.DeleteFunc([]string{"exec", "httpGet", "tcpSocket", "grpc"}, func(name string) bool { return !p.has(name) })
	switch {
	case len(handlers) == 0:
		p.add(field.Required(p.at, "must have a handler: exec, httpGet, tcpSocket or grpc"))
	case len(handlers) > 1:
		p.add(field.Forbidden(p.at, "must have one handler, not "+strings.Join(handlers, " and ")))
	}
	for _, name := range []string{"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"} {
		n, _ := p.fields[name].(int64)
		p.must(n >= 0, name, "not be negative")
		p.must(!once || name != "successThreshold" || n <= 1, name, "be 1")
	}
	p.atLeast(1, "terminationGracePeriodSeconds")
	p.handlers()
}

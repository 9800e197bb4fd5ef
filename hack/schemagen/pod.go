// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schemagen

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// written are Go types whose JSON form differs from their fields, and types whose fields are of no use in a template.
var written = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():         "string",
	reflect.TypeFor[resource.Quantity]():   "#Quantity",
	reflect.TypeFor[intstr.IntOrString]():  "int | string",
	reflect.TypeFor[metav1.ObjectMeta]():   "#TemplateMetadata",
	reflect.TypeFor[[]byte]():              "string",
	reflect.TypeFor[corev1.ResourceList](): "[string]: #Quantity",
}

// enums are string types with a fixed set of values, so that a typo is found here and not when the first pod is
// refused.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[corev1.PullPolicy]():                    values(corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
	reflect.TypeFor[corev1.RestartPolicy]():                 values(corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
	reflect.TypeFor[corev1.ContainerRestartPolicy]():        values(corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever),
	reflect.TypeFor[corev1.DNSPolicy]():                     values(corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone),
	reflect.TypeFor[corev1.Protocol]():                      values(corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
	reflect.TypeFor[corev1.TaintEffect]():                   values(corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
	reflect.TypeFor[corev1.TolerationOperator]():            values(corev1.TolerationOpExists, corev1.TolerationOpEqual, corev1.TolerationOpLt, corev1.TolerationOpGt),
	reflect.TypeFor[corev1.NodeSelectorOperator]():          values(corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt),
	reflect.TypeFor[corev1.UnsatisfiableConstraintAction](): values(corev1.DoNotSchedule, corev1.ScheduleAnyway),
	reflect.TypeFor[corev1.MountPropagationMode]():          values(corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional),
}

// optional fields have no omitempty, but may be omitted.
var optional = map[string]bool{"GRPCAction.service": true, "TypedLocalObjectReference.apiGroup": true, "TypedObjectReference.apiGroup": true}

// omitted are fields that the API server refuses in a new pod.
var omitted = map[string]bool{"PodSpec.ephemeralContainers": true}

func values[T ~string](list ...T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = fmt.Sprintf("%q", string(v))
	}
	return out
}

// podDefinitions returns a CUE file with a closed definition of PodTemplateSpec and of each struct that it refers to.
func podDefinitions() ([]byte, error) {
	g := generator{seen: map[string]reflect.Type{}, text: map[string]string{}}
	if err := g.define(reflect.TypeFor[corev1.PodTemplateSpec]()); err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("package schema\n")
	for _, name := range slices.Sorted(maps.Keys(g.text)) {
		b.WriteString("\n" + g.text[name])
	}
	return format.Source([]byte(b.String()))
}

// sentenceEnd does not match after abbreviations such as "e.g.", because a lower-case letter follows those.
var sentenceEnd = regexp.MustCompile(`\. +[A-Z]`)

// generator collects the text of definitions by name.
type generator struct {
	seen map[string]reflect.Type
	text map[string]string
}

// define writes the definition of a struct and of all structs that it refers to, once.
func (g *generator) define(t reflect.Type) error {
	if known, ok := g.seen[t.Name()]; ok {
		if known != t {
			return fmt.Errorf("naming #%s: both %s and %s have that name", t.Name(), known, t)
		}
		return nil
	}
	g.seen[t.Name()] = t
	var b strings.Builder
	comment(&b, docs(t)[""])
	fmt.Fprintf(&b, "#%s: {\n", t.Name())
	if err := g.fields(&b, t); err != nil {
		return err
	}
	b.WriteString("}\n")
	g.text[t.Name()] = b.String()
	return nil
}

// fields writes the fields of t, with the fields of inlined structs in their place.
func (g *generator) fields(b *strings.Builder, t reflect.Type) error {
	help := docs(t)
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := cutTag(field)
		if name == "" && field.Anonymous {
			if err := g.fields(b, field.Type); err != nil {
				return err
			}
			continue
		}
		if name == "" || name == "-" || omitted[t.Name()+"."+name] {
			continue
		}
		value, err := g.expression(field.Type)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", t.Name(), name, err)
		}
		constraint := "!"
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") || optional[t.Name()+"."+name] {
			constraint = "?"
		}
		comment(b, help[name])
		fmt.Fprintf(b, "%s%s: %s\n", ast.NewStringLabel(name).(*ast.Ident).Name, constraint, value)
	}
	return nil
}

// cutTag splits a field's JSON tag into its name and its options.
func cutTag(field reflect.StructField) (name, options string, found bool) {
	return strings.Cut(field.Tag.Get("json"), ",")
}

// expression returns the CUE type of values of t, as it follows a label.
func (g *generator) expression(t reflect.Type) (string, error) {
	if text, ok := written[t]; ok {
		return text, nil
	}
	if list, ok := enums[t]; ok {
		return strings.Join(list, " | "), nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.expression(t.Elem())
	case reflect.Struct:
		return "#" + t.Name(), g.define(t)
	case reflect.Slice:
		elem, err := g.expression(t.Elem())
		if strings.Contains(elem, "|") {
			elem = "(" + elem + ")"
		}
		return "[..." + elem + "]", err
	case reflect.Map:
		elem, err := g.expression(t.Elem())
		return "[string]: " + elem, err
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "int", nil
	}
	return "", fmt.Errorf("no CUE type for %s", t)
}

// docs returns Kubernetes' own help for the fields of t, and for t under "".
func docs(t reflect.Type) map[string]string {
	documented, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string })
	if !ok {
		return nil
	}
	return documented.SwaggerDoc()
}

// comment writes the first sentence of text, because editors have room for that.
func comment(b *strings.Builder, text string) {
	text, _, _ = strings.Cut(text, "\n")
	if end := sentenceEnd.FindStringIndex(text); end != nil {
		text = text[:end[0]+1]
	}
	const width = 100
	line := "//"
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) >= width {
			b.WriteString(line + "\n")
			line = "//"
		}
		line += " " + word
	}
	if line != "//" {
		b.WriteString(line + "\n")
	}
}

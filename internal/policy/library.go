// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/policies"
)

// libraryPrefix is the prefix of the library's file names in diagnostics and answers.
const libraryPrefix = "library/"

// libraryModule is one file of the built-in library.
type libraryModule struct {
	text   string
	module *ast.Module
	// family is the lower-case name of the field in spec.library that enables the file; empty for a helper that is
	// always included.
	family string
}

// library is the built-in library, parsed once.
var library = sync.OnceValue(func() map[string]libraryModule {
	families := map[string]bool{podHelper: true}
	for field := range reflect.TypeFor[v1alpha1.PolicyLibrary]().Fields() {
		families[strings.ToLower(field.Name)] = true
	}
	modules := map[string]libraryModule{}
	files, _ := fs.Glob(policies.FS, "*/*.rego") // the pattern is valid
	for _, file := range files {
		if testFile(file) {
			continue
		}
		text, _ := fs.ReadFile(policies.FS, file) // it is embedded
		name, family := libraryPrefix+file, strings.TrimSuffix(path.Base(file), ".rego")
		if !families[family] {
			family = ""
		}
		modules[name] = libraryModule{text: string(text), module: mustParse(name, string(text)), family: family}
	}
	return modules
})

// podHelper is the family of the helper for the containers of a pod. It is enabled for policies whose modules refer to
// its package.
const podHelper = "pod"

var namesPodHelper = regexp.MustCompile(`\bdata\.corral\.pod\b`)

// libraryFor returns the modules of the enabled families, and their helpers.
func libraryFor(s *Source) map[string]libraryModule {
	on := map[string]bool{}
	for _, text := range s.Modules {
		on[podHelper] = on[podHelper] || namesPodHelper.MatchString(text)
	}
	if s.Library != nil {
		on[""] = true
		for field, v := range reflect.ValueOf(*withPreset(s.Library)).Fields() {
			on[strings.ToLower(field.Name)] = !v.IsZero()
		}
	}
	chosen := map[string]libraryModule{}
	for name, m := range library() {
		if on[m.family] {
			chosen[name] = m
		}
	}
	return chosen
}

// withPreset adds the families of a preset that the policy does not configure itself.
func withPreset(given *v1alpha1.PolicyLibrary) *v1alpha1.PolicyLibrary {
	if given == nil || given.Preset == "" {
		return given
	}
	cpu, memory := corev1.ResourceCPU, corev1.ResourceMemory
	whole := &v1alpha1.PolicyLibrary{
		PodSecurity:       &v1alpha1.PodSecurityRules{Level: "restricted"},
		Resources:         &v1alpha1.ResourceRules{RequireRequests: []corev1.ResourceName{cpu, memory}, RequireLimits: []corev1.ResourceName{memory}},
		ServiceAccounts:   &v1alpha1.ServiceAccountRules{},
		Secrets:           &v1alpha1.SecretRules{},
		Scheduling:        &v1alpha1.SchedulingRules{},
		Volumes:           &v1alpha1.VolumeRules{},
		ExtendedResources: &v1alpha1.ExtendedResourceRules{},
		Metadata:          &v1alpha1.MetadataRules{},
		Fields:            &v1alpha1.FieldRules{},
		Persistent:        &v1alpha1.PersistentRules{},
	}
	to := reflect.ValueOf(whole).Elem()
	for field, v := range reflect.ValueOf(*given).Fields() {
		if !v.IsZero() {
			to.FieldByIndex(field.Index).Set(v)
		}
	}
	return whole
}

// parse parses a Rego v1 module.
func parse(file, text string) (*ast.Module, error) {
	return ast.ParseModuleWithOpts(file, text, ast.ParserOptions{
		RegoVersion: ast.RegoV1, ProcessAnnotation: true, Capabilities: sandbox(),
	})
}

// mustParse parses a module that is built into this program.
func mustParse(file, text string) *ast.Module {
	module, err := parse(file, text)
	if err != nil {
		panic(err)
	}
	return module
}

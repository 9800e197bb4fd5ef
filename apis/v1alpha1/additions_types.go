// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultWorkFolder is the folder in which jobs work, below the runner's own folder.
const DefaultWorkFolder = "_work"

// TemplateAdditions are settings that add to a pool's template and to the other objects that Corral creates for it.
type TemplateAdditions struct {
	// containerMode is how the containers of jobs run: with a Docker daemon in the runner's pod, or as separate pods. Default: only the
	// template determines it.
	// +optional
	ContainerMode *ContainerMode `json:"containerMode,omitempty"`

	// cache declares volumes that outlive runners and are taken over by the next runner of the pool.
	// +optional
	Cache *CacheSpec `json:"cache,omitempty"`

	// workFolder is the folder in which jobs work (ARC's workDir): a path, or a name below the runner's own folder. Default:
	// _work.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^([A-Za-z]:)?[A-Za-z0-9._/\\-]*[A-Za-z0-9_-]$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="workFolder must not have .. in it"
	WorkFolder string `json:"workFolder,omitempty"`

	// objectMetadata has labels and annotations for all objects that Corral creates for the pool: pods (the template takes precedence), Runners,
	// their Secrets, revisions, the RunnerScaleSet, claims of the cache, the ConfigMap of decisions, and the RBAC objects of hooks.
	// +optional
	ObjectMetadata *ObjectMetadata `json:"objectMetadata,omitempty"`
}

// ObjectMetadata are labels and annotations.
type ObjectMetadata struct {
	// labels. Labels that other tools use to recognize their own objects are refused.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]LabelValue `json:"labels,omitempty"`
	// annotations. Annotations that other tools use to recognize their own objects are refused.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// AnnotationValue is the value of an annotation.
// +kubebuilder:validation:MaxLength=1024
type AnnotationValue string

// foreignKeys are keys, or domains of keys, that Argo CD, Flux, Helm, kubectl and similar tools use to recognize objects that they applied. Such a
// tool would prune an object that has the key and is not declared, or report it as changed.
var foreignKeys = []string{
	"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "argocd.argoproj.io/", "kubectl.kubernetes.io/", "applyset.kubernetes.io/",
	"kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "fluxcd.controlplane.io/", "meta.helm.sh/", "helm.sh/", "config.k8s.io/",
	"kapp.k14s.io/", "objectset.rio.cattle.io/", "addonmanager.kubernetes.io/",
}

// Check returns an error with the field's path if a key cannot be set, or would make another tool treat the object as its
// own. The metadata may be nil.
func (m *ObjectMetadata) Check() error {
	if m == nil {
		return nil
	}
	asWritten := func(key string) string { return key }
	return cmp.Or(checkKeys("labels", m.Labels, asWritten), checkKeys("annotations", m.Annotations, strings.ToLower))
}

// checkKeys applies Kubernetes' rules for keys.
func checkKeys[V any](field string, of map[string]V, as func(string) string) error {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		at := fmt.Sprintf("spec.objectMetadata.%s[%s]", field, key)
		if wrong := validation.IsQualifiedName(as(key)); len(wrong) > 0 {
			return fmt.Errorf("%s: is no key: %s", at, wrong[0])
		}
		domain, _, hasDomain := strings.Cut(key, "/")
		if hasDomain && strings.HasSuffix("."+domain, "."+GroupVersion.Group) {
			return fmt.Errorf("%s: keys of %s are reserved for Corral", at, domain)
		}
		if slices.Contains(foreignKeys, key) || hasDomain && slices.Contains(foreignKeys, domain+"/") {
			return fmt.Errorf("%s: another tool uses this key to recognize the objects that it applied, and would delete objects that it did not apply; choose another key", at)
		}
	}
	return nil
}

// LabelsOfObjects returns the labels of all objects that Corral creates for the pool. It returns none if some are refused.
func (s *TemplateAdditions) LabelsOfObjects() map[string]string {
	if s.ObjectMetadata.Check() != nil || s.ObjectMetadata == nil {
		return nil
	}
	return plain(s.ObjectMetadata.Labels)
}

// AnnotationsOfObjects returns the annotations of all objects that Corral creates for the pool. It returns none if some are refused.
func (s *TemplateAdditions) AnnotationsOfObjects() map[string]string {
	if s.ObjectMetadata.Check() != nil || s.ObjectMetadata == nil {
		return nil
	}
	return plain(s.ObjectMetadata.Annotations)
}

func plain[V ~string](values map[string]V) map[string]string {
	all := make(map[string]string, len(values))
	for key, value := range values {
		all[key] = string(value)
	}
	return all
}

// GetWorkFolder returns the folder in which jobs of the pool's runners work.
func (s *TemplateAdditions) GetWorkFolder() string { return cmp.Or(s.WorkFolder, DefaultWorkFolder) }

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/open-policy-agent/opa/v1/util"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Object is a policy of either kind.
type Object interface {
	metav1.Object
	runtime.Object
	GetRules() *v1alpha1.PolicyRules
	GetPolicyStatus() *v1alpha1.RunnerPolicyStatus
	ConfigMaps() []types.NamespacedName
	Unreadable() error
	GetConditions() []metav1.Condition
	Causes() *[]v1alpha1.Cause
}

// ReachOf returns the source of an object without its rules: its name and the pools that it binds.
func ReachOf(p Object) Source {
	s := Source{Kind: KindRunnerPolicy, Namespace: p.GetNamespace(), Name: p.GetName(), Selector: p.GetRules().Selector}
	if cluster, ok := p.(*v1alpha1.ClusterRunnerPolicy); ok {
		s.Kind, s.Namespace, s.Namespaces = KindClusterRunnerPolicy, "", cluster.Spec.Namespaces // clients may set a namespace
	}
	return s
}

// SourceOf returns the source of an object without the referenced ConfigMaps. An error names the field.
func SourceOf(p Object) (Source, error) {
	s, r := ReachOf(p), p.GetRules()
	s.Mode, s.Library, s.Modules = r.GetMode(), r.Library, maps.Clone(r.Modules)
	var errData, errParameters error
	s.Data, errData = object(r.Data, "spec.data")
	s.Parameters, errParameters = object(r.Parameters, "spec.parameters")
	return s, cmp.Or(p.Unreadable(), errData, errParameters)
}

// Merge adds the content of a ConfigMap's key: a module, or data. It fails if the key is neither.
func (s *Source) Merge(config, key, text string) error {
	files := &s.DataFiles
	switch {
	case path.Ext(key) == ".rego":
		files = &s.Modules
	case !slices.Contains([]string{"data.json", "data.yaml", "data.yml"}, key):
		return errors.New("is neither NAME.rego nor data.json or data.yaml")
	}
	name := config + "/" + key
	if _, taken := (*files)[name]; taken {
		return fmt.Errorf("%s already exists", name)
	}
	if *files == nil {
		*files = map[string]string{}
	}
	(*files)[name] = text
	return nil
}

// Identity returns the two values that identify a version of a policy: the source without the parts that the digest
// covers, and the digest.
func (s Source) Identity() (Source, string) {
	digest := digest(&s)
	s.Modules, s.Data, s.DataFiles, s.Parameters = nil, nil, nil, nil
	return s, digest
}

// Size returns the size of modules, data and parameters in bytes.
func (s Source) Size() int {
	n := 0
	for _, files := range []map[string]string{s.Modules, s.DataFiles} {
		for name, text := range files {
			n += len(name) + len(text)
		}
	}
	for _, content := range []map[string]any{s.Data, s.Parameters} {
		n += len(jsonOf(content))
	}
	return n
}

// PoolOf returns the declared pool as policies see it.
func PoolOf(p *v1alpha1.RunnerPool) Pool {
	return Pool{
		Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations,
		Connection: connectionOf(p), ScaleSet: p.GetScaleSetName(),
		RunnerGroup: p.Spec.GetRunnerGroup(), RunnerLabels: p.GetRunnerLabels(), Lifetime: string(p.Spec.GetLifetime()), Trust: p.Spec.Trust,
		Scale:      p.Spec.Scale.Numbers(),
		StopPolicy: string(p.Spec.GetStopPolicy()), Cache: cacheOf(p.Spec.Cache),
	}
}

// cacheOf returns the cache as policies see it. It ignores the error of an invalid size, because the controller then
// creates no claims.
func cacheOf(s *v1alpha1.CacheSpec) Cache {
	if s == nil {
		return Cache{}
	}
	bytes, _ := s.Bytes()
	return Cache{
		StorageClassName: s.StorageClassName, SizeBytes: bytes, MountPath: s.MountPath, MaxClaims: s.MaxClaims,
		TimeToLiveSeconds: int64(s.GetTimeToLive().Seconds()),
	}
}

// connectionOf returns the name of a pool's connection: NAME, or NAMESPACE/NAME if it is in another namespace.
func connectionOf(p *v1alpha1.RunnerPool) string {
	if key := p.Spec.ConnectionRef.From(p.Namespace); key.Namespace != p.Namespace {
		return key.String()
	}
	return p.Spec.ConnectionRef.Name
}

// object decodes a JSON object and keeps numbers as they are written.
func object(raw *runtime.RawExtension, field string) (map[string]any, error) {
	if raw == nil || len(raw.Raw) == 0 {
		return nil, nil
	}
	var content map[string]any
	if err := util.UnmarshalJSON(raw.Raw, &content); err != nil {
		return nil, fmt.Errorf("%s must be an object: %w", field, err)
	}
	return content, nil
}

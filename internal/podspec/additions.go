// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// workFolderEnv is the variable from which config.sh reads the work folder; run.sh removes it from the environment. For
// a runner that takes one job, the registration contains the folder, too.
const workFolderEnv = "ACTIONS_RUNNER_INPUT_WORK"

// Template returns the template for the pool's runners: spec.template with the additions from other fields. If none of
// these fields is set, it is spec.template, byte for byte. It contains everything that the pool declares about its
// pods, so that each change of it leads to a new revision. An error names the field of the pool.
func Template(pool *v1alpha1.RunnerPool) ([]byte, error) {
	s, declared := &pool.Spec, pool.Spec.Template.Raw
	if len(declared) == 0 { // the CRD in the cluster may be newer and not require it
		return nil, errors.New("spec.template: it must be set")
	}
	isPlain := s.ContainerMode == nil && s.Cache == nil && s.WorkFolder == "" && s.ObjectMetadata == nil
	if isPlain && !bytes.Contains(declared, []byte(cacheVolume)) {
		return declared, nil
	}
	if err := cmp.Or(checkCacheMode(pool), s.ObjectMetadata.Check()); err != nil {
		return nil, err
	}
	x, err := newExpansion(pool)
	if err != nil {
		return nil, err
	}
	if err := checkDeclaredVolumes(&x.template.Spec); err != nil {
		return nil, err
	}
	if isPlain {
		return declared, nil
	}
	x.addWorkFolder(s)
	if err := cmp.Or(x.addMode(s.ContainerMode, pool.GetHooksAccount()), x.addCache(s.Cache)); err != nil {
		return nil, err
	}
	x.addMetadata(s)
	expanded, err := json.Marshal(x.content)
	if err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	return expanded, nil
}

// addMode adds the containers and volumes that a container mode needs.
func (x *expansion) addMode(mode *v1alpha1.ContainerMode, account string) error {
	switch {
	case mode == nil:
		return nil
	case isWindows(&x.template.Spec):
		return fmt.Errorf("spec.containerMode: must not be set with os.name windows: neither the Docker daemon nor the runner's hooks run there; remove it")
	case x.work == "":
		return fmt.Errorf("spec.workFolder: must be a path of Linux with spec.containerMode: the containers of jobs mount it by that path")
	case mode.Type == v1alpha1.DockerMode:
		return x.addDocker(mode.Docker)
	}
	return x.addHooks(mode, account)
}

// runnersFolders are the folders of the runner program in runnerFolder. systemFolders belong to the image. Corral
// refuses them as work folder and as mount path of a cache.
var (
	runnersFolders = []string{"_diag", "bin", "externals", "k8s", "k8s-novolume"}
	systemFolders  = []string{"/bin", "/boot", "/dev", "/etc", "/home", runnerFolder, "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var", socketFolder}
	driveOnly      = regexp.MustCompile(`^[A-Za-z]:[^/\\]`)
)

// isTaken reports whether a folder, given as a clean path, is one of systemFolders, or is in one of runnersFolders.
func isTaken(folder string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(folder, runnerFolder+"/"), "/")
	return slices.Contains(systemFolders, folder) || slices.Contains(runnersFolders, name)
}

// workFolder returns the work folder: the value of the template's variable, or else the pool's spec.workFolder or its
// default.
func (x *expansion) workFolder(s *v1alpha1.RunnerPoolSpec) (string, error) {
	folder := s.GetWorkFolder()
	for _, e := range x.declaredRunner().Env {
		if e.Name != workFolderEnv || e.Value == "" {
			continue
		}
		if s.WorkFolder != "" && s.WorkFolder != e.Value {
			return "", fmt.Errorf("spec.workFolder: the template sets %s itself, so this would have no effect; remove one of the two", workFolderEnv)
		}
		folder = e.Value
	}
	switch {
	case driveOnly.MatchString(folder):
		return "", fmt.Errorf("spec.workFolder: must have a slash after the drive; found %s", folder)
	case isTaken(workPath(strings.ReplaceAll(folder, `\`, "/"))):
		return "", fmt.Errorf("spec.workFolder: %s belongs to the runner or its operating system; choose another", folder)
	}
	return folder, nil
}

// workPath returns the path of a work folder in Linux containers; "" for a Windows path.
func workPath(folder string) string {
	switch {
	case strings.ContainsAny(folder, `\:`):
		return ""
	case path.IsAbs(folder):
		return path.Clean(folder)
	}
	return path.Join(runnerFolder, folder)
}

// addWorkFolder sets the variable for the runner's work folder.
func (x *expansion) addWorkFolder(s *v1alpha1.RunnerPoolSpec) {
	if s.WorkFolder != "" {
		add(x.runner(), "env", env(workFolderEnv, s.WorkFolder))
	}
}

// WorkFolder returns the work folder of a template's runners; empty for GitHub's default.
func WorkFolder(template []byte) string {
	_, runner := runnerWith(template, workFolderEnv)
	if runner == nil {
		return ""
	}
	i := slices.IndexFunc(runner.Env, func(e corev1.EnvVar) bool { return e.Name == workFolderEnv })
	return runner.Env[i].Value
}

// addCache adds a volume as a placeholder for the runner's claim.
func (x *expansion) addCache(c *v1alpha1.CacheSpec) error {
	if c == nil {
		return nil
	}
	if isTaken(path.Clean(c.MountPath)) {
		return fmt.Errorf("spec.cache.mountPath: %s belongs to the runner or its operating system; choose another", c.MountPath)
	}
	mounts, _ := x.runner()["volumeMounts"].([]any)
	for i, m := range mounts {
		o, _ := m.(object)
		if at, _ := o["mountPath"].(string); path.Clean(at) == path.Clean(c.MountPath) {
			return fmt.Errorf("spec.cache.mountPath: the template mounts volume %q at %s, too (containers[%d].volumeMounts[%d]); choose another path",
				o["name"], c.MountPath, x.index, i)
		}
	}
	x.runner()["volumeMounts"] = append(mounts, object{"name": cacheVolume, "mountPath": c.MountPath})
	claim := object{"accessModes": []any{c.GetAccessMode()}, "resources": object{"requests": object{"storage": c.Size}}}
	if c.StorageClassName != "" {
		claim["storageClassName"] = c.StorageClassName
	}
	add(x.spec(), "volumes", object{"name": cacheVolume, "ephemeral": object{"volumeClaimTemplate": object{"spec": claim}}})
	return nil
}

// addMetadata adds the labels and annotations of spec.objectMetadata that the template does not set.
func (x *expansion) addMetadata(s *v1alpha1.RunnerPoolSpec) {
	if s.ObjectMetadata == nil {
		return
	}
	setDefault(x.content, "metadata", object{})
	metadata := x.content["metadata"].(object)
	for field, values := range map[string]map[string]string{"labels": s.LabelsOfObjects(), "annotations": s.AnnotationsOfObjects()} {
		for key, value := range values {
			setDefault(metadata, field, object{})
			if _, set := metadata[field].(object)[key]; !set {
				metadata[field].(object)[key] = value
			}
		}
	}
}

// isWindows reports whether pods of a template run on Windows.
func isWindows(spec *corev1.PodSpec) bool { return spec.OS != nil && spec.OS.Name == corev1.Windows }

// checkDeclaredVolumes refuses a volume with the name of the cache volume.
func checkDeclaredVolumes(spec *corev1.PodSpec) error {
	isCache := func(v corev1.Volume) bool { return v.Name == cacheVolume }
	if i := slices.IndexFunc(spec.Volumes, isCache); i >= 0 {
		return fmt.Errorf("spec.template.spec.volumes[%d].name: %s is the volume of spec.cache; choose another name", i, cacheVolume)
	}
	return cmp.Or(checkCacheMounts("containers", spec.Containers, ""), checkCacheMounts("initContainers", spec.InitContainers, ""))
}

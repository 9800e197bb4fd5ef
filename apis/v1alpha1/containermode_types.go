// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"encoding/json"

	"k8s.io/utils/ptr"
)

// Defaults of ContainerMode.
const (
	// DefaultDockerImage is the image of the Docker daemon.
	DefaultDockerImage = "docker:dind"
	// DefaultDockerGroupID is the group that owns the daemon's socket: the group docker of the runner's image.
	DefaultDockerGroupID = 123
	// Suffixes of the name of the ServiceAccount that Corral creates for a pool whose jobs run as pods. Each type has its
	// own account, so that runners of a previous template keep their permissions.
	hooksAccountSuffix, noVolumeAccountSuffix = "-hooks", "-hooks-novolume"
)

// ContainerModeType determines how the containers of jobs run.
// +kubebuilder:validation:Enum=Docker;Kubernetes;KubernetesNoVolume
type ContainerModeType string

const (
	// DockerMode adds a Docker daemon to each runner's pod.
	DockerMode ContainerModeType = "Docker"
	// KubernetesMode makes the runner's container hooks run jobs as pods, on the runner's work volume.
	KubernetesMode ContainerModeType = "Kubernetes"
	// KubernetesNoVolumeMode makes the hooks run jobs as pods, and copy the work folder to and from them.
	KubernetesNoVolumeMode ContainerModeType = "KubernetesNoVolume"
)

// ContainerMode determines how the containers of jobs run. It adds to the template and replaces nothing that the template
// sets.
// +kubebuilder:validation:XValidation:rule="!has(self.docker) || self.type == 'Docker'",message="docker may only be set with type Docker",fieldPath=".docker"
// +kubebuilder:validation:XValidation:rule="!has(self.kubernetes) || self.type != 'Docker'",message="kubernetes may only be set with types Kubernetes and KubernetesNoVolume",fieldPath=".kubernetes"
// +kubebuilder:validation:XValidation:rule="self.type != 'KubernetesNoVolume' || !has(self.kubernetes) || !has(self.kubernetes.workVolumeClaim)",message="workVolumeClaim may only be set with type Kubernetes: KubernetesNoVolume has no volume",fieldPath=".kubernetes.workVolumeClaim"
type ContainerMode struct {
	// type is Docker, for a privileged Docker daemon in each runner's pod, or Kubernetes or KubernetesNoVolume, for jobs
	// that run in separate pods, with or without a volume that they share with their runner.
	// +required
	Type ContainerModeType `json:"type"`

	// docker configures the daemon of type Docker.
	// +optional
	Docker *DockerSpec `json:"docker,omitempty"`

	// kubernetes configures the runner's container hooks.
	// +optional
	Kubernetes *HooksSpec `json:"kubernetes,omitempty"`
}

// DockerSpec configures the Docker daemon in a runner's pod.
type DockerSpec struct {
	// image of the daemon. Default: docker:dind.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:default="docker:dind"
	Image string `json:"image,omitempty"`

	// groupID is the group that owns the daemon's socket. The runner's user must be in that group. Default: 123.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:default=123
	GroupID *int64 `json:"groupID,omitempty"`

	// registryMirrors are URLs that the daemon asks for images of Docker Hub first.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^https?://[^\s$]+$`
	// +listType=atomic
	RegistryMirrors []string `json:"registryMirrors,omitempty"`

	// mtu of the daemon's networks, including networks that jobs create. Default: Docker's, 1500.
	// +optional
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU *int32 `json:"mtu,omitempty"`

	// resources of the daemon's container. The containers of jobs share them.
	// +optional
	Resources *ContainerResources `json:"resources,omitempty"`
}

// ContainerResources are the requests and limits of a container, as in Kubernetes.
type ContainerResources struct {
	// requests by resource, such as cpu and memory.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Requests map[string]Quantity `json:"requests,omitempty"`
	// limits by resource.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Limits map[string]Quantity `json:"limits,omitempty"`
}

// HooksSpec configures the runner's container hooks.
type HooksSpec struct {
	// workVolumeClaim is the claim for the volume that a runner shares with the pods of its job. Required for type
	// Kubernetes, unless the template has a volume named work.
	// +optional
	WorkVolumeClaim *WorkVolumeClaim `json:"workVolumeClaim,omitempty"`

	// hookTemplate is a pod template in a ConfigMap of the pool's namespace, which the hooks merge into the pods of jobs.
	// +optional
	HookTemplate *ConfigMapKeyReference `json:"hookTemplate,omitempty"`
}

// VolumeAccessMode determines how many nodes may use a volume.
// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany
type VolumeAccessMode string

// WorkVolumeClaim is a volume claim that is created for each runner, and deleted with its pod.
type WorkVolumeClaim struct {
	// storageClassName of the volume. Default: the default class of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName string `json:"storageClassName,omitempty"`

	// size of the volume, such as 10Gi.
	// +required
	Size Quantity `json:"size"`

	// accessModes of the volume. Default: ReadWriteOnce.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	AccessModes []VolumeAccessMode `json:"accessModes,omitempty"`
}

// ConfigMapKeyReference names a key of a ConfigMap in the same namespace.
type ConfigMapKeyReference struct {
	// name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key in the ConfigMap.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}

// GetImage returns the image of the daemon.
func (d *DockerSpec) GetImage() string { return cmp.Or(d.Image, DefaultDockerImage) }

// GetGroupID returns the group that owns the daemon's socket.
func (d *DockerSpec) GetGroupID() int64 { return ptr.Deref(d.GroupID, DefaultDockerGroupID) }

// GetAccessModes returns the access modes of the volume.
func (c *WorkVolumeClaim) GetAccessModes() []VolumeAccessMode {
	if len(c.AccessModes) == 0 {
		return []VolumeAccessMode{"ReadWriteOnce"}
	}
	return c.AccessModes
}

// UsesHooks reports whether jobs run in separate pods. The mode may be nil.
func (m *ContainerMode) UsesHooks() bool { return m != nil && m.Type != DockerMode }

// GetHooksAccount returns the name of the ServiceAccount that the pool's runners need for their hooks; empty if the pool
// needs none, or its template names one.
func (p *RunnerPool) GetHooksAccount() string {
	if !p.Spec.ContainerMode.UsesHooks() {
		return ""
	}
	var template struct {
		Spec struct {
			ServiceAccountName string `json:"serviceAccountName"`
			ServiceAccount     string `json:"serviceAccount"` // deprecated name in Kubernetes
		} `json:"spec"`
	}
	_ = json.Unmarshal(p.Spec.Template.Raw, &template) // internal/podspec reports errors
	if template.Spec.ServiceAccountName+template.Spec.ServiceAccount != "" {
		return ""
	}
	if p.Spec.ContainerMode.Type == KubernetesNoVolumeMode {
		return p.Name + noVolumeAccountSuffix
	}
	return p.Name + hooksAccountSuffix
}

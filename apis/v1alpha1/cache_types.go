// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of CacheSpec.
const (
	// DefaultCacheTimeToLive is how long a free claim is kept after a runner last used it.
	DefaultCacheTimeToLive = 7 * 24 * time.Hour
	// DefaultCacheAccessMode makes Kubernetes itself admit only one pod.
	DefaultCacheAccessMode = corev1.ReadWriteOncePod
)

// Labels and annotations of a cache's claims and of pods that mount them.
const (
	// CacheLabel on a claim names the pool that owns the cache.
	CacheLabel = "corral.dev/cache"
	// CacheHolderAnnotation on a claim names the runner that has it, or had it last, as NAME/UID.
	CacheHolderAnnotation = "corral.dev/cache-holder"
	// CacheTakenAnnotation on a claim is when that runner took it, or when a runner that had it for a long time released it.
	CacheTakenAnnotation = "corral.dev/cache-taken"
	// CacheFailedAtAnnotation on a claim is when a runner with it last failed to start. CacheFailedForAnnotation is the
	// cause: Cache if the scheduler named its volume, or Slow if the reason is unknown.
	CacheFailedAtAnnotation  = "corral.dev/cache-failed-at"
	CacheFailedForAnnotation = "corral.dev/cache-failed-for"
	// CacheClaimAnnotation on a pod names the claim that it mounts.
	CacheClaimAnnotation = "corral.dev/cache-claim"
)

// CacheSpec declares volumes that outlive runners. Each is a PersistentVolumeClaim that one runner uses at a time. If the
// runner ended well, the next runner takes it over.
type CacheSpec struct {
	// storageClassName of the claims. Default: the default class of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	StorageClassName string `json:"storageClassName,omitempty"`

	// size of each claim, such as 50Gi.
	// +required
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,5}[MGT]i$`
	Size string `json:"size"`

	// accessMode of the claims. Default: ReadWriteOncePod, with which Kubernetes itself admits only one pod.
	// +optional
	// +kubebuilder:validation:Enum=ReadWriteOncePod;ReadWriteOnce;ReadWriteMany
	// +kubebuilder:default=ReadWriteOncePod
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`

	// mountPath in the container runner.
	// +required
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._@+=-]+)+$`
	// +kubebuilder:validation:XValidation:rule="!('..' in self.split('/'))",message="mountPath must not have .. in it"
	MountPath string `json:"mountPath"`

	// maxClaims is the largest number of claims.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxClaims int32 `json:"maxClaims"`

	// timeToLive is how long a free claim is kept after a runner last used it. Default: 168h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1m')`,message="must be a duration of at least 1m, such as 10m or 168h"
	// +kubebuilder:default="168h"
	TimeToLive *metav1.Duration `json:"timeToLive,omitempty"`

	// onMissing is what a runner does when no claim is available: StartWithout (default), or Wait for one.
	// +optional
	OnMissing CacheMissing `json:"onMissing,omitempty"`
}

// CacheMissing is what a runner does when no claim is available.
// +kubebuilder:validation:Enum=StartWithout;Wait
type CacheMissing string

const (
	// StartWithout starts the runner without a cache.
	StartWithout CacheMissing = "StartWithout"
	// WaitForClaim makes the runner wait for a claim.
	WaitForClaim CacheMissing = "Wait"
)

// CacheStatus counts the claims of a pool's cache.
type CacheStatus struct {
	// claims is the number of claims.
	Claims int32 `json:"claims"`
	// inUse is the number of claims that a runner has.
	InUse int32 `json:"inUse"`
	// lastMiss is the last runner that started without a claim.
	// +optional
	LastMiss *CacheMiss `json:"lastMiss,omitempty"`
}

// CacheMiss is a runner that started without a claim.
type CacheMiss struct {
	// runner that started.
	Runner string `json:"runner"`
	// time at which Corral created its pod.
	Time metav1.Time `json:"time"`
	// reason in one sentence.
	Reason string `json:"reason"`
}

// GetTimeToLive returns timeToLive or its default.
func (s *CacheSpec) GetTimeToLive() time.Duration {
	if s.TimeToLive == nil {
		return DefaultCacheTimeToLive
	}
	return s.TimeToLive.Duration
}

// GetAccessMode returns accessMode or its default.
func (s *CacheSpec) GetAccessMode() corev1.PersistentVolumeAccessMode {
	return cmp.Or(s.AccessMode, DefaultCacheAccessMode)
}

// GetOnMissing returns onMissing or its default.
func (s *CacheSpec) GetOnMissing() CacheMissing { return cmp.Or(s.OnMissing, StartWithout) }

var cacheSize = regexp.MustCompile(`^([1-9][0-9]{0,5})([MGT])i$`)

// Bytes returns the size of each claim in bytes.
func (s *CacheSpec) Bytes() (int64, error) {
	parts := cacheSize.FindStringSubmatch(s.Size)
	if parts == nil {
		return 0, fmt.Errorf("spec.cache.size: must be a number and Mi, Gi or Ti, such as 50Gi; found %q", s.Size)
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	return n << map[string]int{"M": 20, "G": 30, "T": 40}[parts[2]], err
}

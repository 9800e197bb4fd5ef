// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"
)

// If newer CRDs are installed, the API server may store enum values that this version does not know. Corral must not treat
// them as the default: a pool with an unknown mode must not act. Decoding therefore refuses such a value, and the object
// becomes Stalled with a message that names the field.

func decodeWord[T ~string](data []byte, into *T, known ...T) error {
	var word string
	if err := json.Unmarshal(data, &word); err != nil {
		return fmt.Errorf("must be a string, not %.*s", maxValueBytes, data)
	}
	if *into = T(word); word != "" && !slices.Contains(known, *into) {
		return fmt.Errorf("%.*q is not known to this version of Corral, which knows %q: upgrade Corral, or correct the value", maxValueBytes, word, known)
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *CacheMissing) UnmarshalJSON(data []byte) error {
	return decodeWord(data, m, StartWithout, WaitForClaim)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *ContainerModeType) UnmarshalJSON(data []byte) error {
	return decodeWord(data, t, DockerMode, KubernetesMode, KubernetesNoVolumeMode)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Registration) UnmarshalJSON(data []byte) error {
	return decodeWord(data, r, RegisterScaleSet, RegisterREST)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *StopPolicy) UnmarshalJSON(data []byte) error {
	return decodeWord(data, p, StopNone, StopHold, StopDrain)
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *ConnectionKind) UnmarshalJSON(data []byte) error {
	return decodeWord(data, k, KindGitHubConnection)
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *VerificationState) UnmarshalJSON(data []byte) error {
	return decodeWord(data, v, VerificationActive, VerificationPaused)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *ProxyScope) UnmarshalJSON(data []byte) error {
	return decodeWord(data, s, ProxyController, ProxyControllerAndRunners)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *PauseScope) UnmarshalJSON(data []byte) error {
	return decodeWord(data, s, PauseEverything, PauseUpdates)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *PoolMode) UnmarshalJSON(data []byte) error { return decodeWord(data, m, Active, Observe) }

// UnmarshalJSON implements json.Unmarshaler.
func (e *BoostEvent) UnmarshalJSON(data []byte) error {
	return decodeWord(data, e, "check_run", "pull_request", "push")
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *ScalingPolicySelect) UnmarshalJSON(data []byte) error {
	return decodeWord(data, s, SelectMax, SelectMin, SelectDisabled)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *ScalingPolicyType) UnmarshalJSON(data []byte) error {
	return decodeWord(data, t, ScalePods, ScalePercent)
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *RunnerLifetime) UnmarshalJSON(data []byte) error {
	return decodeWord(data, l, LifetimeJob, LifetimePersistent)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *PolicyMode) UnmarshalJSON(data []byte) error {
	return decodeWord(data, m, PolicyEnforce, PolicyAudit)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *LibraryPreset) UnmarshalJSON(data []byte) error { return decodeWord(data, p, PresetTenant) }

// UnmarshalJSON implements json.Unmarshaler.
func (l *PodSecurityLevel) UnmarshalJSON(data []byte) error {
	return decodeWord(data, l, "privileged", "baseline", "restricted")
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *Weekday) UnmarshalJSON(data []byte) error {
	return decodeWord(data, w, "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *CeilingGroup) UnmarshalJSON(data []byte) error {
	return decodeWord(data, g, CeilingAll, CeilingNamespace, CeilingConnection, CeilingLabel)
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *AssignedJobs) UnmarshalJSON(data []byte) error {
	return decodeWord(data, a, AssignedJobsServe, AssignedJobsWait)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *PlaceholderMode) UnmarshalJSON(data []byte) error {
	return decodeWord(data, p, PlaceholderNever, PlaceholderAlways)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *CeilingShare) UnmarshalJSON(data []byte) error {
	return decodeWord(data, s, ShareFirstCome, ShareFair)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *DeletionPolicy) UnmarshalJSON(data []byte) error {
	return decodeWord(data, p, DeletionOrphan, DeletionDelete)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *GitVerifyMode) UnmarshalJSON(data []byte) error {
	return decodeWord(data, m, VerifyHEAD, VerifyTag, VerifyTagAndHEAD)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *UpdateStrategy) UnmarshalJSON(data []byte) error {
	return decodeWord(data, s, RollingUpdate, Recreate, OnIdle)
}

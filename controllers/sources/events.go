// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// event emits an event about a revision of the source, with the metadata that Flux's own controllers send to
// notification-controller.
func (p *pass) event(rev revision, reason, message string) {
	p.EventAbout(p.source, rev.metadata(), corev1.EventTypeNormal, reason, message)
}

// metadata returns the revision under Flux's keys. The keys are prefixed with Corral's group; notification-controller
// removes the prefix.
func (r revision) metadata() map[string]string {
	if r.name == "" {
		return nil
	}
	metadata := map[string]string{metadataKey(eventv1.MetaRevisionKey): r.name}
	if origin := r.origin(); origin != "" {
		metadata[metadataKey(eventv1.MetaOriginRevisionKey)] = origin
	}
	return metadata
}

// outcomeMetadata returns the metadata of the event about a revision's outcome. It makes Flux's commit status providers
// post the outcome.
func (r revision) outcomeMetadata() map[string]string {
	metadata := r.metadata()
	if metadata != nil {
		metadata[metadataKey(eventv1.MetaCommitStatusKey)] = eventv1.MetaCommitStatusUpdateValue
	}
	return metadata
}

func metadataKey(key string) string { return v1alpha1.GroupVersion.Group + "/" + key }

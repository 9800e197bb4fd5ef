// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"maps"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Event records an event about the revision at hand, of which notification-controller is told as Flux's own controllers do.
func (x *run) Event(object runtime.Object, kind, reason, message string) {
	x.EventAbout(object, x.revisionMetadata(), kind, reason, message)
}

// revisionMetadata names the revision under the keys of Flux, in our group, which notification-controller takes off.
func (x *run) revisionMetadata() map[string]string {
	if x.revision == "" {
		return nil
	}
	metadata := map[string]string{metadataKey(eventv1.MetaRevisionKey): x.revision}
	if origin := x.originRevision(); origin != "" {
		metadata[metadataKey(eventv1.MetaOriginRevisionKey)] = origin
	}
	return metadata
}

// outcome is the metadata of the event that tells what became of the revision: Flux's providers of commit statuses post it.
func (x *run) outcome() map[string]string {
	metadata := maps.Clone(x.revisionMetadata())
	if metadata != nil {
		metadata[metadataKey(eventv1.MetaCommitStatusKey)] = eventv1.MetaCommitStatusUpdateValue
	}
	return metadata
}

func metadataKey(key string) string { return v1alpha1.GroupVersion.Group + "/" + key }

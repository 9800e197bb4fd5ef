// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// writtenLife is the maximum time for which Written keeps an object. Caches are usually late by milliseconds, and
// rarely by seconds.
const writtenLife = time.Minute

// Written keeps objects as the API server returned them after a status write, until the cache shows them. Otherwise, a
// reconciliation of an older copy would compare its status with an outdated one, and might not write a change. When the
// process restarts, nothing is lost, because the cache starts with a list.
type Written struct{ objects *cache.Expiring }

// NewWritten returns an empty Written.
func NewWritten() *Written { return &Written{objects: cache.NewExpiring()} }

// keep stores an object as the API server returned it after a write.
func (w *Written) keep(obj Object) {
	if w != nil {
		w.objects.Set(obj.GetUID(), obj, writtenLife)
	}
}

// renew replaces the contents of obj with the stored version, if that is newer.
func (w *Written) renew(obj Object) {
	if w == nil {
		return
	}
	held, ok := w.objects.Get(obj.GetUID())
	if !ok {
		return
	}
	last := held.(Object)
	if order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), last.GetResourceVersion()); err != nil || order >= 0 {
		w.objects.Delete(obj.GetUID())
		return
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(last.DeepCopyObject()).Elem())
}

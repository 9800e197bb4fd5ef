// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// writtenLife is how long an object is held at most. Caches lag by milliseconds, seldom by seconds.
const writtenLife = time.Minute

// Written holds objects as the API server returned them when their status was written, until the cache shows them: a pass on
// an older copy would compare its status with one that isn't there any more, and leave the one that is. Nothing is lost with
// the process, whose cache begins with a list.
type Written struct{ objects *cache.Expiring }

// NewWritten returns a Written that holds nothing.
func NewWritten() *Written { return &Written{objects: cache.NewExpiring()} }

// keep holds an object that was written.
func (w *Written) keep(obj Object) {
	if w != nil {
		w.objects.Set(obj.GetUID(), obj, writtenLife)
	}
}

// renew makes obj what was written of it, if that is newer.
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

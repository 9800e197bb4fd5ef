// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsRefused reports whether the API server rejected a write because of its content or its author. By default, admission
// webhooks reject with the status 400, and ValidatingAdmissionPolicies with 422.
func IsRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// Refusal returns the API server's reasons for rejecting an object, each with the path of the field, prefixed with below. It
// omits the name of the object, because callers use it for objects that Corral named. If the API server named no causes,
// Refusal returns the text of the error.
func Refusal(err error, below string) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return below + ": " + err.Error()
	}
	causes := status.Status().Details.Causes
	fields := make([]string, 0, len(causes))
	for _, cause := range causes {
		fields = append(fields, below+"."+cause.Field+": "+cause.Message)
	}
	return strings.Join(fields, "; ")
}

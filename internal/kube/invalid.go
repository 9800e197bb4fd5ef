// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsRefused reports whether the API server refused a write for what it is, or who makes it. Admission webhooks do so with the status 400 if they
// don't choose another, ValidatingAdmissionPolicies with 422.
func IsRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// Refusal is what the API server says is wrong with an object, each field with its path
// below the given one, without the object's name: for objects that a user did not name.
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

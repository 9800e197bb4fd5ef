// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy evaluates Rego modules that decide which limits apply, which pods may run, and how an update rolls
// out. It is pure, and the only package of the controller and the command line that uses OPA.
//
// A Policy is loaded once (parsed, checked against the decisions' inputs, compiled and prepared) and never changes. A
// Set of policies is evaluated for a pool. The answers of its policies are composed in any order, because each can only
// narrow the result.
package policy

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy lets Rego modules decide: what limits hold, which pods may run, how an
// update rolls out. It is pure, and the only package that knows OPA.
//
// A Policy is loaded once (parsed, checked against the decisions' inputs, compiled,
// prepared) and never changes. A Set of them is asked about pools; it composes answers by
// narrowing, whatever their order.
package policy

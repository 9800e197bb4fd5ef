// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/schedule"
)

// init registers Corral's functions, which rules may call in addition to OPA's.
func init() {
	object := types.NewObject(nil, types.NewDynamicProperty(types.S, types.N))
	names := types.NewArray(nil, types.S)
	register("windows", "Whether windows of the week are open at a time, and until when.", callWindows, types.A, types.N, types.S, types.A)
	register("ceiling", "What a shared ceiling leaves to a pool.", callCeiling, types.A, types.A, types.A, types.A)
	register("distinct", "The different values of a field of a pod's containers and init containers.", callDistinct, types.NewSet(types.A), types.A, types.S, types.A)
	register("missing", "The resources that some container of a pod has no request or limit for.", callMissing, types.NewSet(types.S), types.A, names, names)
	register("images", "The images of a pod's containers, init containers and volumes.", callImages, types.NewSet(types.S), types.A)
	register("image_name", "The full name of an image, as container runtimes complete it; the name as it is if no image can have it.", callImageName, types.S, types.S)
	register("quantity", "A Kubernetes quantity in thousandths.", callQuantity, types.N, types.A)
	register("pod_resources", "What a pod takes of each resource, in thousandths.", callPodResources, object, types.A)
	register("exceeding", "What a pod takes of each resource that it takes too much of, in thousandths.", callExceeding, object, types.A, types.A)
	register("unlisted", "The fields of an object whose values are not among the names that are allowed.", callUnlisted,
		types.NewSet(types.NewArray([]types.Type{types.S, types.S}, nil)), types.A, types.NewArray(nil, types.A))
}

// register adds a function to OPA's compiler and evaluator.
func register(name, description string, call topdown.BuiltinFunc, result types.Type, args ...types.Type) {
	ast.RegisterBuiltin(&ast.Builtin{Name: "corral." + name, Description: description, Decl: types.NewFunction(args, result)})
	topdown.RegisterBuiltinFunc("corral."+name, call)
}

// callWindows implements corral.windows(now, zone, windows), which returns {"open": bool, "until": ns}. A window is
// {"days": […], "from": "HH:MM", "to": "HH:MM"}, as in a pool's schedules. While a window is open, until is the end of
// the open window that ends last, and is absent if an open window never ends. Otherwise until is the beginning of the next
// window, and is absent if there are no windows. The same rule with OPA's own functions would take a hundred times as
// long.
func callWindows(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	now, ok := operands[0].Value.(ast.Number).Int64()
	if !ok {
		return errors.New("now is a whole number of nanoseconds")
	}
	place, err := schedule.Location(string(operands[1].Value.(ast.String)))
	if err != nil {
		return err
	}
	var windows []v1alpha1.WeeklyWindow
	if err := ast.As(operands[2].Value, &windows); err != nil {
		return fmt.Errorf("windows are objects with days, from and to: %w", err)
	}
	isOpen, until, err := schedule.Weekly(place, windows, time.Unix(0, now))
	if err != nil {
		return err
	}
	state := ast.NewObject([2]*ast.Term{ast.InternedTerm("open"), ast.InternedTerm(isOpen)})
	if !until.IsZero() {
		state.Insert(ast.InternedTerm("until"), ast.NewTerm(ast.Number(strconv.FormatInt(until.UnixNano(), 10))))
	}
	return give(ast.NewTerm(state))
}

// textOf returns a string term's text, or "" for any other term.
func textOf(t *ast.Term) string {
	text, _ := t.Value.(ast.String)
	return string(text)
}

// each calls f for the elements of an array or set.
func each(t *ast.Term, f func(*ast.Term)) {
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(f)
	case ast.Set:
		v.Foreach(f)
	}
}

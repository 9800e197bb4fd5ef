// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"
)

// windowsFunction is corral.windows(now, zone, windows): {"open": bool, "until": ns}. Windows are
// {"days": […], "from": "HH:MM", "to": "HH:MM"}, days being all if absent; one that ends before it
// begins goes on past midnight. While one is open, until is when the last of those that are open
// ends, else when the next begins; it is absent if there are no windows. The clock is that of the
// zone: when it is put back, a time counts the first time that it is shown; when it is put
// forward, what was to begin or end in between does so at that moment. OPA's own functions would do, at a
// hundred times the cost.
var windowsFunction = &ast.Builtin{
	Name:        "corral.windows",
	Description: "Whether windows of the week are open at a time, and until when.",
	Decl:        types.NewFunction(types.Args(types.N, types.S, types.A), types.A),
}

func init() {
	ast.RegisterBuiltin(windowsFunction)
	topdown.RegisterBuiltinFunc(windowsFunction.Name, callWindows)
}

// window is a time of the week, in minutes of the day.
type window struct {
	days     [7]bool
	from, to int
}

func callWindows(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	now, ok := operands[0].Value.(ast.Number).Int64()
	if !ok {
		return errors.New("now is a whole number of nanoseconds")
	}
	location, err := locationOf(string(operands[1].Value.(ast.String)))
	if err != nil {
		return err
	}
	list, ok := operands[2].Value.(*ast.Array)
	if !ok {
		return fmt.Errorf("windows are an array, not %s", ast.ValueName(operands[2].Value))
	}
	windows := make([]window, list.Len())
	for i := range windows {
		if windows[i], err = windowOf(list.Elem(i).Value); err != nil {
			return fmt.Errorf("window %d: %w", i, err)
		}
	}
	open, until := windowsAt(time.Unix(0, now).In(location), windows)
	state := ast.NewObject([2]*ast.Term{ast.InternedTerm("open"), ast.InternedTerm(open)})
	if !until.IsZero() {
		state.Insert(ast.InternedTerm("until"), ast.NewTerm(ast.Number(strconv.FormatInt(until.UnixNano(), 10))))
	}
	return give(ast.NewTerm(state))
}

// locations are those asked for so far: to load one takes longer than a decision.
var locations sync.Map

func locationOf(zone string) (*time.Location, error) {
	if known, ok := locations.Load(zone); ok {
		return known.(*time.Location), nil
	}
	if zone == "Local" {
		return nil, errLocal
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %q: use a name of the IANA database, such as Europe/Berlin", clean(zone))
	}
	locations.Store(zone, location)
	return location, nil
}

var weekdays = map[ast.String]time.Weekday{
	"Sunday": time.Sunday, "Monday": time.Monday, "Tuesday": time.Tuesday, "Wednesday": time.Wednesday,
	"Thursday": time.Thursday, "Friday": time.Friday, "Saturday": time.Saturday,
}

var daysKey, fromKey, toKey = ast.StringTerm("days"), ast.StringTerm("from"), ast.StringTerm("to")

func windowOf(v ast.Value) (window, error) {
	o, ok := v.(ast.Object)
	if !ok {
		return window{}, fmt.Errorf("it is an object, not %s", ast.ValueName(v))
	}
	var w window
	var err error
	if w.from, err = minutesOf(o.Get(fromKey)); err != nil {
		return w, fmt.Errorf("from: %w", err)
	}
	if w.to, err = minutesOf(o.Get(toKey)); err != nil {
		return w, fmt.Errorf("to: %w", err)
	}
	days := o.Get(daysKey)
	if days == nil {
		w.days = [7]bool{true, true, true, true, true, true, true}
		return w, nil
	}
	list, ok := days.Value.(*ast.Array)
	if !ok {
		return w, fmt.Errorf("days are an array, not %s", ast.ValueName(days.Value))
	}
	for i := range list.Len() {
		name, _ := list.Elem(i).Value.(ast.String)
		day, known := weekdays[name]
		if !known {
			return w, fmt.Errorf("days: %s is no weekday: use Monday to Sunday", list.Elem(i))
		}
		w.days[day] = true
	}
	return w, nil
}

// minutesOf reads HH:MM, to 24:00.
func minutesOf(t *ast.Term) (int, error) {
	if t == nil {
		return 0, errors.New("it is missing")
	}
	text, ok := t.Value.(ast.String)
	if !ok || len(text) != 5 || text[2] != ':' {
		return 0, fmt.Errorf("it is HH:MM, not %s", clean(t.String()))
	}
	hours, err1 := strconv.ParseUint(string(text[:2]), 10, 8)
	minutes, err2 := strconv.ParseUint(string(text[3:]), 10, 8)
	if err1 != nil || err2 != nil || minutes > 59 || hours*60+minutes > 24*60 {
		return 0, fmt.Errorf("it is a time from 00:00 to 24:00, not %s", t)
	}
	return int(hours*60 + minutes), nil //nolint:gosec // at most 1440
}

// windowsAt says whether a window is open, and until when that is so.
func windowsAt(now time.Time, windows []window) (open bool, until time.Time) {
	var ends, begins time.Time
	for days := -1; days <= 15; days++ {
		if days > 1 && (!ends.IsZero() || !begins.IsZero()) {
			break // nothing later comes before what was found
		}
		for _, w := range windows {
			from, to, is := w.on(now, days)
			switch {
			case !is:
			case !from.After(now) && now.Before(to):
				ends = later(ends, to)
			case from.After(now) && (begins.IsZero() || from.Before(begins)):
				begins = from
			}
		}
	}
	if !ends.IsZero() {
		return true, ends
	}
	return false, begins
}

// on is when the window is that begins so many days from now; false if none does.
func (w *window) on(now time.Time, days int) (from, to time.Time, is bool) {
	year, month, day := now.Year(), now.Month(), now.Day()+days
	if !w.days[time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Weekday()] {
		return from, to, false
	}
	end := w.to
	if w.to <= w.from {
		end += 24 * 60
	}
	from, to = firstShown(now.Location(), year, month, day, w.from), firstShown(now.Location(), year, month, day, end)
	return from, to, from.Before(to)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// firstShown is when a clock in a place first shows a time of a day, or a later one.
func firstShown(place *time.Location, year int, month time.Month, day, minutes int) time.Time {
	shown := time.Date(year, month, day, 0, minutes, 0, 0, time.UTC).Unix()
	offset := func(at int64) int64 {
		_, seconds := time.Unix(at, 0).In(place).Zone()
		return int64(seconds)
	}
	before, after := offset(shown-24*60*60), offset(shown+24*60*60)
	first := int64(math.MaxInt64)
	for _, east := range []int64{before, after} {
		if at := shown - east; offset(at) == east {
			first = min(first, at)
		}
	}
	if first == math.MaxInt64 { // it is never shown: the clock is put forward past it
		jump, _ := time.Unix(shown-before, 0).In(place).ZoneBounds()
		first = jump.Unix()
	}
	return time.Unix(first, 0).In(place)
}

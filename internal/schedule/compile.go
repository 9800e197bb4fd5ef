// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Problem is an error in a schedule.
type Problem struct {
	// Path of the field in a RunnerPool, for example spec.scale.schedules[0].timeZone.
	Path string
	// Message describes the error and what to do.
	Message string
}

// String returns the path and the message.
func (p Problem) String() string { return p.Path + ": " + p.Message }

// Limits of a CronWindow's duration.
const minDuration, maxDuration = time.Minute, 366 * day

// Compile compiles schedules. It returns their errors as problems, and a plan with the other schedules. A caller should
// not act on the plan if there are problems, because a number may be missing from it.
func Compile(schedules []v1alpha1.Schedule) (*Plan, []Problem) {
	p := &Plan{}
	var problems []Problem
	for i := range schedules {
		path := fmt.Sprintf("spec.scale.schedules[%d]", i)
		s, err := compile(&schedules[i])
		if err != nil {
			problems = append(problems, Problem{Path: path + err.path, Message: err.Error()})
			continue
		}
		p.entries = append(p.entries, entry{name: schedules[i].Name, path: path, scale: schedules[i].Scale, span: s})
	}
	return p, problems
}

// fieldError is an error about a field of a schedule.
type fieldError struct {
	path string
	error
}

func compile(s *v1alpha1.Schedule) (span, *fieldError) {
	if s.Once != nil {
		if !s.Once.From.Before(&s.Once.To) {
			return nil, &fieldError{".once", errors.New("from must be before to")}
		}
		return once{s.Once.From.Time, s.Once.To.Time}, nil
	}
	place, err := Location(s.GetTimeZone())
	if err != nil {
		return nil, &fieldError{".timeZone", err}
	}
	switch {
	case s.Weekly != nil:
		return compileWeekly(place, s.Weekly)
	case s.Cron != nil:
		return compileCron(place, s.Cron)
	}
	return nil, &fieldError{"", errors.New("one of weekly, cron and once must be set")}
}

var weekdays = map[v1alpha1.Weekday]time.Weekday{
	"Sunday": time.Sunday, "Monday": time.Monday, "Tuesday": time.Tuesday, "Wednesday": time.Wednesday,
	"Thursday": time.Thursday, "Friday": time.Friday, "Saturday": time.Saturday,
}

// all is a mask of package cron with the bit of every month, day of the month or weekday.
const all = 1<<63 - 1

// Weekly reports whether one of several windows of the week is open at a time. While one is open, until is the latest
// end of the open windows; it is zero if one of them never ends. Otherwise it is the beginning of the next window; it is
// zero if there are no windows.
func Weekly(place *time.Location, windows []v1alpha1.WeeklyWindow, now time.Time) (isOpen bool, until time.Time, err error) {
	var begins, ends time.Time
	endless := false
	for i, w := range windows {
		window, problem := compileWeekly(place, &w)
		if problem != nil {
			return false, time.Time{}, fmt.Errorf("window %d: %s: %w", i, strings.TrimPrefix(problem.path, ".weekly."), problem.error)
		}
		holds, change := window.at(now)
		switch {
		case holds && change.IsZero():
			endless = true
		case holds && change.After(ends):
			ends = change
		case !holds && (begins.IsZero() || change.Before(begins)):
			begins = change
		}
		isOpen = isOpen || holds
	}
	switch {
	case endless:
		return true, time.Time{}, nil
	case isOpen:
		return true, ends, nil
	}
	return false, begins, nil
}

func compileWeekly(place *time.Location, w *v1alpha1.WeeklyWindow) (span, *fieldError) {
	from, err := Minutes(w.From)
	if err == nil && from == 24*60 {
		err = errors.New("it must be before 24:00: use 00:00 of the next day")
	}
	if err != nil {
		return nil, &fieldError{".weekly.from", err}
	}
	to, err := Minutes(w.To)
	if err != nil {
		return nil, &fieldError{".weekly.to", err}
	}
	if to <= from {
		to += 24 * 60
	}
	d := days{month: all, month1: all}
	for i, name := range w.Days {
		weekday, known := weekdays[name]
		if !known {
			return nil, &fieldError{fmt.Sprintf(".weekly.days[%d]", i), fmt.Errorf("%.20q is no weekday: use Monday to Sunday", name)}
		}
		d.week |= 1 << weekday
	}
	if len(w.Days) == 0 {
		d.week = all
	}
	return newRecurrence(place, d, []int{from}, time.Duration(to-from)*time.Minute), nil
}

// parser accepts the five fields of a cron expression. It must not be given a time zone, for which a schedule has a
// separate field.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// star is the bit with which package cron marks a field that is *.
const star = 1 << 63

func compileCron(place *time.Location, c *v1alpha1.CronWindow) (span, *fieldError) {
	if lasts := c.Duration.Duration; lasts < minDuration || lasts > maxDuration {
		return nil, &fieldError{".cron.duration", fmt.Errorf("%s is not from 1m to 8784h, which are 366 days", lasts)}
	}
	spec, err := parseCron(c.Schedule)
	if err != nil {
		return nil, &fieldError{".cron.schedule", err}
	}
	d := days{month: spec.Month &^ star, month1: spec.Dom &^ star, week: spec.Dow &^ star, either: spec.Dom&star == 0 && spec.Dow&star == 0}
	var minutes []int
	for m := range 24 * 60 {
		if spec.Hour&(1<<(m/60)) != 0 && spec.Minute&(1<<(m%60)) != 0 {
			minutes = append(minutes, m)
		}
	}
	if len(minutes) == 0 || d.never() {
		return nil, &fieldError{".cron.schedule", fmt.Errorf("%q never comes: no month has such a day, or a field is empty", c.Schedule)}
	}
	return newRecurrence(place, d, minutes, c.Duration.Duration), nil
}

const cronFields = "write minute hour day-of-month month day-of-week, as in 0 7 * * MON-FRI"

func parseCron(expression string) (*cron.SpecSchedule, error) {
	switch {
	case strings.Contains(expression, "TZ="):
		return nil, errors.New("a zone in it is not read: set the schedule's field timeZone")
	case strings.HasPrefix(expression, "@"):
		return nil, fmt.Errorf("%.40q is an unsupported short form: %s", expression, cronFields)
	case len(expression) > 128:
		return nil, fmt.Errorf("it is longer than 128 characters: %s", cronFields)
	}
	parsed, err := parser.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, cronFields)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%.40q is not read: %s", expression, cronFields)
	}
	return spec, nil
}

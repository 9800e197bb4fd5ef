// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/schedule"
)

// scheduled is what policies are told of a pool: its numbers are those that its schedules make at a time.
func scheduled(pool *v1alpha1.RunnerPool, now schedule.Now) policy.Pool {
	p := policy.PoolOf(pool)
	p.Scale = now.Scale
	return p
}

// scheduledAt is scheduled for one time.
func scheduledAt(pool *v1alpha1.RunnerPool, at time.Time) policy.Pool {
	plan, _ := schedule.Compile(pool.Spec.Scale.Schedules) // checkSchedules told what is wrong
	return scheduled(pool, plan.At(at, pool.Spec.Scale))
}

// checkSchedules tells the first problem of a pool's schedules.
func checkSchedules(pool *v1alpha1.RunnerPool) error {
	if _, problems := schedule.Compile(pool.Spec.Scale.Schedules); len(problems) > 0 {
		return errors.New(problems[0].String())
	}
	return nil
}

// demandProblems are what is wrong with a pool's demand and behavior.
func demandProblems(pool *v1alpha1.RunnerPool) []schedule.Problem {
	var problems []schedule.Problem
	for _, e := range demand.Check(&pool.Spec) {
		problems = append(problems, schedule.Problem{Path: e.Field, Message: e.ErrorBody()})
	}
	return problems
}

// diagnose puts problems of schedules where the pool is declared.
func (p declaredPool) diagnose(problems []schedule.Problem) []v1alpha1.Diagnostic {
	var diagnostics []v1alpha1.Diagnostic
	for _, problem := range problems {
		diagnostics = append(diagnostics, p.object.Diagnostic("."+problem.Path, problem.Message))
	}
	return diagnostics
}

// idleSchedules warns of schedules that have no effect from a time on.
func (w *workspace) idleSchedules(now time.Time) []report.Finding {
	var warnings []report.Finding
	for _, p := range w.pools {
		for _, d := range p.diagnose(p.plan.Warnings(now)) {
			found := warning(ruleSchedule, "Schedule without effect", d)
			found.Subject = p.subject()
			warnings = append(warnings, found)
		}
	}
	return warnings
}

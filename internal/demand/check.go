// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Check returns errors in a pool's demand and behavior that the API server does not detect.
func Check(s *v1alpha1.RunnerPoolSpec) field.ErrorList {
	spec := field.NewPath("spec")
	errs := checkDemand(&s.Demand, spec.Child("demand"))
	if s.Scale.Behavior != nil {
		errs = append(errs, checkRules(s.Scale.Behavior.ScaleUp, spec.Child("scale", "behavior", "scaleUp"))...)
		errs = append(errs, checkRules(s.Scale.Behavior.ScaleDown, spec.Child("scale", "behavior", "scaleDown"))...)
	}
	return errs
}

func checkDemand(d *v1alpha1.DemandSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.New(v1alpha1.DemandScaleSet, v1alpha1.DemandWebhook)
	for i, t := range d.Boosts {
		errs = append(errs, checkName(t.Name, taken, at.Child("boosts").Index(i).Child("name"))...)
	}
	for i := range d.Metrics {
		p := at.Child("metrics").Index(i)
		errs = append(errs, checkName(d.Metrics[i].Name, taken, p.Child("name"))...)
		errs = append(errs, checkMetric(&d.Metrics[i], p)...)
	}
	return errs
}

// checkName returns an error if another source has the same name, because names identify sources.
func checkName(name string, taken sets.Set[string], at *field.Path) field.ErrorList {
	if taken.Has(name) {
		return field.ErrorList{field.Invalid(at, name, "another source of demand has this name: choose a different name")}
	}
	taken.Insert(name)
	return nil
}

func checkMetric(m *v1alpha1.MetricSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case m.Jobs != nil:
		errs = append(errs, checkPositive(m.Jobs.RunnersPerJob, at.Child("jobs", "runnersPerJob"))...)
		for i, r := range m.Jobs.Repositories {
			if !isRepository(r) {
				errs = append(errs, field.Invalid(at.Child("jobs", "repositories").Index(i), r, "write OWNER/NAME, or NAME in the connection's organization"))
			}
		}
	case m.Busy != nil:
		if m.Busy.GetScaleDownThresholdPercent() >= m.Busy.GetScaleUpThresholdPercent() {
			errs = append(errs, field.Invalid(at.Child("busy", "scaleDownThresholdPercent"), m.Busy.GetScaleDownThresholdPercent(), "it must be below scaleUpThresholdPercent"))
		}
	case m.Prometheus != nil:
		errs = append(errs, checkPositive(m.Prometheus.AverageValue, at.Child("prometheus", "averageValue"))...)
		errs = append(errs, checkAge(m.Prometheus.MaxAge, at.Child("prometheus", "maxAge"))...)
	case m.External != nil:
		p := at.Child("external")
		errs = append(errs, checkPositive(m.External.AverageValue, p.Child("averageValue"))...)
		errs = append(errs, checkAge(m.External.MaxAge, p.Child("maxAge"))...)
		if _, err := metav1.LabelSelectorAsSelector(m.External.Selector); err != nil {
			errs = append(errs, field.Invalid(p.Child("selector"), "", err.Error()))
		}
	}
	return errs
}

func checkPositive(q *v1alpha1.Quantity, at *field.Path) field.ErrorList {
	if q == nil || q.Float() > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *q, "it must be above 0")}
}

func checkAge(d *metav1.Duration, at *field.Path) field.ErrorList {
	if d == nil || d.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, d.Duration.String(), "it must be above 0")}
}

func isRepository(s string) bool {
	owner, name, found := strings.Cut(s, "/")
	if !found {
		owner, name = "-", owner
	}
	return owner != "" && name != "" && !strings.Contains(name, "/") && !strings.ContainsAny(s, " \t\r\n?#%\\")
}

func checkRules(r *v1alpha1.ScalingRules, at *field.Path) field.ErrorList {
	if r == nil || r.Tolerance == nil {
		return nil
	}
	if part := r.Tolerance.Float(); !(part >= 0 && part < 1) {
		return field.ErrorList{field.Invalid(at.Child("tolerance"), *r.Tolerance, "it must be 0 or more, and below 1")}
	}
	return nil
}

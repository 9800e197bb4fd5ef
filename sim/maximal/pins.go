// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"fmt"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func constant(v any) Pin { return func(int, float64) any { return v } }

// leftOut is for fields that would make the object inactive.
var leftOut = constant(nil)

// glob is a pattern that is as expensive as possible to match against repeated letters. It matches a text of letters
// only if the text ends with the pattern's last letter, z.
func glob(most int) Pin {
	return func(item int, share float64) any {
		number := fmt.Sprint(item)
		stars := strings.Repeat("a*", max(1, int(share*float64(most))/2)-1)
		return stars[:max(0, min(len(stars), most-len(number)-1))] + number + "z"
	}
}

// repository is such a pattern for OWNER/NAME.
func repository(item int, share float64) any {
	return "*/" + glob(138)(item, share).(string)
}

// source names a demand source. Names are unique within a pool.
func source(kind string) Pin {
	return func(item int, share float64) any {
		return fmt.Sprint(kind, strings.Repeat("a", int(share*60)), item)
	}
}

// poolKinds are used for the pools in turn.
var poolKinds = []map[string]any{
	{}, // with a scale set
	{"registration": string(v1alpha1.RegisterREST)},
	{},
	{"registration": string(v1alpha1.RegisterREST)},
}

// metricKinds are the kinds of metrics of a pool, by the kind of the pool. Jobs, external metrics and Prometheus
// queries are polled as often as allowed.
var metricKinds = [][]string{{"prometheus"}, {"jobs"}, {"external", "prometheus"}, {"busy", "jobs"}}

// oneOf pins alternative fields: each list item has exactly one of them.
func oneOf(pins map[string]Pin, list string, choices, all []string) {
	for _, name := range all {
		at := list + "[]." + name
		chosen := func(item int) bool { return choices[item%len(choices)] == name }
		pins[at] = func(item int, share float64) any {
			if !chosen(item) {
				return nil
			}
			known, err := schemas()
			if err != nil {
				return nil
			}
			s := known["RunnerPool"]
			for _, part := range strings.Split(strings.TrimPrefix(at, "spec."), ".") {
				s = new(s.Properties[strings.TrimSuffix(part, "[]")])
				if strings.HasSuffix(part, "[]") {
					s = s.Items.Schema
				}
			}
			rest := map[string]Pin{}
			for where, pin := range pins {
				if where != at {
					rest[where] = pin
				}
			}
			v := value(s, at, 0, size(share), rest)
			if inner, ok := v.(map[string]any); ok && inner["metricName"] != nil {
				inner["metricName"] = fmt.Sprint(inner["metricName"], item)[1:]
			}
			return v
		}
	}
}

// poolPins are for fields of a pool that must stay meaningful. The pool requests no runners by itself: they would be
// load on the cluster, not on Corral.
func poolPins(kind int) map[string]Pin {
	pins := map[string]Pin{
		"spec.stopPolicy": leftOut, "spec.mode": constant("Active"), "spec.lifetime": leftOut, "spec.persistent": leftOut, "spec.registration": leftOut, "spec.rest": leftOut,
		"spec.scaleSetName": leftOut, "spec.runnerGroup": leftOut, "spec.trust": leftOut, "spec.connectionRef": leftOut,
		"spec.scale.min": constant(int64(0)), "spec.scale.idle": constant(int64(0)), "spec.scale.idlePercentOfBusy": leftOut,
		"spec.scale.schedules[].scale.min": constant(int64(0)), "spec.scale.schedules[].scale.idle": constant(int64(0)),
		"spec.scale.schedules[].timeZone": leftOut, "spec.scale.schedules[].cron.schedule": constant("* * * * *"), "spec.scale.schedules[].cron.duration": constant("1m"),
		"spec.scale.schedules[].once.from":      constant("2026-01-01T00:00:00Z"),
		"spec.scale.behavior.scaleUp.tolerance": constant("0.999999999"), "spec.scale.behavior.scaleDown.tolerance": constant("0.999999999"),
		"spec.demand.metrics[].name": source("m"), "spec.demand.boosts[].name": source("s"), "spec.demand.boosts[].event": constant("check_run"),
		"spec.scale.behavior.scaleUp.selectPolicy": constant("Max"), "spec.scale.behavior.scaleDown.selectPolicy": constant("Max"),
		"spec.update.paused": leftOut, "spec.cache": leftOut, "spec.containerMode": leftOut, "spec.workFolder": leftOut,
		"spec.deadlines": leftOut, "spec.failedPodTTL": constant("24h"), "spec.demand.boosts[].status": leftOut, "spec.demand.boosts[].actions": leftOut,
		"spec.demand.metrics[].interval": constant("10s"), "spec.demand.webhook.holdFor": leftOut,
		"spec.demand.boosts[].names[]": glob(255), "spec.demand.boosts[].branches[]": glob(255),
		"spec.demand.boosts[].repositories[]": repository, "spec.demand.webhook.repositories[]": repository,
		"spec.demand.metrics[].jobs.repositories[]":                           func(item int, share float64) any { return "acme/" + glob(130)(item, share).(string) },
		"spec.demand.metrics[].external.selector.matchExpressions[].operator": constant("NotIn"),
		"spec.demand.metrics[].external.selector.matchExpressions[].key":      func(item int, _ float64) any { return fmt.Sprintf("%s%d", strings.Repeat("a", 60), item) },
		"spec.demand.metrics[].prometheus.query":                              func(_ int, share float64) any { return "sum(a)" + strings.Repeat(" + sum(a)", int(share*4000)/9) },
		"spec.demand.metrics[].prometheus.server":                             constant("main"),
	}
	pins["spec.runnerLabels[]"] = func(item int, share float64) any {
		if item == 0 {
			return Shared
		}
		return fmt.Sprint(strings.Repeat("a", max(1, int(share*252))), item)
	}
	oneOf(pins, "spec.demand.metrics", metricKinds[kind], []string{"busy", "external", "jobs", "prometheus"})
	oneOf(pins, "spec.scale.schedules", []string{"weekly", "cron", "once"}, []string{"weekly", "cron", "once"})
	return pins
}

// connectionPins omit fields that would make the connection unusable.
var connectionPins = map[string]Pin{
	"spec.mount": leftOut, "spec.ca": leftOut, "spec.verification": leftOut, "spec.proxy.http": leftOut, "spec.proxy.https": leftOut, "spec.proxy": leftOut, "spec.webhook": leftOut,
	"spec.allowedNamespaces[]": func(item int, share float64) any {
		return fmt.Sprintf("%s%d", strings.Repeat("a", max(1, int(share*60))), item)
	},
}

var sourcePins = map[string]Pin{
	"spec.suspend": leftOut, "spec.sourceRef": leftOut, "spec.serviceAccountName": leftOut, "spec.commitStatus": leftOut, "spec.dependsOn": leftOut,
	"spec.deletionPolicy": leftOut, "spec.git": leftOut, "spec.timeout": leftOut, "spec.retryInterval": constant("1s"), "spec.path": leftOut,
}

var policyPins = map[string]Pin{
	"spec.library": leftOut, "spec.mode": leftOut, "spec.modulesFrom": leftOut, "spec.modules": leftOut, "spec.data": leftOut, "spec.parameters": leftOut,
	"spec.selector.matchLabels":                 leftOut,
	"spec.selector.matchExpressions[].operator": constant("NotIn"),
	"spec.selector.matchExpressions[].key":      func(item int, _ float64) any { return fmt.Sprintf("%s%d", strings.Repeat("a", 60), item) },
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Defaults of DemandSpec and of the other fields that determine the number of runners.
const (
	// DefaultHoldFor is how long a waiting job counts without another event about it.
	DefaultHoldFor = time.Hour
	// DefaultBoostDuration is how long an event of a boost counts.
	DefaultBoostDuration = 10 * time.Minute
	// DefaultMetricInterval is the time between two reads of a metric.
	DefaultMetricInterval = time.Minute
	// DefaultMetricMaxAge is how old the newest sample of a metric may be.
	DefaultMetricMaxAge = 5 * time.Minute
	// DefaultScaleUpThresholdPercent is the percentage of busy runners at which the number of runners rises.
	DefaultScaleUpThresholdPercent = 80
	// DefaultScaleDownThresholdPercent is the percentage of busy runners below which the number of runners falls.
	DefaultScaleDownThresholdPercent = 30
	// DefaultBusyChange is by how much the number of runners then rises or falls.
	DefaultBusyChange = "30%"
)

// Registration is how a pool's runners are registered on GitHub.
// +kubebuilder:validation:Enum=ScaleSet;REST
type Registration string

const (
	// RegisterScaleSet creates a runner scale set on GitHub. Its sessions report jobs.
	RegisterScaleSet Registration = "ScaleSet"
	// RegisterREST registers ephemeral runners with GitHub's REST API. The sources in spec.demand report jobs.
	RegisterREST Registration = "REST"
)

// RESTSpec configures runners with registration REST.
type RESTSpec struct {
	// placeholder is Never (default), or Always to keep an offline runner registered, for GitHub servers that fail jobs if
	// no runner has their labels.
	// +optional
	// +kubebuilder:default=Never
	Placeholder PlaceholderMode `json:"placeholder,omitempty"`
}

// PlaceholderMode is when Corral registers an offline runner with the pool's labels.
// +kubebuilder:validation:Enum=Never;Always
type PlaceholderMode string

const (
	// PlaceholderNever registers only runners that start.
	PlaceholderNever PlaceholderMode = "Never"
	// PlaceholderAlways keeps an offline runner registered while the pool exists and its stopPolicy is None.
	PlaceholderAlways PlaceholderMode = "Always"
)

// GetPlaceholder returns placeholder or its default.
func (s *RunnerPoolSpec) GetPlaceholder() PlaceholderMode {
	if s.REST == nil {
		return PlaceholderNever
	}
	return cmp.Or(s.REST.Placeholder, PlaceholderNever)
}

// PoolMode determines whether a pool acts.
// +kubebuilder:validation:Enum=Active;Observe
type PoolMode string

const (
	// Active pools start and remove runners.
	Active PoolMode = "Active"
	// Observe pools decide, but do not act.
	Observe PoolMode = "Observe"
)

// DemandSpec lists the sources that report jobs in addition to the scale set's own session.
type DemandSpec struct {
	// webhook counts jobs from GitHub's workflow_job events.
	// +optional
	Webhook *WebhookDemand `json:"webhook,omitempty"`

	// boosts add idle runners for some time after events on GitHub.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Boosts []Boost `json:"boosts,omitempty"`

	// metrics that Corral queries at intervals. If several report jobs, the largest number counts.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Metrics []MetricSource `json:"metrics,omitempty"`
}

// WebhookDemand counts the jobs that workflow_job events report.
type WebhookDemand struct {
	// holdFor is how long a waiting job counts without another event about it. The time stops while the pool is at its max.
	// Default: 1h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1s')`,message="must be a duration of at least 1s, such as 10m or 168h"
	// +kubebuilder:default="1h"
	HoldFor *metav1.Duration `json:"holdFor,omitempty"`

	// repositories whose jobs count, as OWNER/NAME. * matches any characters except /. Default: all repositories that can
	// use the pool's runner group.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=140
	Repositories []string `json:"repositories,omitempty"`
}

// BoostEvent is a kind of event on GitHub.
// +kubebuilder:validation:Enum=check_run;pull_request;push
type BoostEvent string

// Boost adds idle runners for some time after an event.
// +kubebuilder:validation:XValidation:rule="self.event == 'check_run' || !(has(self.status) || has(self.names))",message="status and names may only be set with event check_run"
// +kubebuilder:validation:XValidation:rule="self.event != 'push' || !has(self.actions)",message="actions may not be set with event push, which has none"
type Boost struct {
	// name of the boost.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// event that triggers the boost: check_run, pull_request or push.
	// +required
	Event BoostEvent `json:"event"`
	// actions of the event, such as created or opened. Must not be set with push. Default: any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	Actions []string `json:"actions,omitempty"`
	// status of a check_run: queued, in_progress or completed. Default: any.
	// +optional
	// +kubebuilder:validation:Enum=queued;in_progress;completed
	Status string `json:"status,omitempty"`
	// names of check runs; * matches any characters. Only with check_run. Default: any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=255
	Names []string `json:"names,omitempty"`
	// branches that receive the push, or into which the pull request is to be merged; * matches any characters except /.
	// Default: any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=255
	Branches []string `json:"branches,omitempty"`
	// repositories as OWNER/NAME; * matches any characters except /. Default: any that can use the pool's runner group.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=140
	Repositories []string `json:"repositories,omitempty"`
	// idle runners that each event adds. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1
	Idle *int32 `json:"idle,omitempty"`
	// duration for which an event counts. Default: 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1s')`,message="must be a duration of at least 1s, such as 10m or 168h"
	// +kubebuilder:default="10m"
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// MetricSource is a number that Corral reads at intervals: exactly one of jobs, busy, prometheus and external. While the
// source has no current value, the number of runners does not fall below the last number that the source requested.
// +kubebuilder:validation:XValidation:rule="[has(self.jobs), has(self.busy), has(self.prometheus), has(self.external)].filter(x, x).size() == 1",message="exactly one of jobs, busy, prometheus and external must be set"
// +kubebuilder:validation:XValidation:rule="!(self.name in ['webhook', 'scaleSet'])",message="name must be another than webhook and scaleSet, which are sources of demand of their own"
type MetricSource struct {
	// name of the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// interval between two reads, at least 10s. Default: 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('10s') && duration(self) <= duration('1h')`,message="must be a duration of 10s to 1h, such as 10m"
	// +kubebuilder:default="1m"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// jobs counts queued and running jobs of repositories (ARC's TotalNumberOfQueuedAndInProgressWorkflowRuns).
	// +optional
	Jobs *JobsMetric `json:"jobs,omitempty"`
	// busy keeps a percentage of the runners free (ARC's PercentageRunnersBusy).
	// +optional
	Busy *BusyMetric `json:"busy,omitempty"`
	// prometheus queries a Prometheus server.
	// +optional
	Prometheus *PrometheusMetric `json:"prometheus,omitempty"`
	// external reads the cluster's external metrics API, as a HorizontalPodAutoscaler does.
	// +optional
	External *ExternalMetric `json:"external,omitempty"`
}

// JobsMetric counts the queued and running jobs of repositories that request the pool's labels.
type JobsMetric struct {
	// repositories as OWNER/NAME, or NAME in the connection's organization; * matches any characters except /.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=140
	Repositories []string `json:"repositories"`
	// runnersPerJob is how many runners a job needs: 500m is one runner for two jobs. Default: 1.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be above 0"
	// +kubebuilder:default=1
	RunnersPerJob *Quantity `json:"runnersPerJob,omitempty"`
}

// BusyMetric proposes a total from the percentage of busy runners.
// +kubebuilder:validation:XValidation:rule="self.scaleDownThresholdPercent < self.scaleUpThresholdPercent",message="scaleDownThresholdPercent (30 by default) must be below scaleUpThresholdPercent (80 by default)"
type BusyMetric struct {
	// scaleUpThresholdPercent is the percentage of busy runners at which the number of runners rises. Default: 80.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=80
	ScaleUpThresholdPercent *int32 `json:"scaleUpThresholdPercent,omitempty"`
	// scaleDownThresholdPercent is the percentage of busy runners below which the number of runners falls. Default: 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	// +kubebuilder:default=30
	ScaleDownThresholdPercent *int32 `json:"scaleDownThresholdPercent,omitempty"`
	// scaleUpBy is by how much the number rises, as a number or a percentage of the previous number, rounded up. Default:
	// 30%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || (self >= 0 && self <= 999999)",message="must be 0 to 999999, or a percentage"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}%?$`
	// +kubebuilder:default="30%"
	ScaleUpBy *intstr.IntOrString `json:"scaleUpBy,omitempty"`
	// scaleDownBy is by how much the number falls, as a number or a percentage of the previous number, rounded up. Default:
	// 30%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || (self >= 0 && self <= 999999)",message="must be 0 to 999999, or a percentage"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}%?$`
	// +kubebuilder:default="30%"
	ScaleDownBy *intstr.IntOrString `json:"scaleDownBy,omitempty"`
}

// PrometheusMetric is the value of a query.
type PrometheusMetric struct {
	// server is the name of a server in the controller's --prometheus-server: the administrator decides which servers Corral
	// may query.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Server string `json:"server"`
	// query in PromQL that returns one number. If the result is empty, NaN or older than maxAge, the source has no current
	// value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// averageValue is the part of the value that one runner handles. Default: 1.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be above 0"
	// +kubebuilder:default=1
	AverageValue *Quantity `json:"averageValue,omitempty"`
	// maxAge of the sample. Default: 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1s')`,message="must be a duration of at least 1s, such as 10m or 168h"
	// +kubebuilder:default="5m"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// ExternalMetric is a metric of the cluster's external metrics API.
type ExternalMetric struct {
	// metricName in the API external.metrics.k8s.io.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	MetricName string `json:"metricName"`
	// selector of the metric's series, whose values are added up.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// averageValue is the part of the value that one runner handles. Default: 1.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be above 0"
	// +kubebuilder:default=1
	AverageValue *Quantity `json:"averageValue,omitempty"`
	// maxAge of the values. Default: 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1s')`,message="must be a duration of at least 1s, such as 10m or 168h"
	// +kubebuilder:default="5m"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// Schedule sets numbers of spec.scale for a time: exactly one of weekly, cron and once. If several schedules are active, the
// first one in the list that sets a number applies.
// +kubebuilder:validation:XValidation:rule="[has(self.weekly), has(self.cron), has(self.once)].filter(x, x).size() == 1",message="exactly one of weekly, cron and once must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.once) || !has(self.timeZone)",message="timeZone may not be set with once, whose times have an offset"
type Schedule struct {
	// name of the schedule.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// timeZone of the times in weekly and cron: the name of a zone in the IANA database, such as Europe/Berlin. Default:
	// UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="timeZone must be a name of the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
	// weekly is a window that repeats every week.
	// +optional
	Weekly *WeeklyWindow `json:"weekly,omitempty"`
	// cron is a window that begins according to a cron expression and has a fixed duration.
	// +optional
	Cron *CronWindow `json:"cron,omitempty"`
	// once is a window that does not repeat.
	// +optional
	Once *OnceWindow `json:"once,omitempty"`
	// scale contains the numbers that apply in the window.
	// +required
	Scale ScheduledScale `json:"scale"`
}

// CronWindow begins according to a cron expression.
type CronWindow struct {
	// schedule is the beginning as a cron expression: minute hour day-of-month month day-of-week, for example 0 7 * *
	// MON-FRI.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`
	// duration of the window in local time, at most 366 days.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1m') && duration(self) <= duration('8784h')`,message="must be a duration of 1m to 8784h, such as 10m"
	Duration metav1.Duration `json:"duration"`
}

// OnceWindow is a window that does not repeat.
// +kubebuilder:validation:XValidation:rule="self.from < self.to",message="from must be before to"
type OnceWindow struct {
	// from is the beginning: 2026-12-20T00:00:00Z, or with an offset such as +01:00.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	From metav1.Time `json:"from"`
	// to is the end.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	To metav1.Time `json:"to"`
}

// ScheduledScale contains numbers of spec.scale that apply in a window.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.max) || !has(self.min) || self.min <= self.max",message="min must not be above max"
// +kubebuilder:validation:XValidation:rule="!has(self.max) || !has(self.idle) || self.idle <= self.max",message="idle must not be above max"
type ScheduledScale struct {
	// min is the minimum number of runners in total.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Min *int32 `json:"min,omitempty"`
	// idle is the number of runners to keep free in addition to runners with jobs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Idle *int32 `json:"idle,omitempty"`
	// max is the maximum number of runners in total.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Max *int32 `json:"max,omitempty"`
}

// ScalingBehavior limits how fast the number of runners changes, with the fields of a HorizontalPodAutoscaler.
type ScalingBehavior struct {
	// scaleUp limits how fast the number rises. Default: no limit.
	// +optional
	ScaleUp *ScalingRules `json:"scaleUp,omitempty"`
	// scaleDown limits how fast the number falls. Default: no limit, but idle runners are kept for at least 30 s.
	// +optional
	ScaleDown *ScalingRules `json:"scaleDown,omitempty"`
}

// ScalingPolicySelect determines which of several policies applies.
// +kubebuilder:validation:Enum=Max;Min;Disabled
type ScalingPolicySelect string

const (
	// SelectMax selects the policy that allows the largest change.
	SelectMax ScalingPolicySelect = "Max"
	// SelectMin selects the policy that allows the smallest change.
	SelectMin ScalingPolicySelect = "Min"
	// SelectDisabled allows no change in this direction.
	SelectDisabled ScalingPolicySelect = "Disabled"
)

// ScalingRules limit changes in one direction.
type ScalingRules struct {
	// stabilizationWindowSeconds is how far Corral looks back at earlier desired numbers. The number of runners rises only
	// to the smallest desired number in this period, and falls only to the largest. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	// +kubebuilder:default=0
	StabilizationWindowSeconds *int32 `json:"stabilizationWindowSeconds,omitempty"`
	// selectPolicy is Max (default), Min or Disabled.
	// +optional
	// +kubebuilder:default=Max
	SelectPolicy ScalingPolicySelect `json:"selectPolicy,omitempty"`
	// policies limit the change in a period. Default: any change.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Policies []ScalingPolicy `json:"policies,omitempty"`
	// tolerance is the change that is ignored, as a fraction of the previous number: 0.1 is a tenth. Default: 0.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('0'))",message="must not be below 0"
	Tolerance *Quantity `json:"tolerance,omitempty"`
}

// ScalingPolicyType is the unit of a ScalingPolicy.
// +kubebuilder:validation:Enum=Pods;Percent
type ScalingPolicyType string

const (
	// ScalePods counts runners.
	ScalePods ScalingPolicyType = "Pods"
	// ScalePercent is a percentage of the number at the beginning of the period.
	ScalePercent ScalingPolicyType = "Percent"
)

// ScalingPolicy limits the change in a period.
type ScalingPolicy struct {
	// type is Pods or Percent.
	// +required
	Type ScalingPolicyType `json:"type"`
	// value of the change.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Value int32 `json:"value"`
	// periodSeconds is the length of the period.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1800
	PeriodSeconds int32 `json:"periodSeconds"`
}

// Names of sources of demand that no metric and no boost may have.
const (
	// DemandScaleSet is the scale set's own session, or its statistics.
	DemandScaleSet = "scaleSet"
	// DemandWebhook is GitHub's workflow_job events.
	DemandWebhook = "webhook"
)

// DemandStatus is the result of one source of demand.
type DemandStatus struct {
	// name of the source: scaleSet, webhook, or the name of a metric or boost.
	Name string `json:"name"`
	// jobs that it reports.
	// +optional
	Jobs *int32 `json:"jobs,omitempty"`
	// total of runners that it proposes.
	// +optional
	Total *int32 `json:"total,omitempty"`
	// idle runners that it requests.
	// +optional
	Idle *int32 `json:"idle,omitempty"`
	// reason in one sentence.
	Reason string `json:"reason"`
	// stale is true while the source has no current value, and its last value is used.
	// +optional
	Stale bool `json:"stale,omitempty"`
}

// ScheduleStatus contains the numbers of spec.scale after the active schedules are applied.
type ScheduleStatus struct {
	// active lists the names of the active schedules.
	// +optional
	// +listType=atomic
	Active []string `json:"active,omitempty"`
	// min in force, before policies are applied.
	Min int32 `json:"min"`
	// idle in force.
	Idle int32 `json:"idle"`
	// max in force; absent if the pool has no max.
	// +optional
	Max *int32 `json:"max,omitempty"`
	// next is the time of the next change.
	// +optional
	Next *metav1.Time `json:"next,omitempty"`
}

// Observation compares what a pool in the mode Observe would do with the runners that exist.
type Observation struct {
	// desired number of runners that it would have.
	Desired int32 `json:"desired"`
	// actual number of runners on GitHub with the pool's labels, from any creator.
	// +optional
	Actual *int32 `json:"actual,omitempty"`
	// busy is the number of these runners that have a job.
	// +optional
	Busy *int32 `json:"busy,omitempty"`
	// difference between the two numbers, in one sentence.
	Difference string `json:"difference"`
}

// GetHoldFor returns how long a waiting job counts without another event about it.
func (w *WebhookDemand) GetHoldFor() time.Duration { return durationOr(w.HoldFor, DefaultHoldFor) }

// GetIdle returns how many idle runners an event adds.
func (s *Boost) GetIdle() int32 { return ptr.Deref(s.Idle, 1) }

// GetDuration returns how long an event counts.
func (s *Boost) GetDuration() time.Duration {
	return durationOr(s.Duration, DefaultBoostDuration)
}

// GetInterval returns the time between two reads.
func (m *MetricSource) GetInterval() time.Duration {
	return durationOr(m.Interval, DefaultMetricInterval)
}

// GetScaleUpThresholdPercent returns the percentage of busy runners at which the number of runners rises.
func (b *BusyMetric) GetScaleUpThresholdPercent() int32 {
	return ptr.Deref(b.ScaleUpThresholdPercent, DefaultScaleUpThresholdPercent)
}

// GetScaleDownThresholdPercent returns the percentage of busy runners below which the number of runners falls.
func (b *BusyMetric) GetScaleDownThresholdPercent() int32 {
	return ptr.Deref(b.ScaleDownThresholdPercent, DefaultScaleDownThresholdPercent)
}

// GetScaleUpBy returns by how much the number of runners rises.
func (b *BusyMetric) GetScaleUpBy() intstr.IntOrString { return changeOr(b.ScaleUpBy) }

// GetScaleDownBy returns by how much the number of runners falls.
func (b *BusyMetric) GetScaleDownBy() intstr.IntOrString { return changeOr(b.ScaleDownBy) }

func changeOr(by *intstr.IntOrString) intstr.IntOrString {
	return ptr.Deref(by, intstr.FromString(DefaultBusyChange))
}

// GetMaxAge returns how old a sample may be.
func (p *PrometheusMetric) GetMaxAge() time.Duration {
	return durationOr(p.MaxAge, DefaultMetricMaxAge)
}

// GetMaxAge returns how old a value may be.
func (e *ExternalMetric) GetMaxAge() time.Duration { return durationOr(e.MaxAge, DefaultMetricMaxAge) }

// GetTimeZone returns the time zone of weekly and cron.
func (s *Schedule) GetTimeZone() string { return cmp.Or(s.TimeZone, "UTC") }

// GetRegistration returns how the runners are registered.
func (s *RunnerPoolSpec) GetRegistration() Registration {
	return cmp.Or(s.Registration, RegisterScaleSet)
}

// GetMode returns whether the pool acts.
func (s *RunnerPoolSpec) GetMode() PoolMode { return cmp.Or(s.Mode, Active) }

// IsREST reports whether the runners register through GitHub's REST API, without a scale set.
func (s *RunnerPoolSpec) IsREST() bool { return s.GetRegistration() == RegisterREST }

// Observes reports whether the pool decides without acting.
func (s *RunnerPoolSpec) Observes() bool { return s.GetMode() == Observe }

func durationOr(d *metav1.Duration, fallback time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	return d.Duration
}

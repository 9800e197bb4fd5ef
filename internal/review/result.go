// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// APIVersion and Kind are the API version and the kind of a Result in JSON. New fields may be added within a version, but
// the meaning of a field does not change.
const (
	APIVersion = "review.corral.dev/v1alpha1"
	Kind       = "Review"
)

// Result contains the effects of a change of definitions and policies. Equal inputs give equal results.
type Result struct {
	// APIVersion and Kind have the values of the constants with these names.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Compared
	// Verdict on the head.
	Verdict Verdict `json:"verdict"`
	// Failed is true if the review itself failed. The diagnostics of the head contain the reason, and the other fields are
	// empty.
	Failed bool `json:"failed,omitempty"`
	// Worst lists the consequences of the change, the most severe first. See the function Worst.
	Worst []Consequence `json:"worst,omitempty"`
	// Warnings about the change as a whole, in complete sentences: for example, changes that a PoolSource refuses unless
	// its spec allows them.
	Warnings []string `json:"warnings,omitempty"`
	// Summary counts pools.
	Summary Summary `json:"summary"`
	// Pools lists pools that change, whose policy results change, or that policies deny. The most far-reaching changes come
	// first, and pools with equal changes are sorted by namespace and name. Other pools are only counted in Summary.
	Pools []Pool `json:"pools,omitempty"`
	OtherChanges
	// Cost of all pools together; nil without prices.
	Cost *Cost `json:"cost,omitempty"`
	// Recorded contains the results of the policies for recorded decisions; nil unless requested.
	Recorded *Recorded `json:"recorded,omitempty"`
	// Diff is a unified diff of the objects as they are applied; empty unless requested.
	Diff string `json:"diff,omitempty"`
	// Notes describe assumptions and unknowns of this review, in complete sentences.
	Notes []string `json:"notes,omitempty"`
	// freed lists the consequences for pools to which a policy or limits no longer apply.
	freed []Consequence
}

// OtherChanges contains the changes of connections, policies and prices, and changes that concern several pools.
type OtherChanges struct {
	// Connections that change, by namespace and name.
	Connections []Connection `json:"connections,omitempty"`
	// Policies that change, by reference.
	Policies []PolicyChange `json:"policies,omitempty"`
	// Overlaps are pairs of pools that compete for the same jobs at the head, but not at the base.
	Overlaps []Overlap `json:"overlaps,omitempty"`
	// Prices describes the changes of the price file; nil if there are none.
	Prices *PriceChange `json:"prices,omitempty"`
}

// Compared contains the two sides and the time of a review.
type Compared struct {
	Base Revision `json:"base"`
	Head Revision `json:"head"`
	Moment
}

// Moment is the time at which policies and schedules are evaluated, and the time zone of the controller.
type Moment struct {
	At   time.Time `json:"at"`
	Zone string    `json:"zone"`
}

func (m Moment) utc() Moment { return Moment{m.At.UTC(), m.Zone} }

// Verdict is the outcome of a review.
type Verdict string

// Verdicts.
const (
	// Allowed means that no policy denies a pool of the head.
	Allowed Verdict = "Allowed"
	// Denied means that a policy denies a pool of the head, or fails.
	Denied Verdict = "Denied"
	// Broken means that the head cannot be applied, that its prices cannot be read, or that the review failed. The head's
	// diagnostics contain the reason.
	Broken Verdict = "Broken"
)

// Revision is one side of a review.
type Revision struct {
	// Name of the revision or folder.
	Name string `json:"name"`
	// Digest of all policies; empty if there are none.
	Digest string `json:"digest,omitempty"`
	// Pools is the number of pools that the revision declares.
	Pools int `json:"pools"`
	// Policies that were evaluated, by reference.
	Policies []string `json:"policies,omitempty"`
	// Diagnostics are the reasons why the revision cannot be applied. A base with diagnostics is not compared with the head.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
	// Unpriced is true if the prices of the revision cannot be read. If this is the head, its diagnostics are about the prices,
	// and its definitions are valid.
	Unpriced bool `json:"unpriced,omitempty"`
}

// Summary counts the pools of a review.
type Summary struct {
	// Added, Deleted, Renamed and Changed count pools whose declaration changes. Moved counts pools that only changes of
	// policies affect, and Same all other pools of the head.
	Added   int `json:"added"`
	Deleted int `json:"deleted"`
	Renamed int `json:"renamed"`
	Changed int `json:"changed"`
	Moved   int `json:"moved"`
	Same    int `json:"same"`
	// Uncompared counts all pools of the head if the base cannot be compared.
	Uncompared int `json:"uncompared,omitempty"`
	// Denied counts the pools of the head that a policy denies or for which a policy fails. NewlyDenied counts only the pools
	// with a denial or failure that the base does not have.
	Denied      int `json:"denied"`
	NewlyDenied int `json:"newlyDenied"`
	// Warnings is the number of policy warnings at the head.
	Warnings int `json:"warnings"`
	// MaxBefore and MaxAfter are the sums of the max in force of all pools whose runners policies allow, at the base and at the
	// head. 2147483647 means unbounded.
	MaxBefore int64 `json:"maxBefore"`
	MaxAfter  int64 `json:"maxAfter"`
	// Classes counts changed pools by the most far-reaching class of their change.
	Classes map[Class]int `json:"classes,omitempty"`
}

// Comparable reports whether the base can be compared with the head. If not, the review only describes the head.
func (r *Result) Comparable() bool { return len(r.Base.Diagnostics) == 0 }

// HasChanges reports whether the head differs from the base, or whether this is unknown because the base cannot be compared.
func (r *Result) HasChanges() bool {
	s := r.Summary
	return !r.Comparable() || s.Added+s.Deleted+s.Renamed+s.Changed+s.Moved+len(r.Connections)+len(r.Policies) > 0 || r.Prices != nil
}

// Failed returns the result of a review that failed with an error.
func Failed(err error, at Moment) *Result {
	head := Revision{Diagnostics: []v1alpha1.Diagnostic{{Message: err.Error()}}}
	return (&Result{APIVersion: APIVersion, Kind: Kind, Failed: true, Compared: Compared{Head: head, Moment: at.utc()}}).broken()
}

// broken sets the verdict Broken, and the consequences that follow from it.
func (r *Result) broken() *Result {
	r.Verdict = Broken
	r.Worst = Worst(r)
	return r
}

// Problem describes why a broken head cannot be reviewed.
func (r *Result) Problem() string { return effects.Phrase("problem", r) }

// Change is the kind of change of a pool, connection or policy.
type Change string

// Changes.
const (
	Added   Change = "Added"
	Deleted Change = "Deleted"
	// Renamed means that the pool has another name or namespace at the head. The cluster treats it as a different pool.
	Renamed Change = "Renamed"
	Changed Change = "Changed"
	// Moved means that the declaration of the pool is unchanged, but that the results of policies change: now, at a later time,
	// or when the template changes.
	Moved Change = "Moved"
	// Same means that neither the pool nor the results of policies change. Such a pool is listed only if a policy denies it.
	Same Change = "Same"
	// Uncompared means that the base cannot be compared, so the change of the pool is unknown.
	Uncompared Change = "Uncompared"
)

// changeOf returns how an object changes. base or head is nil if that side does not have the object.
func changeOf[T any](base, head *T) Change {
	return map[[2]bool]Change{{false, true}: Added, {true, false}: Deleted, {true, true}: Changed}[[2]bool{base != nil, head != nil}]
}

// Class describes how far-reaching the change of a pool or connection is.
type Class string

// Classes, the most far-reaching first.
const (
	// Replaced means that the pool becomes a different one on GitHub. Jobs that wait for its scale set are lost.
	Replaced Class = "Replaced"
	// ReroutesJobs means that jobs go to other pools. Existing runners continue.
	ReroutesJobs Class = "ReroutesJobs"
	// ReplacesRunners means that the template changes. Runners with the previous template are replaced when they have no
	// job.
	ReplacesRunners Class = "ReplacesRunners"
	// OtherLimits means that the limits of the pool or its sources of demand change.
	OtherLimits Class = "Limits"
	// Settings means none of the above: for example deadlines, the update strategy, trust, metadata, or a default of
	// spec.containerMode that is now written out.
	Settings Class = "Settings"
)

// Text returns the name of the class in reports.
func (c Class) Text() string {
	return map[Class]string{Replaced: "replaced", ReroutesJobs: "reroutes jobs", ReplacesRunners: "replaces runners", OtherLimits: "limits", Settings: "settings"}[c]
}

var classes = []Class{Replaced, ReroutesJobs, ReplacesRunners, OtherLimits, Settings}

// Place is a position in a file. The file name is relative to the folder of the review.
type Place struct {
	// File is the name of the file, with slashes; empty if unknown.
	File string `json:"file,omitempty"`
	// Line and Column count from 1; 0 if unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

// String formats a place as FILE:LINE.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Pool describes the change of one pool.
type Pool struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Change    Change `json:"change"`
	// Former is the NAMESPACE/NAME of a renamed pool at the base.
	Former string `json:"former,omitempty"`
	// Classes of the change, the most far-reaching first. A pool with the change Moved or Same has none.
	Classes []Class `json:"classes,omitempty"`
	// LosesJobs is true if the change loses the jobs that wait for the pool.
	LosesJobs bool `json:"losesJobs,omitempty"`
	// Effects describe what the change does to jobs and runners, one sentence each.
	Effects []string `json:"effects,omitempty"`
	Places
	// Fields that differ, at most 200; none for pools that are added or deleted. The most far-reaching classes come first.
	// Within a class, metadata comes last, and only the first 10 fields of a map or list come before other fields. MoreFields is
	// the number of fields that are not listed. Classes and Effects take all fields into account.
	Fields     []FieldChange `json:"fields,omitempty"`
	MoreFields int           `json:"moreFields,omitempty"`
	InForce
	// Findings are the results of policies about the pool's pod on both sides, and the policies that fail, the most severe
	// first.
	Findings []Finding `json:"findings,omitempty"`
	// Rollout describes how the new template of a changed pool rolls out; nil if the template does not change, or if policies
	// deny it or fail.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Cost per month; nil if the price of the runners is unknown.
	Cost *Cost `json:"cost,omitempty"`
	// Live is the state in the cluster; nil unless requested.
	Live *Live `json:"live,omitempty"`
}

// InForce contains the limits on each side. A field is nil if the side does not have the pool.
type InForce struct {
	Before *Limits `json:"before,omitempty"`
	After  *Limits `json:"after,omitempty"`
	// mostBefore and mostAfter are the maximum numbers of runners, which are 0 if policies deny the pool.
	mostBefore, mostAfter int64
}

// Places contains the places where something is declared at the base and at the head. A field is nil if the side does not
// declare it.
type Places struct {
	BaseAt *Place `json:"baseAt,omitempty"`
	HeadAt *Place `json:"headAt,omitempty"`
}

// Class returns the most far-reaching class; empty if there is none.
func (p *Pool) Class() Class {
	if len(p.Classes) == 0 {
		return ""
	}
	return p.Classes[0]
}

// FieldChange is a field that differs.
type FieldChange struct {
	// Path, for example spec.template.spec.containers[0].image.
	Path string `json:"path"`
	// Before and After are the values in JSON, shortened if they are long. They include defaults, and are nil if the side does
	// not have the field.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Places of the values. If a place is unknown, it is the place of the enclosing field or object.
	Places
	// Class of the field.
	Class Class `json:"class,omitempty"`
}

// Limits contains a pool's limits before and after policies apply, under the assumption that all pools are idle.
type Limits struct {
	// Declared limits of the pool. A max of 2147483647 means unbounded.
	Declared policy.Scale `json:"declared"`
	// Scheduled limits at the time of the review; nil if no schedule is active.
	Scheduled *Span `json:"scheduled,omitempty"`
	// Effective limits; nil if a policy failed, because the previous limits then stay in force.
	Effective *policy.Scale `json:"effective,omitempty"`
	inForce   int32         // the max in force, also if a policy failed
	// AssignedJobs is Wait if accepted jobs beyond max wait, and otherwise empty.
	AssignedJobs v1alpha1.AssignedJobs `json:"assignedJobs,omitempty"`
	// Until is when policies request the next evaluation; zero if they request none.
	Until time.Time `json:"until,omitzero"`
	// Bounds are the rules that changed a limit. Their file names are relative to the folder of the review, as in Place.
	Bounds []v1alpha1.LimitBound `json:"bounds,omitempty"`
	// Conflicts describes rules that lost against other rules or had no effect.
	Conflicts []string `json:"conflicts,omitempty"`
	// Audit describes what policies in audit mode would change.
	Audit []string `json:"audit,omitempty"`
}

// Level of a finding.
type Level string

// Levels, the most severe first.
const (
	// Failure means that a policy cannot be evaluated, or its answer is invalid.
	Failure Level = "Failure"
	// Deny means that the pod must not run.
	Deny Level = "Deny"
	// Warn is a warning, which has no effect on the pod.
	Warn Level = "Warn"
	// Audit is a finding of a policy in audit mode, which has no effect.
	Audit Level = "Audit"
)

// State of a finding.
type State string

// States.
const (
	// New means that only the head has the finding.
	New State = "New"
	// Still means that both sides have the finding.
	Still State = "Still"
	// Fixed means that only the base has the finding.
	Fixed State = "Fixed"
	// Unknown means that the head has the finding, and that the base cannot be compared.
	Unknown State = "Unknown"
)

// Finding is a policy result about a pool.
type Finding struct {
	Level Level `json:"level"`
	State State `json:"state"`
	// PolicyFinding is the finding of a rule. Failures and audit findings have only a message and a policy.
	v1alpha1.PolicyFinding `json:",inline"`
	// At is where the field Path is declared, or else the place of the pool. For a Fixed finding, it is the place at the base.
	At Place `json:"at"`
}

// Rollout describes how a change of the template rolls out, according to the pool and its policies.
type Rollout struct {
	// Hold is true if a policy holds the rollout or fails, or if spec.update.paused of the pool is true.
	Hold bool `json:"hold,omitempty"`
	// Strategy is the declared strategy, or a stricter one.
	Strategy v1alpha1.UpdateStrategy `json:"strategy"`
	// MaxSurge, MaxUnavailable and Canary are the declared values, restricted by policies. Percentages refer to the effective
	// max, or to 1 if there is none.
	MaxSurge       int32 `json:"maxSurge"`
	MaxUnavailable int32 `json:"maxUnavailable"`
	Canary         int32 `json:"canary"`
	// Reasons why the rollout is restricted or on hold.
	Reasons []string `json:"reasons,omitempty"`
}

// Span is a period in which the limits do not change. It ends where the next one begins.
type Span struct {
	From time.Time `json:"from"`
	// Active lists the names of the active schedules.
	Active []string `json:"active,omitempty"`
	// Scale contains the resulting limits.
	Scale policy.Scale `json:"scale"`
}

// Cost is the cost of runners per month.
type Cost struct {
	Currency string `json:"currency"`
	// Before and After are the costs on each side; nil if the side does not have the pool, or if the price of its runners is
	// unknown.
	Before *Amounts `json:"before,omitempty"`
	After  *Amounts `json:"after,omitempty"`
	// Rate is the price of one runner per hour at the head, or at the base if the head has none. It is 0 for several pools
	// together.
	Rate float64 `json:"rate,omitempty"`
	// Basis describes what the rate is based on.
	Basis string `json:"basis,omitempty"`
	// Unknown lists the pools without a rate at the head as NAMESPACE/NAME, and UnknownBefore those at the base. The amounts of
	// that side do not include these pools. Both lists are set only for several pools together.
	Unknown       []string `json:"unknown,omitempty"`
	UnknownBefore []string `json:"unknownBefore,omitempty"`
	// Unbounded lists the pools without a max at the head, and UnboundedBefore those at the base. The maximum amount of that
	// side does not include these pools. Both lists are set only for several pools together.
	Unbounded       []string `json:"unbounded,omitempty"`
	UnboundedBefore []string `json:"unboundedBefore,omitempty"`
	// Frequent lists the pools whose cost is unknown on a side because their limits change too often in the week. The amounts of
	// both sides do not include these pools. The list is set only for several pools together.
	Frequent []string `json:"frequent,omitempty"`
	// Assumptions behind the amounts, in complete sentences. They are set only for several pools together.
	Assumptions []string `json:"assumptions,omitempty"`
}

// PriceChange is a changed price file.
type PriceChange struct {
	// BaseFile and HeadFile are the names of the file on each side; empty if the side has no price file.
	BaseFile string `json:"baseFile,omitempty"`
	HeadFile string `json:"headFile,omitempty"`
	// Fields that differ, at most 200, for example perVCPUHour. Their class is empty. MoreFields is the number of the others.
	Fields     []FieldChange `json:"fields,omitempty"`
	MoreFields int           `json:"moreFields,omitempty"`
}

// count returns the number of fields that differ.
func (p *PriceChange) count() int { return len(p.Fields) + p.MoreFields }

// Amounts contains costs per month, for the limits in force.
type Amounts struct {
	// Min is the cost without jobs.
	Min float64 `json:"min"`
	// Typical is the cost of a typical number of runners, which the price file sets or recorded decisions show.
	Typical float64 `json:"typical"`
	// Max is the cost if the pool always has its maximum number of runners; nil for a pool without a max.
	Max *float64 `json:"max,omitempty"`
}

// Connection is a GitHubConnection that changes.
type Connection struct {
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Change    Change   `json:"change"`
	Class     Class    `json:"class"`
	Effects   []string `json:"effects,omitempty"`
	Places
	// Fields that differ, at most 200, and the number of the others, as in Pool.
	Fields     []FieldChange `json:"fields,omitempty"`
	MoreFields int           `json:"moreFields,omitempty"`
	// Pools of the head that use the connection, as NAMESPACE/NAME. For a deleted connection, the list includes pools of the
	// base.
	Pools []string `json:"pools,omitempty"`
}

// PolicyChange is a policy that changes.
type PolicyChange struct {
	// Policy as KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	Change Change `json:"change"`
	// What lists the changed parts: rules (modules and the library), data, parameters, mode, selector (of pools), and rules in
	// ConfigMaps (the references, because a review does not read ConfigMaps).
	What []string `json:"what,omitempty"`
	// Fields of data, parameters, library and selector that differ, for example data.grants.ads: at most 200, data last. Their
	// class is empty. MoreFields is the number of the others.
	Fields     []FieldChange `json:"fields,omitempty"`
	MoreFields int           `json:"moreFields,omitempty"`
	// Before and After contain the state on each side; nil if the side does not have the policy.
	Before *PolicyState `json:"before,omitempty"`
	After  *PolicyState `json:"after,omitempty"`
	Places
	// Moved lists the pools whose declaration is unchanged and which the policy may affect, as NAMESPACE/NAME: it applies to
	// them, and their policy results change.
	Moved []string `json:"moved,omitempty"`
}

// PolicyState is the state of a policy on one side.
type PolicyState struct {
	Mode   v1alpha1.PolicyMode `json:"mode"`
	Digest string              `json:"digest"`
	// Pools is the number of pools to which the policy applies.
	Pools int `json:"pools"`
}

// Overlap is a pair of pools that compete for the same jobs.
type Overlap struct {
	// Pool and Other as NAMESPACE/NAME. Pool is the pool that changed.
	Pool  string `json:"pool"`
	Other string `json:"other"`
	// At is where the labels of Pool are declared.
	At Place `json:"at"`
	// Labels are the labels of a job that matches both pools.
	Labels []string `json:"labels"`
	// Message describes the overlap in a sentence that names Other and Labels.
	Message string `json:"message"`
}

// Live is the state of a pool in the cluster.
type Live struct {
	// Namespace of the cluster in which the review looked for the pool.
	Namespace string `json:"namespace,omitempty"`
	// Absent is true if the cluster has no such pool in the namespace.
	Absent bool `json:"absent,omitempty"`
	// Differs names up to 10 fields in which the pool in the cluster differs from the base.
	Differs []string `json:"differs,omitempty"`
	// Jobs, Runners and Decision are copied from the pool's status.
	Jobs     *int32                `json:"jobs,omitempty"`
	Runners  v1alpha1.RunnerCounts `json:"runners"`
	Decision *v1alpha1.Decision    `json:"decision,omitempty"`
	// Effects describe what the change does to the running pool, one sentence each.
	Effects []string `json:"effects,omitempty"`
}

// Recorded contains the results of evaluating policies on recorded decisions.
type Recorded struct {
	// Decisions is the number of evaluated decisions. Skipped is the number of decisions that could not be read, that are not
	// about a pool, or that are about a pool to which no policy applies.
	Decisions int `json:"decisions"`
	Skipped   int `json:"skipped"`
	// Unbound is the number of skipped decisions about pools to which no policy applies.
	Unbound int `json:"unbound,omitempty"`
	// From and To are the times of the first and the last evaluated decision.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Differ is the number of decisions on which the policies of the head and the base differ. Changed contains the first
	// 200 of them, by time.
	Differ  int              `json:"differ"`
	Changed []RecordedChange `json:"changed,omitempty"`
	// Drifted is the number of decisions for which the base's policies give an answer that differs from the recorded one,
	// because other policies were used at the time or because some of their input is missing in the log.
	Drifted int `json:"drifted"`
}

// RecordedChange is a recorded decision that the head's policies change.
type RecordedChange struct {
	Time time.Time `json:"time"`
	// Pool is the NAMESPACE/NAME of the pool, and Decision is the kind of decision: scaling, template or update.
	Pool     string `json:"pool"`
	Decision string `json:"decision"`
	// ID of the decision in the log.
	ID string `json:"id,omitempty"`
	// Recorded describes the recorded outcome, and Before and After the outcomes with the policies of the base and of the head.
	Recorded string `json:"recorded,omitempty"`
	Before   string `json:"before"`
	After    string `json:"after"`
	// Rules that determine the outcome at the head.
	Rules []v1alpha1.RuleReference `json:"rules,omitempty"`
	// Waiting is how many more jobs would have waited with the policies of the head.
	Waiting int32 `json:"waiting,omitempty"`
	// Inexact is true if some of the input is missing in the log: values of annotations and environment variables, or members of
	// large groups.
	Inexact bool `json:"inexact,omitempty"`
}

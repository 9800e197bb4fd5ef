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

// APIVersion and Kind of a Result as JSON. Fields may be added within a version; none changes its meaning.
const (
	APIVersion = "review.corral.dev/v1alpha1"
	Kind       = "Review"
)

// Result is what a change of definitions and policies would do. Equal inputs give equal results.
type Result struct {
	// APIVersion and Kind are the constants above.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Compared
	// Verdict on the head.
	Verdict Verdict `json:"verdict"`
	// Failed is true if the review failed itself: the head's diagnostics say why, and nothing else is known.
	Failed bool `json:"failed,omitempty"`
	// Worst tells what it comes to, the worst first; see Worst.
	Worst []Consequence `json:"worst,omitempty"`
	// Warnings of the change as a whole, in whole sentences: what sync refuses until it is allowed there.
	Warnings []string `json:"warnings,omitempty"`
	// Summary counts.
	Summary Summary `json:"summary"`
	// Pools that change in any way, that policies judge otherwise, or that they deny: the most far-reaching change first,
	// then by namespace and name. Others are only counted.
	Pools []Pool `json:"pools,omitempty"`
	Besides
	// Cost of all pools together; nil without prices.
	Cost *Cost `json:"cost,omitempty"`
	// Recorded is what the head's policies make of decisions that were recorded; nil unless they were asked for.
	Recorded *Recorded `json:"recorded,omitempty"`
	// Diff is a unified diff of the objects as they are applied; empty unless it was asked for.
	Diff string `json:"diff,omitempty"`
	// Notes tell what this review can't know or takes for granted, in whole sentences.
	Notes []string `json:"notes,omitempty"`
	// freed are pools that policies no longer bind, with what they are free of as text.
	freed []Consequence
}

// Besides is what changes beside pools, or between them.
type Besides struct {
	// Connections that change, by namespace and name.
	Connections []Connection `json:"connections,omitempty"`
	// Policies that change, by reference.
	Policies []PolicyChange `json:"policies,omitempty"`
	// Overlaps are pairs of pools that the same jobs are for at the head and weren't at the base.
	Overlaps []Overlap `json:"overlaps,omitempty"`
	// Prices that differ; nil if none does.
	Prices *PriceChange `json:"prices,omitempty"`
}

// Compared are the two sides of a review, and the moment that it is for.
type Compared struct {
	Base Revision `json:"base"`
	Head Revision `json:"head"`
	Moment
}

// Moment is the time that policies and schedules are asked about, in the zone of the controller.
type Moment struct {
	At   time.Time `json:"at"`
	Zone string    `json:"zone"`
}

func (m Moment) utc() Moment { return Moment{m.At.UTC(), m.Zone} }

// Verdict is what a review comes to.
type Verdict string

// Verdicts.
const (
	// Allowed is a head that no policy denies.
	Allowed Verdict = "Allowed"
	// Denied is a head with a pool that a policy denies, or with a policy that fails.
	Denied Verdict = "Denied"
	// Broken is a head that can't be applied, or whose prices can't be read: its diagnostics say why.
	Broken Verdict = "Broken"
)

// Revision is one side of a review.
type Revision struct {
	// Name of the revision or folder.
	Name string `json:"name"`
	// Digest of all policies; empty without any.
	Digest string `json:"digest,omitempty"`
	// Pools that it declares.
	Pools int `json:"pools"`
	// Policies that were asked, by reference.
	Policies []string `json:"policies,omitempty"`
	// Diagnostics say why it can't be applied. A base that can't isn't compared.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics,omitempty"`
	// Unpriced is true when its prices can't be read. At the head, the diagnostics are about them then, and the definitions are well.
	Unpriced bool `json:"unpriced,omitempty"`
}

// Summary counts pools of a review.
type Summary struct {
	// Added, Deleted, Renamed and Changed pools; Moved are those that only policies judge otherwise; Same the rest of the head's.
	Added   int `json:"added"`
	Deleted int `json:"deleted"`
	Renamed int `json:"renamed"`
	Changed int `json:"changed"`
	Moved   int `json:"moved"`
	Same    int `json:"same"`
	// Uncompared are all of the head's, if the base can't be compared.
	Uncompared int `json:"uncompared,omitempty"`
	// Denied are the head's pools that a policy denies or that a policy fails for; NewlyDenied those of them with a denial or failure
	// that they don't have at the base.
	Denied      int `json:"denied"`
	NewlyDenied int `json:"newlyDenied"`
	// Warnings of policies at the head.
	Warnings int `json:"warnings"`
	// MaxBefore and MaxAfter are the max in force of all pools together that policies let start runners; 2147483647 stands for none.
	MaxBefore int64 `json:"maxBefore"`
	MaxAfter  int64 `json:"maxAfter"`
	// Classes counts changed pools by the first of their classes.
	Classes map[Class]int `json:"classes,omitempty"`
}

// Comparable says whether there is a base to compare with. With none, only what the head alone shows is told.
func (r *Result) Comparable() bool { return len(r.Base.Diagnostics) == 0 }

// HasChanges says whether the head is anything else than the base, or may be.
func (r *Result) HasChanges() bool {
	s := r.Summary
	return !r.Comparable() || s.Added+s.Deleted+s.Renamed+s.Changed+s.Moved+len(r.Connections)+len(r.Policies) > 0 || r.Prices != nil
}

// Failed is the result of a review that failed itself: nothing is known but why.
func Failed(err error, at Moment) *Result {
	head := Revision{Diagnostics: []v1alpha1.Diagnostic{{Message: err.Error()}}}
	return (&Result{APIVersion: APIVersion, Kind: Kind, Failed: true, Compared: Compared{Head: head, Moment: at.utc()}}).broken()
}

// broken is a result of which nothing else is known.
func (r *Result) broken() *Result {
	r.Verdict = Broken
	r.Worst = Worst(r)
	return r
}

// Problem says in words what keeps a broken head from being reviewed.
func (r *Result) Problem() string { return effects.Phrase("problem", r) }

// Change says what becomes of a pool, connection or policy.
type Change string

// Changes.
const (
	Added   Change = "Added"
	Deleted Change = "Deleted"
	// Renamed is a pool that goes on under another name or namespace; to the cluster it is another pool.
	Renamed Change = "Renamed"
	Changed Change = "Changed"
	// Moved is a pool that is declared as before, and that policies judge otherwise: now, later in the week, or when its template changes.
	Moved Change = "Moved"
	// Same is a pool that is listed because a policy denies it, as before.
	Same Change = "Same"
	// Uncompared is a pool of the head whose base can't be compared.
	Uncompared Change = "Uncompared"
)

// changeOf returns how an object changes. It is nil on a side that does not have it.
func changeOf[T any](base, head *T) Change {
	return map[[2]bool]Change{{false, true}: Added, {true, false}: Deleted, {true, true}: Changed}[[2]bool{base != nil, head != nil}]
}

// Class says how far a change of a pool reaches.
type Class string

// Classes, the most far-reaching first.
const (
	// Replaced is a pool that becomes another one on GitHub: jobs that wait for its scale set are lost.
	Replaced Class = "Replaced"
	// ReroutesJobs sends jobs elsewhere than before: runners go on.
	ReroutesJobs Class = "ReroutesJobs"
	// ReplacesRunners is another template: those of the former template are replaced when they have no job.
	ReplacesRunners Class = "ReplacesRunners"
	// OtherLimits change how many runners there are, and nothing else.
	OtherLimits Class = "Limits"
	// Settings changes none of these: deadlines, how updates roll out, trust, metadata, a default of spec.containerMode that is spelled out.
	Settings Class = "Settings"
)

// Text is the class as people read it.
func (c Class) Text() string {
	return map[Class]string{Replaced: "replaced", ReroutesJobs: "reroutes jobs", ReplacesRunners: "replaces runners", OtherLimits: "limits", Settings: "settings"}[c]
}

var classes = []Class{Replaced, ReroutesJobs, ReplacesRunners, OtherLimits, Settings}

// Place is a place in a file, as seen from where the review's files are named from.
type Place struct {
	// File with slashes; empty if unknown.
	File string `json:"file,omitempty"`
	// Line and Column count from 1; 0 if unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

// String writes a place as FILE:LINE.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Pool is what becomes of one pool.
type Pool struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Change    Change `json:"change"`
	// Former is NAMESPACE/NAME of a renamed pool at the base.
	Former string `json:"former,omitempty"`
	// Classes of the change, the most far-reaching first; none of a pool that is only moved, or the same.
	Classes []Class `json:"classes,omitempty"`
	// LosesJobs is true when jobs that wait for it are lost.
	LosesJobs bool `json:"losesJobs,omitempty"`
	// Effects say in a sentence each what the change does to jobs and runners.
	Effects []string `json:"effects,omitempty"`
	Places
	// Fields that differ, in the order of their paths; none of pools that are added or deleted.
	Fields []FieldChange `json:"fields,omitempty"`
	InForce
	// Findings are what policies say of its pod at either side, and which policies fail: the worst first.
	Findings []Finding `json:"findings,omitempty"`
	// Rollout is how a change of the template rolls out; nil if it does not change, or is denied.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Cost by month; nil without prices.
	Cost *Cost `json:"cost,omitempty"`
	// Live is what runs now; nil unless it was asked for.
	Live *Live `json:"live,omitempty"`
}

// InForce has the limits at either side; nil on one that has none.
type InForce struct {
	Before *Limits `json:"before,omitempty"`
	After  *Limits `json:"after,omitempty"`
	// mostBefore and mostAfter are how many runners there may be.
	mostBefore, mostAfter int64
}

// Places are where something is declared at the base and at the head; nil on a side that has none.
type Places struct {
	BaseAt *Place `json:"baseAt,omitempty"`
	HeadAt *Place `json:"headAt,omitempty"`
}

// Class is the most far-reaching of the classes; empty if there is none.
func (p *Pool) Class() Class {
	if len(p.Classes) == 0 {
		return ""
	}
	return p.Classes[0]
}

// FieldChange is a field that differs.
type FieldChange struct {
	// Path as spec.template.spec.containers[0].image.
	Path string `json:"path"`
	// Before and After are the values as JSON, shortened if they are long; nil on a side that doesn't declare it.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Places of the values, or else of what holds them.
	Places
	// Class that the field is of.
	Class Class `json:"class,omitempty"`
}

// Limits are a pool's numbers before and after policy, of an idle pool in an idle fleet.
type Limits struct {
	// Declared numbers of the pool by itself. A max of 2147483647 stands for none.
	Declared policy.Scale `json:"declared"`
	// Scheduled are the numbers that schedules make of them at the time; nil if none holds.
	Scheduled *Span `json:"scheduled,omitempty"`
	// Effective numbers; nil when a policy failed: then those before stay in force.
	Effective *policy.Scale `json:"effective,omitempty"`
	inForce   int32         // max, also when a policy failed
	// AssignedJobs is Wait if jobs accepted beyond max wait, and otherwise absent.
	AssignedJobs v1alpha1.AssignedJobs `json:"assignedJobs,omitempty"`
	// Until is when policies want to be asked again.
	Until time.Time `json:"until,omitzero"`
	// Bounds are the rules that made a number another. Files of rules are named as those of definitions.
	Bounds []v1alpha1.LimitBound `json:"bounds,omitempty"`
	// Conflicts tell of rules that lost against others.
	Conflicts []string `json:"conflicts,omitempty"`
	// Audit tells what audited policies would change.
	Audit []string `json:"audit,omitempty"`
}

// Level of a finding.
type Level string

// Levels, the worst first.
const (
	// Failure is a policy that can't be asked, or has no valid answer.
	Failure Level = "Failure"
	// Deny keeps the pod from running.
	Deny Level = "Deny"
	// Warn keeps nothing.
	Warn Level = "Warn"
	// Audit is what an audited policy would say.
	Audit Level = "Audit"
)

// State of a finding.
type State string

// States.
const (
	// New is at the head alone.
	New State = "New"
	// Still is at both sides.
	Still State = "Still"
	// Fixed is at the base alone.
	Fixed State = "Fixed"
	// Unknown is at the head, and the base can't be compared.
	Unknown State = "Unknown"
)

// Finding is what a policy says of a pool.
type Finding struct {
	Level Level `json:"level"`
	State State `json:"state"`
	// PolicyFinding is what the rule says. Of a failure or an audit, only its message and the policy.
	v1alpha1.PolicyFinding `json:",inline"`
	// At is where the field of Path is declared, or else the pool; of a fixed one, at the base.
	At Place `json:"at"`
}

// Rollout is how a change of the template rolls out, by what the pool declares and policies say.
type Rollout struct {
	// Hold is true when a policy holds it, or the pool declares it paused.
	Hold bool `json:"hold,omitempty"`
	// Strategy, as declared or more careful.
	Strategy v1alpha1.UpdateStrategy `json:"strategy"`
	// MaxSurge, MaxUnavailable and Canary are what the pool declares, of as many runners as its max, or 1 if it has none, and policies
	// allow.
	MaxSurge       int32 `json:"maxSurge"`
	MaxUnavailable int32 `json:"maxUnavailable"`
	Canary         int32 `json:"canary"`
	// Reasons of the rules that bound it.
	Reasons []string `json:"reasons,omitempty"`
}

// Span is a time with the same numbers.
type Span struct {
	From time.Time `json:"from"`
	// Active are the names of the schedules that hold.
	Active []string `json:"active,omitempty"`
	// Scale that they make.
	Scale policy.Scale `json:"scale"`
}

// Cost is what runners cost by month.
type Cost struct {
	Currency string `json:"currency"`
	// Before and After; nil on a side that has none.
	Before *Amounts `json:"before,omitempty"`
	After  *Amounts `json:"after,omitempty"`
	// Rate by runner and hour at the head, or else at the base; 0 of several pools together.
	Rate float64 `json:"rate,omitempty"`
	// Basis says in words what the rate is made of.
	Basis string `json:"basis,omitempty"`
	// Unknown are the pools without a rate at the head, NAMESPACE/NAME, and UnknownBefore those at the base: they aren't in the
	// amounts of that side. Only of several pools together.
	Unknown       []string `json:"unknown,omitempty"`
	UnknownBefore []string `json:"unknownBefore,omitempty"`
	// Unbounded are the pools without a max at the head, and UnboundedBefore those at the base, which the largest amount of that side
	// leaves out. Only of several pools together.
	Unbounded       []string `json:"unbounded,omitempty"`
	UnboundedBefore []string `json:"unboundedBefore,omitempty"`
	// Assumptions that the amounts rest on, in whole sentences. Only of several pools together.
	Assumptions []string `json:"assumptions,omitempty"`
}

// PriceChange is a price file that changes.
type PriceChange struct {
	// BaseFile and HeadFile name the file; empty on a side without one.
	BaseFile string `json:"baseFile,omitempty"`
	HeadFile string `json:"headFile,omitempty"`
	// Fields that differ, as perVCPUHour; their class is empty.
	Fields []FieldChange `json:"fields,omitempty"`
}

// Amounts by month, of the effective limits.
type Amounts struct {
	// Min is without any job.
	Min float64 `json:"min"`
	// Typical is between the two, as the price file or recorded decisions say.
	Typical float64 `json:"typical"`
	// Max is with as many runners as may be, always; nil of a pool without a max.
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
	Fields []FieldChange `json:"fields,omitempty"`
	// Pools of the head that use it, NAMESPACE/NAME; of a deleted one, those of the base too.
	Pools []string `json:"pools,omitempty"`
}

// PolicyChange is a policy that changes.
type PolicyChange struct {
	// Policy as KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	Change Change `json:"change"`
	// What changed: rules (modules, and what else they are made of), data, parameters, mode, selector (of pools), or rules in ConfigMaps
	// (which ConfigMaps; they aren't read).
	What []string `json:"what,omitempty"`
	// Fields of data, parameters, library and selector that differ, as data.grants.ads; their class is empty.
	Fields []FieldChange `json:"fields,omitempty"`
	// Before and After are its mode and digest.
	Before *PolicyState `json:"before,omitempty"`
	After  *PolicyState `json:"after,omitempty"`
	Places
	// Moved are the pools that are declared as before and judged otherwise, NAMESPACE/NAME, and that it binds at either side.
	Moved []string `json:"moved,omitempty"`
}

// PolicyState is a policy on one side.
type PolicyState struct {
	Mode   v1alpha1.PolicyMode `json:"mode"`
	Digest string              `json:"digest"`
	// Pools that it binds.
	Pools int `json:"pools"`
}

// Overlap is a pair of pools that the same jobs are for.
type Overlap struct {
	// Pool and Other, NAMESPACE/NAME. Pool is the one that changed.
	Pool  string `json:"pool"`
	Other string `json:"other"`
	// At is where the labels of Pool are declared.
	At Place `json:"at"`
	// Labels that a job may name to be for either.
	Labels []string `json:"labels"`
	// Message says that, in a whole sentence that names Other and Labels.
	Message string `json:"message"`
}

// Live is what runs in the cluster of a pool.
type Live struct {
	// Namespace that was asked for it.
	Namespace string `json:"namespace,omitempty"`
	// Absent is true when the cluster has no such pool there.
	Absent bool `json:"absent,omitempty"`
	// Differs names the fields in which the cluster's pool is not the base's, at most 10.
	Differs []string `json:"differs,omitempty"`
	// Jobs, Runners and the Decision that holds, as in status.
	Jobs     *int32                `json:"jobs,omitempty"`
	Runners  v1alpha1.RunnerCounts `json:"runners"`
	Decision *v1alpha1.Decision    `json:"decision,omitempty"`
	// Effects say in a sentence each what the change does to what runs.
	Effects []string `json:"effects,omitempty"`
}

// Recorded is what policies make of recorded decisions.
type Recorded struct {
	// Decisions that were judged, and those Skipped because they aren't understood or are of pools that none of the policies binds.
	Decisions int `json:"decisions"`
	Skipped   int `json:"skipped"`
	// Unbound counts those of Skipped that are of pools that none of the policies binds.
	Unbound int `json:"unbound,omitempty"`
	// From and To are the times of the first and last decision.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Differ counts the decisions that the head's policies would have taken otherwise than the base's; Changed are the first 200 of
	// them, by time.
	Differ  int              `json:"differ"`
	Changed []RecordedChange `json:"changed,omitempty"`
	// Drifted counts the decisions that already the base's policies take otherwise than was recorded: others were asked then, or what
	// they read isn't in the log.
	Drifted int `json:"drifted"`
}

// RecordedChange is a recorded decision that would have been another.
type RecordedChange struct {
	Time time.Time `json:"time"`
	// Pool NAMESPACE/NAME, and the decision: scaling, template or update.
	Pool     string `json:"pool"`
	Decision string `json:"decision"`
	// ID of the decision in the log.
	ID string `json:"id,omitempty"`
	// Recorded, Before and After are the outcomes in words: as recorded, by the base's and by the head's policies.
	Recorded string `json:"recorded,omitempty"`
	Before   string `json:"before"`
	After    string `json:"after"`
	// Rules that make the head's outcome.
	Rules []v1alpha1.RuleReference `json:"rules,omitempty"`
	// Waiting is how many of the jobs at the time would have waited because of it.
	Waiting int32 `json:"waiting,omitempty"`
	// Inexact is true when the log leaves out something of the input: values of annotations and variables, members of large groups.
	Inexact bool `json:"inexact,omitempty"`
}

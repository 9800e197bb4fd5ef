// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// label of a scale set in GitHub's format.
type label struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type runnerSetting struct {
	DisableUpdate bool `json:"disableUpdate,omitempty"`
}

// Statistics of a scale set, as its queue sends them.
type Statistics struct {
	// Available is the number of jobs that are offered and not acquired.
	Available int `json:"totalAvailableJobs"`
	// Acquired is the number of jobs that are acquired and not assigned.
	Acquired int `json:"totalAcquiredJobs"`
	// Assigned is the number of assigned and uncompleted jobs, including running ones.
	Assigned int `json:"totalAssignedJobs"`
	Running  int `json:"totalRunningJobs"`
	// Registered is the number of runners, online or not.
	Registered int `json:"totalRegisteredRunners"`
	Busy       int `json:"totalBusyRunners"`
	// Idle is the number of runners that are online without a job.
	Idle int `json:"totalIdleRunners"`
}

// scaleSetBody is a scale set in GitHub's format, in both directions.
type scaleSetBody struct {
	ID            int            `json:"id"`
	Name          string         `json:"name"`
	GroupID       int            `json:"runnerGroupId"`
	GroupName     string         `json:"runnerGroupName"`
	Labels        []label        `json:"labels"`
	RunnerSetting *runnerSetting `json:"RunnerSetting"`
	CreatedOn     time.Time      `json:"createdOn"`
	JITConfigURL  string         `json:"runnerJitConfigUrl"`
	Statistics    *Statistics    `json:"statistics"`
}

type scaleSet struct {
	id      int
	scope   *scope
	name    string
	group   *group
	labels  []label
	setting runnerSetting
	created time.Time
	stats   Statistics
	// idleUncounted is Options.IdleUncounted.
	idleUncounted bool

	session  *session
	capacity int // as announced by the last poll
	queue    queue
	waiting  []*job // assigned, and no runner has it
	free     runnerQueue
	gone     bool

	// solo is the runner, if the REST API registered it: for the dispatcher such a runner is a separate scale set for
	// one job. It has no id, is in no index, and its queue is nil.
	solo *runner
}

// scaleSetIndex holds the scale sets. ordered is sorted by id, for a stable choice if several match a job.
type scaleSetIndex struct {
	byID    map[int]*scaleSet
	ordered []*scaleSet
	last    int
}

func newScaleSetIndex() scaleSetIndex { return scaleSetIndex{byID: map[int]*scaleSet{}} }

func (x *scaleSetIndex) find(sc *scope, groupID int, name string) *scaleSet {
	for _, ss := range x.ordered {
		if ss.scope == sc && ss.group.id == groupID && strings.EqualFold(ss.name, name) {
			return ss
		}
	}
	return nil
}

// queuedFor returns how many queued jobs the scale set would accept.
func (s *Server) queuedFor(ss *scaleSet) int {
	n := 0
	for _, b := range s.jobs.buckets {
		if b.head() != nil && s.accepts(ss, b.repo, b.labels) {
			n += len(b.jobs)
		}
	}
	return n
}

// shown returns the statistics for clients.
func (s *Server) shown(ss *scaleSet) Statistics {
	stats := ss.stats
	if s.opts.Mode == AutoAssign {
		stats.Available += s.queuedFor(ss)
	}
	if ss.idleUncounted {
		stats.Idle = 0
	}
	return stats
}

func (s *Server) body(ss *scaleSet, base string) scaleSetBody {
	stats, setting := s.shown(ss), ss.setting
	return scaleSetBody{
		ID: ss.id, Name: ss.name, GroupID: ss.group.id, GroupName: ss.group.Name,
		Labels: slices.Clone(ss.labels), RunnerSetting: &setting, CreatedOn: ss.created, Statistics: &stats,
		JITConfigURL: fmt.Sprintf("%s%s/%d/_apis/runtime/runnerscalesets/%d/generatejitconfig",
			base, servicePrefix, ss.scope.tenant, ss.id),
	}
}

func scaleSetNotFound(id int) answer {
	return serviceError(http.StatusNotFound, "RunnerScaleSetNotFoundException",
		"No runner scale set found with identifier %d.", id)
}

func groupNotFound(id int) answer {
	return serviceError(http.StatusNotFound, "RunnerGroupNotFoundException", "No runner group found with identifier %d.", id)
}

func (s *Server) findScaleSet(r *http.Request, sc *scope) answer {
	query := r.URL.Query()
	groupID, err := strconv.Atoi(query.Get("runnerGroupId"))
	if err != nil {
		return serviceError(http.StatusBadRequest, "ArgumentException", "runnerGroupId is not a number")
	}
	var found []scaleSetBody
	if ss := s.scaleSets.find(sc, groupID, query.Get("name")); ss != nil {
		found = append(found, s.body(ss, s.baseURL(r)))
	}
	return ok(listOf(found))
}

func (s *Server) getScaleSet(r *http.Request, ss *scaleSet) answer {
	body := s.body(ss, s.baseURL(r))
	if alteration(r) == AlterNoStatistics {
		body.Statistics = nil
	}
	return ok(body)
}

func (s *Server) createScaleSet(r *http.Request, sc *scope) answer {
	var body scaleSetBody
	if err := decode(r, &body); err != nil || body.Name == "" || len(body.Labels) == 0 || !areLabels(body.Labels) {
		return serviceError(http.StatusBadRequest, "ArgumentException", "A runner scale set needs a name, and labels with a type and a name.")
	}
	if body.GroupID == 0 {
		body.GroupID = 1
	}
	g := sc.group(body.GroupID)
	if g == nil {
		return groupNotFound(body.GroupID)
	}
	if s.scaleSets.find(sc, g.id, body.Name) != nil {
		return scaleSetExists(body.Name)
	}
	s.scaleSets.last++
	ss := &scaleSet{
		idleUncounted: s.opts.IdleUncounted,
		id:            s.scaleSets.last, scope: sc, name: body.Name, group: g, created: s.now().UTC(), queue: newQueue(),
	}
	ss.labels = s.keptLabels(body.Labels)
	if body.RunnerSetting != nil {
		ss.setting = *body.RunnerSetting
	}
	s.scaleSets.byID[ss.id] = ss
	s.scaleSets.ordered = append(s.scaleSets.ordered, ss)
	return ok(s.body(ss, s.baseURL(r)))
}

func scaleSetExists(name string) answer {
	return serviceError(http.StatusConflict, "RunnerScaleSetExistsException",
		"A runner scale set with name %s already exists in this runner group.", name)
}

// areLabels reports whether labels are complete. The official client always adds a type.
func areLabels(labels []label) bool {
	return !slices.ContainsFunc(labels, func(l label) bool { return l.Type == "" || l.Name == "" })
}

func (s *Server) keptLabels(labels []label) []label {
	if s.opts.SingleLabel {
		labels = labels[:1]
	}
	return slices.Clone(labels)
}

func (s *Server) updateScaleSet(r *http.Request, ss *scaleSet) answer {
	var body scaleSetBody
	if err := decode(r, &body); err != nil || !areLabels(body.Labels) {
		return serviceError(http.StatusBadRequest, "ArgumentException", "The body is not a runner scale set.")
	}
	name, g := ss.name, ss.group
	if body.Name != "" {
		name = body.Name
	}
	if body.GroupID != 0 {
		if g = ss.scope.group(body.GroupID); g == nil {
			return groupNotFound(body.GroupID)
		}
	}
	if other := s.scaleSets.find(ss.scope, g.id, name); other != nil && other != ss {
		return scaleSetExists(name)
	}
	ss.name, ss.group = name, g
	if len(body.Labels) > 0 && !s.opts.LabelsFixed {
		ss.labels = s.keptLabels(body.Labels)
	}
	if body.RunnerSetting != nil {
		ss.setting = *body.RunnerSetting
	}
	s.dispatch(ss)
	return ok(s.body(ss, s.baseURL(r)))
}

func (s *Server) deleteScaleSet(_ *http.Request, ss *scaleSet) answer {
	s.dropScaleSet(ss)
	return noContent()
}

// dropScaleSet removes a scale set. Jobs without a runner return to the queue; runners keep their registration and
// their job, if any.
func (s *Server) dropScaleSet(ss *scaleSet) {
	ss.gone = true
	delete(s.scaleSets.byID, ss.id)
	s.scaleSets.ordered = slices.DeleteFunc(s.scaleSets.ordered, func(other *scaleSet) bool { return other == ss })
	s.endSession(ss)
	for _, j := range ss.waiting {
		s.requeue(j)
	}
	ss.waiting = nil
	ss.queue.wakeAll()
	s.dispatchAll()
}

// ForgetScaleSet removes a scale set without its owner's knowledge. It returns false if there is no such scale set.
func (s *Server) ForgetScaleSet(id int) bool {
	s.lock()
	defer s.unlock()
	ss := s.scaleSets.byID[id]
	if ss != nil {
		s.dropScaleSet(ss)
	}
	return ss != nil
}

func (s *Server) findGroup(r *http.Request, sc *scope) answer {
	type body struct {
		ID      int    `json:"id"`
		Name    string `json:"name"`
		Size    int    `json:"size"`
		Default bool   `json:"isDefaultGroup"`
	}
	name, found := r.URL.Query().Get("groupName"), []body{}
	for _, g := range sc.groups {
		if name != "" && !strings.EqualFold(g.Name, name) {
			continue
		}
		b := body{ID: g.id, Name: g.Name, Default: g.id == 1}
		for _, ss := range s.scaleSets.ordered {
			if ss.group == g {
				b.Size += ss.stats.Registered
			}
		}
		found = append(found, b)
	}
	return ok(listOf(found))
}

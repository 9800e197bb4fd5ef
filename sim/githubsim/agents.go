// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"container/list"
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

// runner is a registration. The session identifies its process.
type runner struct {
	id         int
	name       string
	scaleSet   *scaleSet
	scope      *scope
	credential string
	created    time.Time
	persistent bool // stays registered after a job

	session   string // of the process; empty if there is none
	everSeen  bool
	lastSeen  time.Time
	polls     int
	online    bool
	idleSince time.Time // zero unless online without a job
	job       *job      // delivered, and started once it was acknowledged
	inLine    *list.Element
	delivered chan struct{} // closed when a waiting runner gets a job or is removed
	gone      bool
}

// runnerIndex finds runners. Names are unique within a scope.
type runnerIndex struct {
	byID         map[int]*runner
	byName       map[string]*runner // scope and lower-case name
	byCredential map[string]*runner
	solos        []*scaleSet // of runners that the REST API registered, in that order
	last         int
}

func newRunnerIndex() runnerIndex {
	return runnerIndex{byID: map[int]*runner{}, byName: map[string]*runner{}, byCredential: map[string]*runner{}}
}

func runnerKey(sc *scope, name string) string { return sc.key() + "#" + strings.ToLower(name) }

// agent is a runner in the Actions service's format.
type agent struct {
	ID         int    `json:"id"`
	Name       string `json:"name"`
	ScaleSetID int    `json:"runnerScaleSetId"`
	Status     string `json:"status"`
	Busy       bool   `json:"busy"`
}

func (rn *runner) agent() agent {
	status := "offline"
	if rn.online {
		status = "online"
	}
	return agent{ID: rn.id, Name: rn.name, ScaleSetID: rn.scaleSet.id, Status: status, Busy: rn.job != nil}
}

func (s *Server) generateJITConfig(r *http.Request, ss *scaleSet) answer {
	var body struct {
		Name       string `json:"name"`
		WorkFolder string `json:"workFolder"`
	}
	if err := decode(r, &body); err != nil || body.Name == "" {
		return serviceError(http.StatusBadRequest, "ArgumentException", "A runner needs a name.")
	}
	if s.runners.byName[runnerKey(ss.scope, body.Name)] != nil {
		return serviceError(http.StatusConflict, "AgentExistsException",
			"Pool 1 already contains a runner with name %s.", body.Name)
	}
	rn := s.register(ss, body.Name)
	return ok(map[string]any{"runner": rn.agent(), "encodedJITConfig": s.encodedJITConfig(r, rn, body.WorkFolder)})
}

func (s *Server) encodedJITConfig(r *http.Request, rn *runner, workFolder string) string {
	encoded, err := s.jitConfig(r, rn, workFolder).Encode()
	if err != nil {
		panic(err) // cannot fail for strings
	}
	return encoded
}

func (s *Server) register(ss *scaleSet, name string) *runner {
	s.runners.last++
	rn := &runner{
		id: s.runners.last, name: name, scaleSet: ss, scope: ss.scope, credential: s.secret(64), created: s.now(),
	}
	s.runners.byID[rn.id] = rn
	s.runners.byName[runnerKey(ss.scope, name)] = rn
	s.runners.byCredential[rn.credential] = rn
	ss.stats.Registered++
	s.made++
	return rn
}

func (s *Server) jitConfig(r *http.Request, rn *runner, workFolder string) runnerwire.Config {
	base := s.baseURL(r)
	if workFolder == "" {
		workFolder = "_work"
	}
	return runnerwire.Config{
		Settings: runnerwire.Settings{
			AgentID: strconv.Itoa(rn.id), AgentName: rn.name, PoolID: "1", PoolName: rn.scaleSet.group.Name,
			ServerURL:   base + servicePrefix + "/" + strconv.Itoa(rn.scope.tenant) + "/",
			ServerURLV2: base + runnerwire.PathBroker, UseV2Flow: "True", Ephemeral: ephemeral(rn),
			DisableUpdate: strconv.FormatBool(rn.scaleSet.setting.DisableUpdate), WorkFolder: workFolder,
			GitHubURL: base + "/" + configPath(rn.scope),
		},
		Credentials: runnerwire.Credentials{Scheme: "OAuth", Data: map[string]string{
			"clientId": rn.credential, "authorizationUrl": base + runnerwire.PathToken, "requireFipsCryptography": "True",
		}},
		Key: runnerwire.NewKey(jitKey()),
	}
}

func ephemeral(rn *runner) string {
	if rn.persistent {
		return "False"
	}
	return "True"
}

// jitKey is the key in every configuration. Generating one for each runner would cost more than the rest of the
// runner's life here.
var jitKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return key
})

func configPath(sc *scope) string {
	if sc.kind == enterpriseScope {
		return "enterprises/" + url.PathEscape(sc.name)
	}
	return sc.name
}

// removeRunner deletes a registration. Its process is informed by its next call.
func (s *Server) removeRunner(rn *runner) {
	if rn.gone {
		return
	}
	rn.gone = true
	delete(s.runners.byID, rn.id)
	delete(s.runners.byName, runnerKey(rn.scope, rn.name))
	delete(s.runners.byCredential, rn.credential)
	s.setOnline(rn, false)
	rn.scaleSet.stats.Registered--
	rn.scaleSet.free.remove(rn)
	if rn.scaleSet.solo != nil {
		rn.scaleSet.gone = true
		s.runners.solos = slices.DeleteFunc(s.runners.solos, func(other *scaleSet) bool { return other == rn.scaleSet })
	}
	rn.wake()
}

func agentNotFound(id int) answer {
	return serviceError(http.StatusNotFound, "AgentNotFoundException", "No agent found with identifier %d.", id)
}

func (s *Server) getAgent(r *http.Request, sc *scope) answer {
	id := pathID(r, "id")
	rn := s.runners.byID[id]
	if rn == nil || rn.scope != sc {
		return agentNotFound(id)
	}
	return ok(rn.agent())
}

func (s *Server) findAgent(r *http.Request, sc *scope) answer {
	var found []agent
	if rn := s.runners.byName[runnerKey(sc, r.URL.Query().Get("agentName"))]; rn != nil {
		found = append(found, rn.agent())
	}
	return ok(listOf(found))
}

// deleteAgent answers 204 for a missing runner, too: the service removes a finished runner itself, and clients then
// delete it again.
func (s *Server) deleteAgent(r *http.Request, sc *scope) answer {
	rn := s.runners.byID[pathID(r, "id")]
	if rn == nil || rn.scope != sc {
		return noContent()
	}
	if rn.job != nil || alteration(r) == AlterJobStillRunning {
		return serviceError(http.StatusBadRequest, "JobStillRunningException",
			"Agent %s is currently running a job.", rn.name)
	}
	s.removeRunner(rn)
	return noContent()
}

// PurgeRunner removes a registration without its owner's knowledge. It returns false if there is no such runner or if
// it has a job.
func (s *Server) PurgeRunner(id int) bool {
	s.lock()
	defer s.unlock()
	rn := s.runners.byID[id]
	if rn == nil || rn.job != nil {
		return false
	}
	s.removeRunner(rn)
	return true
}

// ChangeRunnerLabels replaces the labels of a runner without a scale set, as its owner may do at any time, even during
// a job. It returns false if there is no such runner.
func (s *Server) ChangeRunnerLabels(id int, names ...string) bool {
	s.lock()
	defer s.unlock()
	rn := s.runners.byID[id]
	if rn == nil || rn.scaleSet.solo == nil {
		return false
	}
	rn.scaleSet.labels = nil
	for _, name := range names {
		rn.scaleSet.labels = append(rn.scaleSet.labels, label{Type: "User", Name: name})
	}
	return true
}

// EndRunnerSession ends the session of a runner's process as if it had been silent for too long. A job that it has not
// started is assigned again. It returns false if there is no such session.
func (s *Server) EndRunnerSession(name string) bool {
	s.lock()
	defer s.unlock()
	for _, rn := range s.runners.byID {
		if rn.name == name && rn.session != "" {
			s.runnerEnds(rn, "fell silent")
			return true
		}
	}
	return false
}

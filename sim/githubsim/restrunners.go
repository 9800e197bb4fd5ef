// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

func (s *Server) restGroup(sc *scope, g *group) object {
	o := object{
		"id": g.id, "name": g.Name, "visibility": g.Visibility, "default": g.id == 1, "allows_public_repositories": g.AllowsPublic,
		"runners_url": s.api("/%s/%s/actions/runner-groups/%d/runners", sc.kind, sc.name, g.id),
	}
	if sc.kind == orgScope {
		o["inherited"] = false // organizations do not see their enterprise's groups
	}
	return o
}

func (s *Server) listGroups(r *http.Request, id *identity) answer {
	sc := s.restScope(r)
	if refusal, granted := id.require(sc, "read"); !granted {
		return refusal
	}
	groups := []object{}
	only, org := r.URL.Query().Get("visible_to_repository"), r.URL.Query().Get("visible_to_organization")
	for _, g := range sc.groups {
		repo := s.world.repos[strings.ToLower(sc.name+"/"+only)]
		if (only == "" || repo != nil && g.sees(repo)) && (org == "" || g.seesOrg(org)) {
			groups = append(groups, s.restGroup(sc, g))
		}
	}
	page, link := paginate(r, groups)
	return withLink(ok(map[string]any{"total_count": len(groups), "runner_groups": page}), link)
}

func (s *Server) getGroup(r *http.Request, id *identity) answer {
	sc := s.restScope(r)
	if refusal, granted := id.require(sc, "read"); !granted {
		return refusal
	}
	g := sc.group(pathID(r, "id"))
	if g == nil {
		return restError(http.StatusNotFound, "Not Found")
	}
	return ok(s.restGroup(sc, g))
}

type restLabel struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
}

type restRunner struct {
	ID        int         `json:"id"`
	Name      string      `json:"name"`
	OS        string      `json:"os"`
	Status    string      `json:"status"`
	Busy      bool        `json:"busy"`
	Ephemeral bool        `json:"ephemeral"`
	GroupID   int         `json:"runner_group_id"`
	Labels    []restLabel `json:"labels"`
	Version   string      `json:"version,omitempty"`
}

func (s *Server) restRunnerOf(rn *runner) restRunner {
	out := restRunner{
		ID: rn.id, Name: rn.name, OS: "linux", Status: "offline", Busy: rn.job != nil, Ephemeral: !rn.persistent,
		GroupID: rn.scaleSet.group.id, Labels: []restLabel{},
	}
	if rn.online {
		out.Status = "online"
	}
	if rn.everSeen {
		out.Version = s.opts.RunnerVersion
	}
	for i, l := range rn.scaleSet.labels {
		kind := "custom"
		if slices.Contains(systemLabels, strings.ToLower(l.Name)) {
			kind = "read-only"
		}
		out.Labels = append(out.Labels, restLabel{ID: i + 1, Name: l.Name, Type: kind})
	}
	return out
}

// systemLabels are added by the runner program when it registers itself. A runner with a JIT configuration has only the
// labels in its registration.
var systemLabels = []string{"self-hosted", "linux", "windows", "macos", "x64", "arm64", "arm"}

// maxLabels is the maximum number of a runner's labels.
const maxLabels = 100

// generateRESTConfig registers an ephemeral runner without a scale set.
func (s *Server) generateRESTConfig(r *http.Request, id *identity) answer {
	sc := s.restScope(r)
	if refusal, granted := id.require(sc, "write"); !granted {
		return refusal
	}
	var body struct {
		Name       string   `json:"name"`
		GroupID    int      `json:"runner_group_id"`
		Labels     []string `json:"labels"`
		WorkFolder string   `json:"work_folder"`
	}
	if err := decode(r, &body); err != nil {
		return restError(http.StatusBadRequest, "Problems parsing JSON")
	}
	if body.Name == "" || len(body.Name) > 64 || len(body.Labels) == 0 || len(body.Labels) > maxLabels ||
		slices.Contains(body.Labels, "") {
		return restError(http.StatusUnprocessableEntity, "Invalid request.\n\nA runner needs a name, and 1 to 100 labels.")
	}
	g := sc.group(body.GroupID)
	if g == nil {
		return restError(http.StatusNotFound, "Not Found")
	}
	if s.runners.byName[runnerKey(sc, body.Name)] != nil {
		return restError(http.StatusConflict, "Already exists - A runner with the name "+body.Name+" already exists.")
	}
	rn := s.registerSolo(sc, g, body.Name, body.Labels)
	return created(map[string]any{
		"runner": s.restRunnerOf(rn), "encoded_jit_config": s.encodedJITConfig(r, rn, body.WorkFolder),
	})
}

// registerSolo registers a runner without a scale set.
func (s *Server) registerSolo(sc *scope, g *group, name string, labels []string) *runner {
	ss := &scaleSet{scope: sc, group: g, created: s.now().UTC()}
	for _, l := range labels {
		if !slices.ContainsFunc(ss.labels, func(other label) bool { return strings.EqualFold(other.Name, l) }) {
			ss.labels = append(ss.labels, label{Type: "User", Name: l})
		}
	}
	rn := s.register(ss, name)
	ss.solo = rn
	s.runners.solos = append(s.runners.solos, ss)
	if s.opts.OfflineTTL > 0 {
		s.after(s.opts.OfflineTTL, func() {
			if !rn.everSeen && !rn.persistent {
				s.removeRunner(rn)
			}
		})
	}
	return rn
}

func (s *Server) listRunners(r *http.Request, id *identity) answer {
	sc := s.restScope(r)
	if refusal, granted := id.require(sc, "read"); !granted {
		return refusal
	}
	name := r.URL.Query().Get("name")
	found := []*runner{}
	for _, rn := range s.runners.byID {
		if rn.scope == sc && (name == "" || rn.name == name) {
			found = append(found, rn)
		}
	}
	slices.SortFunc(found, func(a, b *runner) int { return a.id - b.id })
	page, link := paginate(r, found)
	runners := make([]restRunner, 0, len(page))
	for _, rn := range page {
		runners = append(runners, s.restRunnerOf(rn))
	}
	return withLink(ok(map[string]any{"total_count": len(found), "runners": runners}), link)
}

// restRunnerByID returns the runner in the path if the identity has the permission.
func (s *Server) restRunnerByID(r *http.Request, id *identity, level string) (*runner, answer) {
	sc := s.restScope(r)
	if refusal, granted := id.require(sc, level); !granted {
		return nil, refusal
	}
	rn := s.runners.byID[pathID(r, "id")]
	if rn == nil || rn.scope != sc {
		return nil, restError(http.StatusNotFound, "Not Found")
	}
	return rn, answer{}
}

func (s *Server) getRunner(r *http.Request, id *identity) answer {
	rn, refusal := s.restRunnerByID(r, id, "read")
	if rn == nil {
		return refusal
	}
	return ok(s.restRunnerOf(rn))
}

func (s *Server) deleteRunner(r *http.Request, id *identity) answer {
	rn, refusal := s.restRunnerByID(r, id, "write")
	if rn == nil {
		return refusal
	}
	if rn.job != nil || alteration(r) == AlterJobStillRunning {
		return restError(http.StatusUnprocessableEntity,
			fmt.Sprintf("Bad request - Runner %q is still running a job", rn.name))
	}
	s.removeRunner(rn)
	return noContent()
}

// paginate returns the requested page and the Link header.
func paginate[T any](r *http.Request, all []T) ([]T, string) {
	query := r.URL.Query()
	number := func(key string, otherwise int) int {
		if n, err := strconv.Atoi(query.Get(key)); err == nil && n > 0 && n < 1<<20 {
			return n
		}
		return otherwise
	}
	size, page := min(number("per_page", 30), 100), number("page", 1)
	from := min((page-1)*size, len(all))
	to := min(from+size, len(all))
	link := ""
	if to < len(all) {
		query.Set("page", strconv.Itoa(page+1))
		path, _, _ := strings.Cut(r.RequestURI, "?") // with the prefix that routing removed
		link = fmt.Sprintf("<http://%s%s?%s>; rel=\"next\"", r.Host, path, query.Encode())
	}
	return all[from:to], link
}

func withLink(a answer, link string) answer {
	if link == "" {
		return a
	}
	return a.with("Link", link)
}

// listReleases lists the releases of the runner program, in the order of the options.
func (s *Server) listReleases(r *http.Request, _ *identity) answer {
	if len(s.opts.Releases) == 0 {
		return restError(http.StatusNotFound, "Not Found")
	}
	releases, repo := make([]object, 0, len(s.opts.Releases)), s.api("/repos/actions/runner")
	for i, release := range s.opts.Releases {
		tag := "v" + release.Version
		releases = append(releases, linked(fmt.Sprintf("%s/releases/%d", repo, i+1), "assets upload=assets").with(object{
			"id": i + 1, "node_id": fmt.Sprintf("RE_%d", i+1), "tag_name": tag, "name": tag, "target_commitish": "main", "draft": false, "prerelease": false,
			"created_at": stamp(release.Published), "published_at": stamp(release.Published), "author": s.account(userLogin), "assets": []any{},
			"html_url": s.home() + "/actions/runner/releases/tag/" + tag, "tarball_url": repo + "/tarball/" + tag, "zipball_url": repo + "/zipball/" + tag,
		}))
	}
	page, link := paginate(r, releases)
	return withLink(ok(page), link)
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object of the REST API or of webhooks. `make interop-github` checks each against GitHub's published
// schemas.
type object map[string]any

// with adds the fields of another object.
func (o object) with(more object) object {
	maps.Copy(o, more)
	return o
}

// home returns the server's address for URLs outside of answers to a request.
func (s *Server) home() string {
	if s.opts.PublicURL != "" {
		return s.opts.PublicURL
	}
	return s.address
}

// api returns the URL of a path of the REST API.
func (s *Server) api(format string, args ...any) string {
	return s.home() + "/api/v3" + fmt.Sprintf(format, args...)
}

// linked returns an object with its URL and the URLs of its parts: the path git/refs becomes git_refs_url. NAME=PATH
// sets another name.
func linked(base, paths string) object {
	o := object{"url": base}
	for path := range strings.FieldsSeq(paths) {
		name, renamed, is := strings.Cut(path, "=")
		if is {
			path = renamed
		}
		o[strings.ReplaceAll(name, "/", "_")+"_url"] = base + "/" + path
	}
	return o
}

// stamped returns the times of objects that never change.
func (s *Server) stamped() object {
	return object{"created_at": stamp(s.began), "updated_at": stamp(s.began)}
}

// account returns an organization, an App's bot, or the user.
func (s *Server) account(login string) object {
	kind, id := "User", 583231
	if sc := s.world.scopes[scopeKey(orgScope, login)]; sc != nil {
		kind, id = "Organization", sc.tenant
	} else if strings.HasSuffix(login, "[bot]") {
		kind = "Bot"
	}
	return linked(s.api("/users/%s", login), "events followers following gists organizations=orgs received_events repos starred subscriptions").with(object{
		"login": login, "id": id, "node_id": fmt.Sprintf("U_%d", id), "type": kind, "site_admin": false, "gravatar_id": "",
		"html_url": s.home() + "/" + login, "avatar_url": s.home() + "/avatars/" + login,
	})
}

// organization returns an organization.
func (s *Server) organization(login string) object {
	account := s.account(login)
	return linked(s.api("/orgs/%s", login), "repos events hooks issues members public_members").with(object{
		"login": login, "id": account["id"], "node_id": account["node_id"], "avatar_url": account["avatar_url"], "description": "",
	})
}

// enterprise returns an enterprise.
func (s *Server) enterprise(name string) object {
	slug, id := strings.ToLower(name), s.world.scopes[scopeKey(enterpriseScope, name)].tenant
	return s.stamped().with(object{
		"id": id, "node_id": fmt.Sprintf("E_%d", id), "slug": slug, "name": name,
		"html_url": s.home() + "/enterprises/" + slug, "avatar_url": s.home() + "/avatars/" + slug,
	})
}

// repositoryPaths are the paths of a repository's parts.
const repositoryPaths = "archive assignees blobs=git/blobs branches collaborators comments commits compare contents contributors " +
	"deployments downloads events forks git/commits git/refs git/tags hooks issue_comment=issues/comments issue_events=issues/events " +
	"issues keys labels languages merges milestones notifications pulls releases stargazers statuses subscribers subscription tags " +
	"teams trees=git/trees"

// repository returns a repository in the format of lists, events and other objects.
func (s *Server) repository(repo *repository) object {
	visibility := "private"
	if repo.Public {
		visibility = "public"
	}
	page := s.home() + "/" + repo.FullName
	return linked(s.api("/repos/%s", repo.FullName), repositoryPaths).with(s.stamped()).with(object{
		"id": repo.id, "node_id": fmt.Sprintf("R_%d", repo.id), "name": repo.name, "full_name": repo.FullName, "owner": s.account(repo.owner),
		"private": !repo.Public, "visibility": visibility, "default_branch": "main", "pushed_at": stamp(s.began), "description": nil,
		"html_url": page, "svn_url": page, "clone_url": page + ".git", "git_url": page + ".git", "ssh_url": page + ".git",
		"homepage": nil, "language": nil, "license": nil, "mirror_url": nil, "topics": []string{},
		"fork": false, "archived": false, "disabled": false, "is_template": false, "allow_forking": true, "web_commit_signoff_required": false,
		"has_issues": true, "has_projects": false, "has_wiki": false, "has_pages": false, "has_downloads": true, "has_discussions": false,
		"size": 0, "forks": 0, "forks_count": 0, "open_issues": 0, "open_issues_count": 0, "stargazers_count": 0, "watchers": 0, "watchers_count": 0,
	})
}

// restApp returns an App.
func (s *Server) restApp(app *App) object {
	slug := app.slug()
	return s.stamped().with(object{
		"id": app.ID, "client_id": app.ClientID, "node_id": fmt.Sprintf("A_%d", app.ID), "slug": slug, "name": slug, "description": nil,
		"owner": s.account(app.Account), "external_url": s.home(), "html_url": s.home() + "/apps/" + slug, "permissions": app.permissions(), "events": []string{},
	})
}

func (a *App) slug() string { return "app-" + strconv.FormatInt(a.ID, 10) }

// permissions returns the permissions, which are never null.
func (a *App) permissions() map[string]string {
	if a.Permissions == nil {
		return map[string]string{}
	}
	return a.Permissions
}

// sha returns the commit hash for a number.
func sha[T int | int64](n T) string { return fmt.Sprintf("%040x", n) }

// headCommit returns the commit of a run or a push.
func headCommit(sha string, at time.Time) object {
	person := object{"name": "octocat", "email": "octocat@example.com"}
	return object{
		"id": sha, "tree_id": sha, "message": "A change", "timestamp": stamp(at), "author": person, "committer": person,
	}
}

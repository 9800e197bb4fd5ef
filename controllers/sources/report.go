// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/wording"
)

// maxReported is the maximum size of the quoted condition message in a check run, in bytes.
const maxReported = 16 << 10

// revisionState is the result of a revision according to the status of its source.
type revisionState struct {
	revision, commit string
	reason, message  string
	causes           []v1alpha1.Cause
	state            rest.CommitState
	diagnostics      []v1alpha1.Diagnostic
	// id identifies this outcome of this revision.
	id string
}

// gitCommit matches the end of a Git revision in Flux's format.
var gitCommit = regexp.MustCompile(`(?:^|@)sha1:([0-9a-f]{40})$`)

// revisionStateOf returns the state of the last attempted revision. It returns false if the state is unknown or if the
// condition is not about the revision: for example, a commit is not to blame for an unreachable server.
func revisionStateOf(source *v1alpha1.PoolSource) (revisionState, bool) {
	status := source.Status
	commit := gitCommit.FindStringSubmatch(status.LastAttemptedRevision)
	ready := conditions.Get(source, v1alpha1.ReadyCondition)
	if commit == nil || ready == nil || status.ObservedGeneration != source.Generation {
		return revisionState{}, false
	}
	v := revisionState{revision: status.LastAttemptedRevision, commit: commit[1], reason: ready.Reason, message: ready.Message, causes: v1alpha1.CausesOf(status.Causes, v1alpha1.ReadyCondition)}
	if v.state = commitStateOf(source, ready); v.state == "" {
		return revisionState{}, false
	}
	message := ""
	if v.state == rest.CommitFailure {
		message = catalog.Identity(v.causes) // does not change between attempts
	}
	if v.reason == v1alpha1.BuildFailedReason {
		v.diagnostics = status.Diagnostics
	}
	sum := sha256.Sum256([]byte(string(source.UID) + "\n" + v.revision + "\n" + string(v.state) + "\n" + v.reason + "\n" + message))
	v.id = hex.EncodeToString(sum[:16])
	return v, true
}

// commitStateOf returns the state to report, or "" for none.
func commitStateOf(source *v1alpha1.PoolSource, ready *metav1.Condition) rest.CommitState {
	if ready.Status == metav1.ConditionTrue {
		if source.Status.LastAppliedRevision == source.Status.LastAttemptedRevision {
			return rest.CommitSuccess
		}
		return ""
	}
	if ready.Status != metav1.ConditionFalse {
		return ""
	}
	failed := rest.CommitError
	if conditions.IsStalled(source) {
		failed = rest.CommitFailure
	}
	// Before a revision is compiled, a failure may concern another revision than the last attempted one, or none.
	isOfRevision := slices.ContainsFunc(v1alpha1.CausesOf(source.Status.Causes, ready.Type), func(c v1alpha1.Cause) bool {
		return c.Parameter("revision") == source.Status.LastAttemptedRevision
	})
	switch ready.Reason {
	case v1alpha1.PruneRefusedReason, v1alpha1.ApplyFailedReason, v1alpha1.PruneFailedReason:
		return failed
	case v1alpha1.BuildFailedReason, v1alpha1.VerificationFailedReason:
		if isOfRevision {
			return failed
		}
	case v1alpha1.ArtifactFailedReason: // for example, a repository that is too large
		if isOfRevision && failed == rest.CommitFailure {
			return failed
		}
	}
	return ""
}

// report returns the report for GitHub. Its name is the same for all revisions of a source, and unique per source and
// cluster.
func (v revisionState) report(source *v1alpha1.PoolSource, cluster string) rest.CommitReport {
	key := source.Namespace + "/" + source.Name
	r := rest.CommitReport{Name: "corral/" + shortName(cluster) + "/" + key, ID: v.id, State: v.state}
	result := "was refused; what was applied before stays in force"
	switch v.state {
	case rest.CommitSuccess:
		r.Title, result = "Applied", "was applied"
	case rest.CommitError:
		r.Title, result = v.reason+": it is tried again", "was not applied yet, or not in full"
	default:
		r.Title = wording.FirstLine(v.message)
	}
	r.Summary = fmt.Sprintf("Revision `%s` of PoolSource `%s` %s (%s).\n\n%s", v.revision, key, result, v.reason, quoted(v.message))
	for _, d := range v.diagnostics {
		if d.File != "" {
			r.Annotations = append(r.Annotations, rest.Annotation{Path: d.File, Line: int(d.Line), Column: int(d.Column), Title: d.Path, Message: d.Message})
		}
	}
	return r
}

// quoted returns a Markdown block that shows any text verbatim.
func quoted(text string) string {
	text = wording.Truncate(text, maxReported)
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + text + "\n" + fence
}

// shortName shortens the name of a cluster if that is only a UID.
func shortName(cluster string) string {
	if uuid.Validate(cluster) == nil {
		return cluster[:8]
	}
	return cluster
}

// repositoryOf returns the OWNER/NAME of a Git repository's URL, if the connection's URL covers it.
func repositoryOf(repository, connection string) (string, error) {
	target, err := github.ParseURL(connection)
	if err != nil {
		return "", fmt.Errorf("the connection's URL: %w", err)
	}
	at, err := url.Parse(connection)
	if err != nil {
		return "", fmt.Errorf("the connection's URL: %w", err)
	}
	location, err := url.Parse(repository)
	if err != nil {
		return "", errors.New("the repository's URL is malformed")
	}
	if host := hostOf(location); !strings.EqualFold(host, at.Hostname()) {
		return "", fmt.Errorf("the repository is at %.100q, and the connection is to %s", host, at.Hostname())
	}
	parts := strings.Split(strings.TrimSuffix(strings.Trim(location.Path, "/"), ".git"), "/")
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return "", fmt.Errorf("the path %.200q is not the path of a GitHub repository", location.Path)
	}
	return strings.Join(parts, "/"), covered(target, parts[0], parts[1])
}

func hostOf(location *url.URL) string {
	host := strings.ToLower(location.Hostname())
	if host == "ssh.github.com" { // GitHub's SSH over the HTTPS port
		return "github.com"
	}
	return host
}

// covered returns an error unless a connection covers a repository.
func covered(target github.Target, owner, name string) error {
	if target.Scope == github.Enterprise {
		return fmt.Errorf("the connection is to the %s, which has no repositories; name one to the organization %.100s or to the repository", target, owner)
	}
	if !strings.EqualFold(owner, target.Owner) || target.Scope == github.Repository && !strings.EqualFold(name, target.Name) {
		return fmt.Errorf("%.200s is not covered by the connection, which is to the %s", owner+"/"+name, target)
	}
	return nil
}

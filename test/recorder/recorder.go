// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package recorder records what is wrong in a namespace, as a set of objects with the codes that they show, and compares it with what was reviewed.
// It records no sentences and no times, so that a set depends neither on the wording nor on the speed of the machine.
package recorder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/cli"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/golden"
)

// Recorder records a story in parts, each with a title. It waits until a part is as reviewed.
type Recorder struct {
	// Namespace that is recorded.
	Namespace string
	// Archive has the reviewed story, and Story is its name there.
	Archive, Story string
	// LeaseNamespace is where its controllers agree on a leader.
	LeaseNamespace string
	// Cause is in the answer of each command that explains the trouble.
	Cause string
	// Warnings are how many events the trouble is worth.
	Warnings int
	// Logs of the controllers.
	Logs []*world.Controller
	// Aside is the prefix of the names of objects that are left out.
	Aside string

	t        *testing.T
	w        *world.World
	reviewed map[string]string
	written  strings.Builder
}

const (
	// tooLong is how long a part is waited for, on a machine that may be busy. It may hold for the next attempt of what failed.
	tooLong = 3 * time.Minute
	// still is how long a part must not have changed to be recorded.
	still = 3 * time.Second
	// partMark begins a part.
	partMark = "======== "
)

// Open reads what was reviewed.
func (r *Recorder) Open(t *testing.T, w *world.World) {
	t.Helper()
	story, isThere := golden.Read(t, r.Archive)[r.Story]
	if !isThere && !golden.Updating() {
		t.Fatalf("%s has no story %s", r.Archive, r.Story)
	}
	r.t, r.w, r.reviewed = t, w, map[string]string{}
	for part := range strings.SplitSeq(story, partMark) {
		title, body, _ := strings.Cut(part, "\n")
		r.reviewed[title] = body
	}
}

// part waits until check succeeds and what is seen is as reviewed, or no longer changes if it is to be recorded.
func (r *Recorder) part(ctx context.Context, title string, check func(context.Context) error, see func(context.Context) (string, error)) {
	r.t.Helper()
	text, since := "", time.Time{}
	err := world.Until(ctx, tooLong, func(ctx context.Context) error {
		if err := check(ctx); err != nil {
			return err
		}
		now, err := see(ctx)
		if err = errors.Join(err, ctx.Err()); err != nil { // what was cut off wasn't seen
			return err
		}
		if now != text || since.IsZero() {
			text, since = now, time.Now()
		}
		switch diff := gocmp.Diff(r.reviewed[title], text); {
		case golden.Updating() && time.Since(since) < still:
			return errors.New("it still changes")
		case !golden.Updating() && diff != "":
			return fmt.Errorf("it isn't as reviewed (-want +got): %s", diff)
		}
		return nil
	})
	if err != nil {
		r.t.Errorf("%s: %v", title, err)
	}
	r.written.WriteString(partMark + title + "\n" + text)
}

// Close compares all parts with what was reviewed, or records them.
func (r *Recorder) Close() {
	r.t.Helper()
	golden.CompareIn(r.t, r.Archive, r.Story, r.written.String())
}

// Look records what is wrong now, once check succeeds. Each answer of corral status and corral explain names the cause.
func (r *Recorder) Look(title string, check func(context.Context) error, questions ...string) {
	r.t.Helper()
	commands := [][]string{r.status()}
	for _, question := range questions {
		commands = append(commands, append([]string{"explain"}, strings.Fields(question)...))
	}
	r.part(r.t.Context(), title, check, func(ctx context.Context) (string, error) {
		for _, command := range commands {
			if answer, _ := r.corral(ctx, command...); !strings.Contains(answer, r.Cause) {
				return "", fmt.Errorf("%q isn't in the answer of corral %s:\n%s", r.Cause, strings.Join(command, " "), answer)
			}
		}
		wrong, err := r.wrong(ctx)
		found, statusErr := r.findings(ctx)
		return lines(slices.Concat(wrong, found)), errors.Join(err, statusErr)
	})
}

// Tale records the Warnings so far, of which no more may be there than the trouble is worth. The log has no errors.
func (r *Recorder) Tale(title string) {
	r.t.Helper()
	r.end(r.t.Context(), title, func(context.Context) ([]string, error) { return nil, nil })
}

// End records what is still wrong, and the Warnings so far.
func (r *Recorder) End(ctx context.Context, title string) {
	r.t.Helper()
	r.end(ctx, title, r.findings)
}

func (r *Recorder) end(ctx context.Context, title string, find func(context.Context) ([]string, error)) {
	r.t.Helper()
	always := func(context.Context) error { return nil }
	r.part(ctx, title, always, func(ctx context.Context) (string, error) {
		events, err := r.events(ctx)
		found, statusErr := find(ctx)
		return lines(slices.Concat(events, found)), errors.Join(err, statusErr)
	})
	r.checkEvents(ctx)
}

// Said fails the test if something was or is wrong that is not in the story: all that a fault may show, where it depends on the moment which of
// that is seen. What is new is added where golden files are recorded.
func (r *Recorder) Said(ctx context.Context, t *testing.T, w *world.World) {
	t.Helper()
	r.Open(t, w)
	may := strings.Split(golden.Read(t, r.Archive)[r.Story], "\n")
	var seen []string
	// What is wrong now may pass yet. Events stay.
	err := world.Until(ctx, tooLong, func(ctx context.Context) error {
		events, err := r.events(ctx)
		wrong, conditionsErr := r.wrong(ctx)
		found, statusErr := r.findings(ctx)
		if err := errors.Join(err, conditionsErr, statusErr, ctx.Err()); err != nil {
			return err
		}
		wrong = slices.DeleteFunc(wrong, func(line string) bool { return strings.HasPrefix(line, "Runner/") })
		seen = slices.Concat(events, wrong, found)
		if unknown := slices.DeleteFunc(slices.Clone(seen), func(line string) bool { return slices.Contains(may, line) }); len(unknown) > 0 && !golden.Updating() {
			return fmt.Errorf("seen, and not in %s of %s (UPDATE_GOLDEN=1 adds it):\n%s", r.Story, r.Archive, lines(unknown))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	r.checkEvents(ctx)
	if golden.Updating() {
		golden.CompareIn(t, r.Archive, r.Story, strings.TrimPrefix(lines(append(may, seen...)), "\n"))
	}
}

// lines writes a set.
func lines(set []string) string {
	slices.Sort(set)
	text := ""
	for _, line := range slices.Compact(set) {
		text += line + "\n"
	}
	return text
}

// status is the command that says what is wrong.
func (r *Recorder) status(more ...string) []string {
	return append([]string{"status", "--lease-namespace", r.LeaseNamespace}, more...)
}

// corral runs the command with the administrator's rights and returns what it writes.
func (r *Recorder) corral(ctx context.Context, args ...string) (stdout, stderr string) {
	var out, trouble strings.Builder
	root := cli.NewRoot("test")
	root.SetContext(ctx)
	root.SetOut(&out)
	root.SetErr(&trouble)
	root.SetArgs(append(args, "--kubeconfig", r.w.Cluster.Kubeconfig(), "-n", r.Namespace))
	_ = cli.Run(root) // its exit code says that something is wrong
	return out.String(), trouble.String()
}

// findings are what corral status finds, with the code of each.
func (r *Recorder) findings(ctx context.Context) (all []string, err error) {
	text, trouble := r.corral(ctx, r.status("-o", "json")...)
	var page explain.Page
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, fmt.Errorf("corral status: %w: %s", err, trouble)
	}
	isCluster := func(object string) bool { return strings.HasPrefix(object, "ClusterRunnerPolicy/") }
	for _, f := range page.Findings {
		if len(f.Objects) > 0 && !slices.ContainsFunc(f.Objects, func(object string) bool { return !isCluster(object) }) {
			continue // a policy of the cluster, of another story
		}
		all = append(all, fmt.Sprintf("status %s %s", f.Severity, f.Reason))
	}
	return all, nil
}

// wrong are the conditions of objects that say that something is wrong. What a runner does that makes progress depends on the moment.
func (r *Recorder) wrong(ctx context.Context) (all []string, err error) {
	for _, list := range []client.ObjectList{
		&v1alpha1.GitHubConnectionList{}, &v1alpha1.PoolSourceList{}, &v1alpha1.RunnerPolicyList{}, &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}, &v1alpha1.RunnerScaleSetList{},
	} {
		if err := r.w.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
			return nil, err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(kube.Object)
			kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.")
			for _, c := range o.GetConditions() {
				if isWrong(c) && !r.isAside(o.GetName()) && (kind != "Runner" || !isProgress(c.Reason)) {
					all = append(all, fmt.Sprintf("%s/%s %s=%s %s", kind, settle(o.GetName()), c.Type, c.Status, c.Reason))
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// isWrong reports whether a condition says that something is wrong.
func isWrong(c metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.StalledCondition, v1alpha1.SaturatedCondition:
		return c.Status == metav1.ConditionTrue
	case v1alpha1.ReadyCondition:
		return c.Status != metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse
}

func isProgress(reason string) bool {
	return reason == v1alpha1.ProgressingReason || reason == v1alpha1.ProgressingWithRetryReason
}

// events are the Warnings of Corral, with their objects and reasons.
func (r *Recorder) events(ctx context.Context) (all []string, err error) {
	list := &eventsv1.EventList{}
	if err := r.w.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		e := &list.Items[i]
		if e.ReportingController == "corral" && e.Type == corev1.EventTypeWarning && !r.isAside(e.Regarding.Name) && !slow.MatchString(e.Note) {
			all = append(all, fmt.Sprintf("event %s/%s %s", e.Regarding.Kind, settle(e.Regarding.Name), e.Reason))
		}
	}
	return all, nil
}

// checkEvents fails a test of which there are more Warnings than its trouble is worth, or errors in the log.
func (r *Recorder) checkEvents(ctx context.Context) {
	r.t.Helper()
	events, err := r.events(ctx)
	if err != nil {
		r.t.Error(err)
	}
	if len(events) > r.Warnings {
		r.t.Errorf("%d Warnings, where %d are enough: %q", len(events), r.Warnings, events)
	}
	for _, c := range r.Logs {
		text, err := os.ReadFile(c.LogPath)
		if err != nil {
			r.t.Error(err)
		}
		for line := range bytes.Lines(text) {
			isOurs := r.Aside == "" || bytes.Contains(line, fmt.Appendf(nil, "%q", r.Namespace))
			if isOurs && bytes.Contains(line, []byte(`"level":"error"`)) && !slow.Match(line) {
				r.t.Errorf("the controller logs an error: %s", line)
			}
		}
	}
}

// isAside reports whether an object is left out.
func (r *Recorder) isAside(name string) bool {
	return r.Aside != "" && strings.HasPrefix(name, r.Aside)
}

// slow is said of an API server, or a child process, that others keep busy.
var slow = regexp.MustCompile(`context deadline exceeded|Client\.Timeout exceeded|no container status|could not be asked: there was no answer within|net/http: request canceled`)

var (
	runnerName  = regexp.MustCompile(`^([a-z][a-z0-9]*)-[a-v0-9]{5}-\d+$`)
	countedName = regexp.MustCompile(`^([a-z]+)-\d+$`)
)

// settle is the name of an object without what differs from one run to the next.
func settle(name string) string {
	return countedName.ReplaceAllString(runnerName.ReplaceAllString(name, "$1-RUNNER"), "$1-N")
}

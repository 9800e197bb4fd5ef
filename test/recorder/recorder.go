// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package recorder records the problems in a namespace as a set of objects and codes, and compares the set with a
// reviewed file. It records no messages and no times, so the set does not depend on wording or on the speed of the
// machine.
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

// Recorder records a story in titled parts. It waits until each part matches the reviewed file.
type Recorder struct {
	// Namespace is the namespace to record.
	Namespace string
	// Archive is the file with reviewed stories, and Story is the name of the story in it.
	Archive, Story string
	// LeaseNamespace is the namespace of the controllers' leader election lease.
	LeaseNamespace string
	// Cause is a code, a parameter or the text of another program. The JSON answer of each command that explains the trouble contains it.
	Cause string
	// Warnings is the maximum number of Warning events that the problem may cause.
	Warnings int
	// Logs lists the controllers whose logs are checked.
	Logs []*world.Controller
	// Aside is a name prefix of objects that are not recorded.
	Aside string

	t        *testing.T
	w        *world.World
	reviewed map[string]string
	written  strings.Builder
}

const (
	// tooLong is the deadline for a part. It allows for a busy machine, and for the retry of a failed operation.
	tooLong = 3 * time.Minute
	// still is how long a part must be unchanged before it is recorded.
	still = 3 * time.Second
	// partMark begins the title line of a part.
	partMark = "======== "
)

// Open reads the reviewed story.
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

// part waits until check succeeds and the observed state matches the reviewed part. While recording, it waits
// until the state no longer changes.
func (r *Recorder) part(ctx context.Context, title string, check func(context.Context) error, see func(context.Context) (string, error)) {
	r.t.Helper()
	text, since := "", time.Time{}
	err := world.Until(ctx, tooLong, func(ctx context.Context) error {
		if err := check(ctx); err != nil {
			return err
		}
		now, err := see(ctx)
		if err = errors.Join(err, ctx.Err()); err != nil { // an interrupted observation is incomplete
			return err
		}
		if now != text || since.IsZero() {
			text, since = now, time.Now()
		}
		switch diff := gocmp.Diff(r.reviewed[title], text); {
		case golden.Updating() && time.Since(since) < still:
			return errors.New("the state still changes")
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

// Close compares all parts with the reviewed story, or records them.
func (r *Recorder) Close() {
	r.t.Helper()
	golden.CompareIn(r.t, r.Archive, r.Story, r.written.String())
}

// Look records the current problems, once check succeeds. Each answer of corral status and corral explain contains the
// cause.
func (r *Recorder) Look(title string, check func(context.Context) error, questions ...string) {
	r.t.Helper()
	commands := [][]string{r.status()}
	for _, question := range questions {
		commands = append(commands, append([]string{"explain"}, strings.Fields(question)...))
	}
	r.part(r.t.Context(), title, check, func(ctx context.Context) (string, error) {
		for _, command := range commands {
			if answer, _ := r.corral(ctx, append(command, "-o", "json")...); !strings.Contains(answer, inJSON(r.Cause)) {
				return "", fmt.Errorf("%q is missing in the output of corral %s:\n%s", r.Cause, strings.Join(command, " "), answer)
			}
		}
		wrong, err := r.wrong(ctx)
		found, statusErr := r.findings(ctx)
		return lines(slices.Concat(wrong, found)), errors.Join(err, statusErr)
	})
}

// Tale records the Warnings so far. It fails the test if there are more than Warnings, or if the logs contain
// errors.
func (r *Recorder) Tale(title string) {
	r.t.Helper()
	r.end(r.t.Context(), title, func(context.Context) ([]string, error) { return nil, nil })
}

// End records the remaining problems and the Warnings so far.
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

// Said fails the test if it observes a problem that is not in the story. It is for faults whose symptoms depend on
// timing. The story contains all possible symptoms. While golden files are being updated, it adds new problems to the
// story.
func (r *Recorder) Said(ctx context.Context, t *testing.T, w *world.World) {
	t.Helper()
	r.Open(t, w)
	may := strings.Split(golden.Read(t, r.Archive)[r.Story], "\n")
	var seen []string
	// A current problem may still disappear. Events stay.
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
			return fmt.Errorf("observed, but not in %s of %s (UPDATE_GOLDEN=1 adds it):\n%s", r.Story, r.Archive, lines(unknown))
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

// lines formats a set, sorted and one item per line.
func lines(set []string) string {
	slices.Sort(set)
	text := ""
	for _, line := range slices.Compact(set) {
		text += line + "\n"
	}
	return text
}

// inJSON returns a text as it occurs within a string in JSON.
func inJSON(text string) string {
	encoded, _ := json.Marshal(text) // a string can always be encoded
	return string(encoded[1 : len(encoded)-1])
}

// status returns the arguments of the corral status command.
func (r *Recorder) status(more ...string) []string {
	return append([]string{"status", "--lease-namespace", r.LeaseNamespace}, more...)
}

// corral runs a corral command with cluster-admin rights, and returns its output.
func (r *Recorder) corral(ctx context.Context, args ...string) (stdout, stderr string) {
	var out, trouble strings.Builder
	root := cli.NewRoot("test")
	root.SetContext(ctx)
	root.SetOut(&out)
	root.SetErr(&trouble)
	root.SetArgs(append(args, "--kubeconfig", r.w.Cluster.Kubeconfig(), "-n", r.Namespace))
	_ = cli.Run(root) // a nonzero exit code only reports that it found problems
	return out.String(), trouble.String()
}

// findings returns the severity and reason of each finding of corral status.
func (r *Recorder) findings(ctx context.Context) (all []string, err error) {
	text, trouble := r.corral(ctx, r.status("-o", "json")...)
	var page explain.Page
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, fmt.Errorf("corral status: %w: %s", err, trouble)
	}
	isCluster := func(object string) bool { return strings.HasPrefix(object, "ClusterRunnerPolicy/") }
	for _, f := range page.Findings {
		if len(f.Objects) > 0 && !slices.ContainsFunc(f.Objects, func(object string) bool { return !isCluster(object) }) {
			continue // a policy at cluster scope belongs to another story
		}
		all = append(all, fmt.Sprintf("status %s %s", f.Severity, f.Reason))
	}
	return all, nil
}

// wrong returns the conditions that report a problem. It skips the conditions of runners that make progress,
// because these depend on timing.
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

// isWrong reports whether a condition indicates a problem.
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

// events returns Corral's Warning events with their objects and reasons.
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

// checkEvents fails the test if there are more Warnings than allowed, or errors in the logs.
func (r *Recorder) checkEvents(ctx context.Context) {
	r.t.Helper()
	events, err := r.events(ctx)
	if err != nil {
		r.t.Error(err)
	}
	if len(events) > r.Warnings {
		r.t.Errorf("%d Warnings, want at most %d: %q", len(events), r.Warnings, events)
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

// isAside reports whether an object is excluded from the recording.
func (r *Recorder) isAside(name string) bool {
	return r.Aside != "" && strings.HasPrefix(name, r.Aside)
}

// slow matches messages about an API server or child process that is slow because the machine is busy.
var slow = regexp.MustCompile(`context deadline exceeded|Client\.Timeout exceeded|no container status|there was no answer within|net/http: request canceled`)

var (
	runnerName  = regexp.MustCompile(`^([a-z][a-z0-9]*)-[a-v0-9]{5}-\d+$`)
	countedName = regexp.MustCompile(`^([a-z]+)-\d+$`)
)

// settle returns the name of an object without the parts that differ between runs.
func settle(name string) string {
	return countedName.ReplaceAllString(runnerName.ReplaceAllString(name, "$1-RUNNER"), "$1-N")
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package recorder writes down what somebody on call can see of a namespace, and compares it with what was reviewed.
package recorder

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/cli"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/golden"
)

// Recorder writes down what corral and kubectl say, in parts that have a title each. A part is taken once it is as
// reviewed: what comes late is waited for, what never comes or comes too much fails.
type Recorder struct {
	// Namespace that is looked at.
	Namespace string
	// File is the golden one.
	File string
	// LeaseNamespace is where its controllers agree on a leader.
	LeaseNamespace string
	// Cause is in each answer about what is wrong.
	Cause string
	// Warnings are how many events the trouble is worth.
	Warnings int
	// Logs of the controllers.
	Logs []*world.Controller
	// Aside is how the names of objects begin that are left out. Where there are some, the controllers serve other namespaces too and are
	// busy with them: how many runners there are, and when, is left out as well.
	Aside string

	t        *testing.T
	w        *world.World
	any      bool // events that depend on the moment are told, too
	reviewed map[string]string
	written  strings.Builder
}

const (
	// tooLong is how long a part is waited for, on a machine that may be busy. It may hold for the next attempt of what failed.
	tooLong = 3 * time.Minute
	// still is how long a part must not have changed to be written anew.
	still = 3 * time.Second
)

// Open reads what was reviewed.
func (r *Recorder) Open(t *testing.T, w *world.World) {
	t.Helper()
	text, err := os.ReadFile(r.File)
	if err != nil && !golden.Updating() {
		t.Fatal(err)
	}
	r.t, r.w, r.reviewed = t, w, map[string]string{}
	for part := range strings.SplitSeq(string(text), partMark) {
		title, body, _ := strings.Cut(part, "\n")
		r.reviewed[title] = body
	}
}

const partMark = "======== "

// look is how a part is read: how it begins, once check is content; and the rest, which costs more, once it begins as reviewed.
type look struct {
	check func(context.Context) error
	begin func(context.Context) string
	rest  func(context.Context) (string, error)
}

// part writes down what is looked at.
func (r *Recorder) part(ctx context.Context, title string, l look) {
	r.t.Helper()
	text, err := r.watch(ctx, title, l)
	switch {
	case golden.Updating() && (text == "" || err != nil):
		r.t.Fatalf("%s: %v:\n%s", title, err, text)
	case err != nil: // all of it is to be told now: what is written in the end may not come to be compared
		ctx := context.WithoutCancel(ctx)
		now := l.begin(ctx)
		rest, unread := l.rest(ctx)
		text, err = r.settle(now+rest), errors.Join(err, unread)
		r.t.Errorf("%s: %v (-want +got): %s", title, err, gocmp.Diff(r.reviewed[title], text))
	}
	r.written.WriteString(partMark + title + "\n" + text)
}

// watch waits until a part is as reviewed, or doesn't change any more if it is to be written anew.
func (r *Recorder) watch(ctx context.Context, title string, l look) (text string, err error) {
	since := time.Time{}
	err = world.Until(ctx, tooLong, func(ctx context.Context) error {
		if err := l.check(ctx); err != nil {
			return err
		}
		now, rest, err := l.begin(ctx), "", error(nil)
		if golden.Updating() || strings.HasPrefix(r.reviewed[title], r.settle(now)) {
			rest, err = l.rest(ctx)
			now += rest
		}
		if err = errors.Join(err, ctx.Err()); err != nil { // what was cut off wasn't seen
			return err
		}
		now = r.settle(now)
		if now != text || since.IsZero() {
			text, since = now, time.Now()
		}
		if !golden.Updating() && text != r.reviewed[title] || golden.Updating() && time.Since(since) < still {
			return errors.New("it isn't as reviewed, or still changes")
		}
		return nil
	})
	return text, err
}

// Close compares all parts with the file that was reviewed, or writes it anew.
func (r *Recorder) Close() {
	r.t.Helper()
	golden.Compare(r.t, r.File, r.written.String())
}

// Look writes down what kubectl and corral say now, answers of corral explain among it, once check is content. Each answer has the cause.
func (r *Recorder) Look(title string, check func(context.Context) error, questions ...string) {
	r.t.Helper()
	var status string
	var answers []string
	begin := func(ctx context.Context) string {
		status = r.status(ctx)
		return status + "\n"
	}
	r.part(r.t.Context(), title, look{check, begin, func(ctx context.Context) (string, error) {
		answers = nil
		for _, question := range questions {
			answers = append(answers, r.corral(ctx, append([]string{"explain"}, strings.Fields(question)...)...))
		}
		columns, err := r.columns(ctx)
		if err != nil {
			return "", err
		}
		conditions, err := r.conditions(ctx)
		return strings.Join(append(slices.Clone(answers), columns, "conditions\n"+r.byObject(conditions)), "\n"), err
	}})
	for _, answer := range append(answers, status) {
		if !strings.Contains(answer, r.Cause) {
			r.t.Errorf("%s: %q isn't in the answer:\n%s", title, r.Cause, answer)
		}
	}
}

// Tale writes down what was told so far: events, of which no more than so many may be Warnings, and the log; of that only what is above the
// level info if the rest depends on the moment.
func (r *Recorder) Tale(title string, quiet bool) {
	r.t.Helper()
	warnings := 0
	tell := func(ctx context.Context) (text string, err error) {
		text, warnings, err = r.eventsAndLog(ctx, quiet)
		return text, err
	}
	r.part(r.t.Context(), title, look{always, func(context.Context) string { return "" }, tell})
	r.enough(warnings)
}

// End writes down whether anything is wrong still, and what was told.
func (r *Recorder) End(ctx context.Context, title string) {
	r.t.Helper()
	warnings := 0
	begin := func(ctx context.Context) string { return r.status(ctx) + "\n" }
	r.part(ctx, title, look{always, begin, func(ctx context.Context) (text string, err error) {
		text, warnings, err = r.eventsAndLog(ctx, false)
		return text, err
	}})
	r.enough(warnings)
}

// always is content.
func always(context.Context) error { return nil }

func (r *Recorder) enough(warnings int) {
	r.t.Helper()
	if warnings > r.Warnings {
		r.t.Errorf("%d Warnings, where %d are enough", warnings, r.Warnings)
	}
}

// eventsAndLog are the events and the log.
func (r *Recorder) eventsAndLog(ctx context.Context, quiet bool) (text string, warnings int, err error) {
	events, warnings, err := r.events(ctx)
	if err != nil {
		return "", 0, err
	}
	log, err := r.log(quiet)
	return "events\n" + r.byObject(events) + "\nlog\n" + r.byObject(log), warnings, err
}

func (r *Recorder) status(ctx context.Context) string {
	return r.corral(ctx, "status", "--lease-namespace", r.LeaseNamespace)
}

// isAside says whether an object is left out.
func (r *Recorder) isAside(name string) bool {
	return r.Aside != "" && strings.HasPrefix(name, r.Aside)
}

// corral runs the command with the administrator's rights and returns what it says.
func (r *Recorder) corral(ctx context.Context, args ...string) string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "$ corral %s\n", strings.Join(args, " "))
	root := cli.NewRoot("test")
	root.SetContext(ctx)
	root.SetOut(out)
	root.SetErr(out)
	root.SetArgs(append(args, "--kubeconfig", r.w.Cluster.Kubeconfig(), "-n", r.Namespace))
	if code := cli.Run(root); code != 0 {
		fmt.Fprintf(out, "exit code %d\n", code)
	}
	return out.String()
}

// resources are the kinds of Corral in a namespace, by their names in URLs.
var resources = []string{"githubconnections", "poolsources", "runnerpolicies", "runnerpools", "runners", "runnerscalesets"}

// columns are what kubectl get -o wide shows.
func (r *Recorder) columns(ctx context.Context) (string, error) {
	c, err := rest.HTTPClientFor(r.w.Cluster.Config)
	if err != nil {
		return "", err
	}
	out := &strings.Builder{}
	for _, kind := range resources {
		table, err := r.table(ctx, c, kind)
		if err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
		table.Rows = slices.DeleteFunc(table.Rows, func(row metav1.TableRow) bool { return r.isAside(fmt.Sprint(row.Cells[0])) })
		if len(table.Rows) > 0 {
			fmt.Fprintf(out, "$ kubectl get %s -o wide\n%s", kind, r.columnsOf(table))
		}
	}
	return out.String(), nil
}

func (r *Recorder) table(ctx context.Context, c *http.Client, kind string) (*metav1.Table, error) {
	url := fmt.Sprintf("%s/apis/%s/namespaces/%s/%s", strings.TrimSuffix(r.w.Cluster.Config.Host, "/"), v1alpha1.GroupVersion, r.Namespace, kind)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	table, decoder := &metav1.Table{}, json.NewDecoder(answer.Body)
	decoder.UseNumber()
	return table, decoder.Decode(table)
}

// columnsOf is a table as kubectl prints it, without ages.
func (r *Recorder) columnsOf(table *metav1.Table) string {
	out := &strings.Builder{}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(cell func(column int) any) string {
		var cells []string
		for i, column := range table.ColumnDefinitions {
			if column.Name != "Age" && column.Format != "date" {
				line, _, more := strings.Cut(fmt.Sprint(cell(i)), "\n")
				if more {
					line += "..."
				}
				if column.Name == "ID" && line != "" && line != "<nil>" && line != "ID" {
					line = "N"
				}
				cells = append(cells, line)
			}
		}
		return settle(strings.ReplaceAll(strings.Join(cells, "\t"), "<nil>", ""))
	}
	fmt.Fprintln(w, strings.ToUpper(row(func(i int) any { return table.ColumnDefinitions[i].Name })))
	var lines []string
	for _, one := range table.Rows {
		lines = append(lines, row(func(i int) any { return one.Cells[i] }))
	}
	for _, line := range r.alike(lines) {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush() // to a builder
	return out.String()
}

// quiet conditions are on every pool. They are recorded only with the status that reports a problem.
var quiet = map[string]metav1.ConditionStatus{
	v1alpha1.SaturatedCondition: metav1.ConditionTrue, v1alpha1.DrainableCondition: metav1.ConditionFalse, v1alpha1.RunnerVersionCondition: metav1.ConditionFalse,
}

func isQuiet(c metav1.Condition) bool {
	problem, ok := quiet[c.Type]
	return ok && c.Status != problem
}

// conditions of all objects except for quiet ones.
func (r *Recorder) conditions(ctx context.Context) (map[string][]string, error) {
	all := map[string][]string{}
	for _, list := range []client.ObjectList{
		&v1alpha1.GitHubConnectionList{}, &v1alpha1.PoolSourceList{}, &v1alpha1.RunnerPolicyList{}, &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}, &v1alpha1.RunnerScaleSetList{},
	} {
		if err := r.w.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
			return nil, err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(kube.Object)
			if r.isAside(o.GetName()) {
				return nil
			}
			lines := []string{}
			for _, c := range slices.SortedFunc(slices.Values(o.GetConditions()), func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) }) {
				if !isQuiet(c) {
					lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
				}
			}
			all[strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.")+" "+o.GetName()] = lines
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// events of Corral, by object in the order in which they came, and how many are Warnings.
func (r *Recorder) events(ctx context.Context) (perObject map[string][]string, warnings int, err error) {
	list := &eventsv1.EventList{}
	if err := r.w.Client.List(ctx, list, client.InNamespace(r.Namespace)); err != nil {
		return nil, 0, err
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	perObject = map[string][]string{}
	for _, e := range list.Items {
		if e.ReportingController != "corral" || r.isAside(e.Regarding.Name) || r.Aside != "" && r.isChance(&e) {
			continue
		}
		line := fmt.Sprintf("%-7s %s: %s", e.Type, e.Reason, e.Note)
		if e.Series != nil && r.Aside == "" {
			line += fmt.Sprintf(" (%d times)", e.Series.Count)
		}
		about := e.Regarding.Kind + " " + e.Regarding.Name
		perObject[about] = append(perObject[about], line)
		if e.Type == corev1.EventTypeWarning {
			warnings++
		}
	}
	return perObject, warnings, nil
}

// isChance says whether it depends on the moment that the event was told.
func (r *Recorder) isChance(e *eventsv1.Event) bool {
	return slow.MatchString(e.Note) || !r.any && (surplus.MatchString(e.Note) || e.Reason == string(v1alpha1.RunnerFinished))
}

// log is what the controllers logged at the level info and above, by object.
func (r *Recorder) log(quiet bool) (perObject map[string][]string, err error) {
	perObject = map[string][]string{}
	for _, c := range r.Logs {
		text, err := os.ReadFile(c.LogPath)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			if r.Aside != "" && !bytes.Contains(line, fmt.Appendf(nil, "%q", r.Namespace)) {
				continue
			}
			fields := map[string]any{}
			if err := json.Unmarshal(line, &fields); err != nil {
				fields = map[string]any{"level": "none", "msg": string(bytes.TrimSpace(line))}
			}
			if about, said := readLine(fields); r.tells(about, said, quiet) {
				perObject[about] = append(perObject[about], said)
			}
		}
	}
	return perObject, nil
}

// tells says whether a line of the log belongs to the tale.
func (r *Recorder) tells(about, said string, quiet bool) bool {
	switch {
	case r.isAside(about[strings.IndexByte(about, ' ')+1:]), r.Aside != "" && slow.MatchString(said):
		return false
	case !strings.HasPrefix(said, "info"):
		return true
	case r.Aside != "" && (strings.HasPrefix(about, "Runner ") || strings.HasPrefix(said, "info  Session ") || isScaling(said) > 0):
		return false
	}
	return about != nobody && !quiet
}

// everywhere are the fields of a line that say where it comes from, and those of a decision that are long.
var everywhere = []string{
	"level", "ts", "msg", "logger", "version", "controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID", "caller", "stacktrace",
	"decision_id", "bundles", "input", "erased", "masked", "timestamp", "metrics",
}

// slow is said of an API server, or a child process, that others keep busy.
var slow = regexp.MustCompile(`context deadline exceeded|Client\.Timeout exceeded|no container status|could not be asked: there was no answer within|net/http: request canceled`)

// surplus is said of runners that end as there are fewer jobs by then: whether any are is a matter of the moment.
var surplus = regexp.MustCompile(`; surplus: \d+ jobs?`)

// nobody is whom a line is about that names no object.
const nobody = "the controller"

// readLine returns a line of the log, and what it is about.
func readLine(fields map[string]any) (about, said string) {
	about = nobody
	if kind, ok := fields["controllerKind"].(string); ok && fields["name"] != nil {
		about = fmt.Sprintf("%s %s", kind, fields["name"])
		delete(fields, kind)
	} else if set, ok := fields["scaleSet"].(map[string]any); ok { // of its session
		about = fmt.Sprintf("RunnerScaleSet %s", set["name"])
		delete(fields, "scaleSet")
	}
	if runner, ok := fields["runner"]; ok { // which is one of many
		about = fmt.Sprintf("Runner %s", runner)
	}
	if runner, ok := strings.CutPrefix(fmt.Sprint(fields["deleted"]), "Runner "); ok {
		about = "Runner " + path.Base(runner)
		delete(fields, "deleted")
	}
	said = fmt.Sprintf("%-5s %s", fields["level"], fields["msg"])
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(everywhere, key) {
			value, _ := json.Marshal(fields[key]) // it was read as JSON
			said += fmt.Sprintf(" %s=%s", key, value)
		}
	}
	return about, said
}

// byObject writes down what was told of each object; objects of which the same was told are written once.
func (r *Recorder) byObject(perObject map[string][]string) string {
	var all []string
	for about, lines := range perObject {
		if strings.HasPrefix(about, "Runner ") {
			slices.Sort(lines) // two controllers and the session tell of it at a time
		} else {
			slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(isScaling(a), isScaling(b)) })
		}
		for i := range lines {
			lines[i] = settle(lines[i])
		}
		all = append(all, strings.Join(append([]string{settle(about)}, slices.Compact(lines)...), "\n  "))
	}
	return strings.Join(r.alike(all), "\n") + "\n"
}

// isScaling is 1 of a line of a pool's numbers: they change while its conditions do.
func isScaling(line string) int { return strings.Count(line, " Scaling ") }

// alike sorts texts, and says once what is the same of several, how many times.
func (r *Recorder) alike(texts []string) []string {
	count := map[string]int{}
	for _, t := range texts {
		count[t]++
	}
	var all []string
	for _, t := range slices.Sorted(maps.Keys(count)) {
		if n := count[t]; n > 1 && r.Aside == "" {
			first, rest, _ := strings.Cut(t+"\n", "\n")
			t = strings.TrimSuffix(fmt.Sprintf("%s (%d of them)\n%s", first, n, rest), "\n")
		}
		all = append(all, t)
	}
	return all
}

// counted are numbers that grow while others use the controllers, and what a busy API server adds.
var counted = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d+ runners in a row failed`), "N runners in a row failed"},
	{regexp.MustCompile(`(acknowledging message \d+|polling for messages): GitHub answered 401`), "SOME CALL: GitHub answered 401"}, // as which was first
	{regexp.MustCompile(`\bscale set \d+`), "scale set N"},
	{regexp.MustCompile(`\d+ polic(y|ies), `), "N policies, "}, // those of the cluster among them
	{regexp.MustCompile(`\b(corral-cache-[a-z]+)-\d+\b`), "$1-N"},
	{regexp.MustCompile(`(?m)^(  Node +\S+)-\d+$`), "$1-N"},
	{regexp.MustCompile(`(?m)^(  - .*\n)(?:  - .*: Slow: not running within 5s: no container status\n)+`), "$1"},
}

// varying is what differs from one telling to the next.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\d\d:\d\d:\d\dZ`), "CLOCK"},
	{regexp.MustCompile(`(TIME|CLOCK) \([^)]*\)`), "$1 (AGO)"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`sha1:[0-9a-f]{7,40}`), "sha1:COMMIT"},
	{regexp.MustCompile(`\bcommit [0-9a-f]{7,40}\b`), "commit COMMIT"},
	{regexp.MustCompile(`file:///\S+\.git`), "REPOSITORY"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "sha256:DIGEST"},
	{regexp.MustCompile(`\bid [0-9a-f]{16}\b`), "id DECISION"},
	{regexp.MustCompile(` \(X-GitHub-Request-Id [0-9A-F-]+\)`), ""},
	{regexp.MustCompile(`reason="(Finished: [^"]*|its job is over: \w+)"`), `reason="ITS JOB IS OVER"`}, // as the pool or GitHub's message was first
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST"},
	{regexp.MustCompile(`(\(id |\bid=|scaleSetID=|messageID=)\d+`), "${1}N"},                                                  // as which pool was first
	{regexp.MustCompile(`RunnersEnded: \d+ runners? without a job: [^;]*;`), "RunnersEnded: N runners without a job: NAMES;"}, // as many as were there
	{regexp.MustCompile(`(?m)^  before: .*\n`), ""},                                                                           // as two decisions were one or not
	{regexp.MustCompile(`(?m)^Recent\n(?:  .*\n)+\n`), ""},                                                                    // written down at most once a minute
	{regexp.MustCompile(`\b([a-z][a-z0-9]*)-[a-v0-9]{5}-\d+\b`), "$1-RUNNER"},
	{regexp.MustCompile(`Controllers: \S+ leads`), "Controllers: SOMEBODY leads"},
}

// settle is text without what differs from one telling to the next, and if others use the controllers, from one moment to the next.
func (r *Recorder) settle(text string) string {
	text = settle(text)
	if r.Aside == "" {
		return text
	}
	for _, v := range counted {
		text = v.what.ReplaceAllString(text, v.by)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if len(lines) == 0 || line != lines[len(lines)-1] {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// settle is text without what differs from one telling to the next.
func settle(text string) string {
	for _, v := range varying {
		text = v.what.ReplaceAllString(text, v.by)
	}
	return text
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

// scrapeTimeout bounds one request for the controller's metrics.
const scrapeTimeout = 5 * time.Second

// rowOf returns the columns that kubectl shows of a pool.
func rowOf(p *v1alpha1.RunnerPool) poolRow {
	row := poolRow{
		Name: p.Name, Jobs: p.Status.GetJobs(), Max: p.Spec.Scale.GetMax(),
		Busy: p.Status.Runners.Busy, Idle: p.Status.Runners.Idle, Starting: p.Status.Runners.Pending,
		Ready: conditions.IsReady(p), Message: conditions.GetMessage(p, fluxmeta.ReadyCondition),
	}
	if d := p.Status.Decision; d != nil {
		row.Desired, row.Why = d.Desired, d.Reason
	}
	return row
}

// rows returns the state of all pools.
func (d *demo) rows(ctx context.Context) ([]poolRow, error) {
	list := &v1alpha1.RunnerPoolList{}
	if err := d.world.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	rows := make([]poolRow, 0, len(list.Items))
	for i := range list.Items {
		rows = append(rows, rowOf(&list.Items[i]))
	}
	return rows, nil
}

func (d *demo) pool(ctx context.Context, name string) (*v1alpha1.RunnerPool, error) {
	p := &v1alpha1.RunnerPool{}
	if err := d.world.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
		return nil, fmt.Errorf("getting pool %s: %w", name, err)
	}
	return p, nil
}

// capacity returns the capacity that a scale set announced last, or -1 if it has no session.
func (d *demo) capacity(scaleSet string) int {
	for _, s := range d.world.GitHub.Report().ScaleSets {
		if s.Name == scaleSet && s.SessionOwner != "" {
			return s.Capacity
		}
	}
	return -1
}

// source returns the PoolSource.
func (d *demo) source(ctx context.Context) (*v1alpha1.PoolSource, error) {
	s := &v1alpha1.PoolSource{}
	if err := d.world.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sourceName}, s); err != nil {
		return nil, fmt.Errorf("getting the PoolSource: %w", err)
	}
	return s, nil
}

// applied returns the message of the PoolSource if it has applied a commit.
func (d *demo) applied(ctx context.Context, commit string) (string, error) {
	s, err := d.source(ctx)
	if err != nil {
		return "", err
	}
	message := conditions.GetMessage(s, fluxmeta.ReadyCondition)
	if !conditions.IsReady(s) || !strings.HasSuffix(s.Status.LastAppliedRevision, commit) {
		return "", fmt.Errorf("the PoolSource says: %s", message)
	}
	return message, nil
}

// refused returns the message of the PoolSource if it has rejected a commit for the given reason.
func (d *demo) refused(ctx context.Context, commit, reason string) (string, error) {
	s, err := d.source(ctx)
	if err != nil {
		return "", err
	}
	message := conditions.GetMessage(s, fluxmeta.ReadyCondition)
	if !conditions.IsStalled(s) || conditions.GetReason(s, fluxmeta.ReadyCondition) != reason || !strings.HasSuffix(s.Status.LastAttemptedRevision, commit) {
		return "", fmt.Errorf("the PoolSource says: %s", message)
	}
	return message, nil
}

// leftovers lists the objects that Corral created, in the namespace and on GitHub, and that still exist.
func (d *demo) leftovers(ctx context.Context) ([]string, error) {
	var left []string
	lists := []client.ObjectList{
		&v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}, &v1alpha1.RunnerScaleSetList{},
		&corev1.PodList{}, &corev1.SecretList{}, &appsv1.ControllerRevisionList{},
	}
	expected := []string{credentialsName, hookSecretName}
	for _, list := range lists {
		if err := d.world.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("looking for leftovers: %w", err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil, fmt.Errorf("looking for leftovers: %w", err)
		}
		for _, item := range items {
			object := item.(client.Object)
			if !slices.Contains(expected, object.GetName()) {
				left = append(left, strings.TrimPrefix(fmt.Sprintf("%T %s", object, object.GetName()), "*"))
			}
		}
	}
	return append(left, d.world.GitHub.Leftovers()...), nil
}

// progress counts the jobs by state.
func (d *demo) progress() (done, running, waiting int) {
	for _, j := range d.world.GitHub.Jobs() {
		switch j.State {
		case githubsim.JobCompleted:
			done++
		case githubsim.JobRunning:
			running++
		default:
			waiting++
		}
	}
	return done, running, waiting
}

// use is the resource use of the controller process so far.
type use struct {
	KubeRequests, CPUSeconds, MemoryBytes float64
}

// readUse reads the controller's metrics.
func readUse(ctx context.Context, url string) (use, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return use{}, fmt.Errorf("asking for metrics: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return use{}, fmt.Errorf("asking for metrics: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return use{}, fmt.Errorf("asking for metrics: %s", answer.Status)
	}
	return parseUse(answer.Body)
}

// parseUse reads Prometheus's text format and sums each metric's series.
// See https://prometheus.io/docs/instrumenting/exposition_formats/.
func parseUse(text io.Reader) (use, error) {
	var u use
	wanted := map[string]*float64{
		"rest_client_requests_total":    &u.KubeRequests,
		"process_cpu_seconds_total":     &u.CPUSeconds,
		"process_resident_memory_bytes": &u.MemoryBytes,
	}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		sum := wanted[name]
		if sum == nil {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return use{}, fmt.Errorf("reading metric %s: %w", name, err)
		}
		*sum += value
	}
	if err := lines.Err(); err != nil {
		return use{}, fmt.Errorf("reading metrics: %w", err)
	}
	return u, nil
}

// countErrors counts the lines of level error in the controller's log.
func countErrors(path string) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("reading the controller's log: %w", err)
	}
	defer file.Close()
	errors := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), `{"level":"error"`) {
			errors++
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading the controller's log: %w", err)
	}
	return errors, nil
}

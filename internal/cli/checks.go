// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// poolCheck is a check of one field of a pool. message returns "" if there is nothing to report. The findings of checks with
// the rule ruleLabels are notes, and all others are warnings.
type poolCheck struct {
	rule, title, path, help string
	message                 func(p *declaredPool) string
}

// publicTrust is the value of spec.trust for pools that run any user's code.
const publicTrust = "public"

// poolChecks returns the checks of pools. The caller must run each check once for each pool, in order, because some checks
// compare a pool with the previous ones.
func (w *workspace) poolChecks() []poolCheck {
	var before []*declaredPool
	const apart = "give one of them another label or runner group, or other repositories in spec.demand.webhook"
	scaleSets := map[string]string{}
	return []poolCheck{
		{ruleCompeting, "Pools compete for the same jobs", ".spec.runnerLabels", apart,
			func(p *declaredPool) string {
				var others []string
				for _, other := range before {
					if w.compete(other, p) {
						others = append(others, other.name())
					}
				}
				before = append(before, p)
				if len(others) == 0 {
					return ""
				}
				return fmt.Sprintf("pool %s matches the same jobs: webhooks assign all of them to the older pool", strings.Join(others, ", "))
			}},
		{ruleCompeting, "Pools compete for the same jobs", ".spec.runnerLabels", apart, w.sharedNameCheck()},
		{ruleConnection, "Connection is not declared here", ".spec.connectionRef.name", "", w.undeclaredConnection},
		{ruleConnection, "Connection is not declared here", ".spec.connectionRef.namespace", "", w.connectionElsewhere},
		{ruleCredentials, "Jobs can read credentials", ".spec.containerMode", "", func(p *declaredPool) string { return podspec.HooksMayRead(p.RunnerPool) }},
		{ruleWorkFolder, "Docker daemon without the work folder", ".spec.template", "", func(p *declaredPool) string { return podspec.DaemonApart(p.RunnerPool) }},
		{ruleLabels, "Scale set's name is not a label", ".spec.runnerLabels", "", (*declaredPool).missingNameNote},
		{ruleScaleSet, "Pools share a scale set", ".spec.scaleSetName", "", func(p *declaredPool) string {
			if p.Spec.Registration == v1alpha1.RegisterREST {
				return ""
			}
			name := p.GetScaleSetName()
			key := strings.ToLower(strings.Join([]string{connectionOf(p.RunnerPool), p.Spec.GetRunnerGroup(), name}, "\n"))
			if other, taken := scaleSets[key]; taken {
				return fmt.Sprintf("pool %s has the scale set %s, too: one of the two will be refused", other, name)
			}
			scaleSets[key] = p.name()
			return ""
		}},
		{ruleTrust, "Container without certificates", ".spec.template", "", func(p *declaredPool) string {
			pod, err := podspec.Specimen(p.RunnerPool)
			if err != nil || !w.network(p.RunnerPool).CA { // another check reports an invalid template
				return ""
			}
			return podspec.OwnTrust(pod)
		}},
		{rulePersistent, "Persistent runners for untrusted jobs", ".spec.lifetime", "use lifetime Job, or declare in spec.trust whose code the runners run, such as internal",
			func(p *declaredPool) string {
				if !p.Spec.Persists() || p.Spec.Trust != "" && p.Spec.Trust != publicTrust {
					return ""
				}
				return "its pods get a token that registers any runner, and each job finds the files of previous jobs: do not run untrusted code on them"
			}},
	}
}

// undeclaredConnection returns a warning if a pool's connection is not declared here, but other connections are.
func (w *workspace) undeclaredConnection(p *declaredPool) string {
	name := connectionOf(p.RunnerPool)
	if len(w.connections) == 0 || w.connections[name].GitHubConnection != nil || w.namespacesOf(p.Spec.ConnectionRef.Name) != "" {
		return ""
	}
	similar := wording.Closest(name, slices.Sorted(maps.Keys(w.connections)), 2)
	return fmt.Sprintf("no GitHubConnection %s is declared here, so it must be in the cluster", name) + wording.DidYouMean(strings.TrimPrefix(similar, p.Spec.ConnectionRef.Namespace+"/"))
}

// connectionElsewhere returns a warning if a pool's connection is declared only in other namespaces.
func (w *workspace) connectionElsewhere(p *declaredPool) string {
	name, there := connectionOf(p.RunnerPool), w.namespacesOf(p.Spec.ConnectionRef.Name)
	if w.connections[name].GitHubConnection != nil || there == "" {
		return ""
	}
	return fmt.Sprintf("no GitHubConnection %s is declared here, so it must be in the cluster; %s is in namespace %s", name, p.Spec.ConnectionRef.Name, there)
}

// missingNameNote returns a note for pools whose runnerLabels leave out the scale set's name.
func (p *declaredPool) missingNameNote() string {
	hasName := slices.ContainsFunc(p.Spec.RunnerLabels, func(label string) bool { return strings.EqualFold(label, p.GetScaleSetName()) })
	if len(p.Spec.RunnerLabels) == 0 || hasName || p.Spec.GetRegistration() == v1alpha1.RegisterREST {
		return ""
	}
	return "runnerLabels replaces the scale set's name, which ARC adds to its labels: list the name too if jobs ask for it"
}

// warnings returns the findings about pools and connections. now determines which schedules are over.
func (w *workspace) warnings(now time.Time) (found []report.Finding) {
	for _, name := range slices.Sorted(maps.Keys(w.connections)) {
		c := w.connections[name]
		if strings.HasPrefix(c.Spec.URL, exampleURL) {
			found = append(found, warning(ruleUnfinished, "URL is a placeholder", c.object.Diagnostic(".spec.url",
				c.Spec.URL+" is a placeholder: put the URL of your organization, repository or enterprise there")))
		}
	}
	for _, check := range w.poolChecks() {
		for i := range w.pools {
			message := check.message(&w.pools[i])
			if message == "" {
				continue
			}
			f := w.pools[i].warning(check.rule, check.title, check.path, message)
			f.Help = check.help
			if check.rule == ruleLabels {
				f.Level, f.Message = report.Note, message
			}
			found = append(found, f)
		}
	}
	for i := range w.pools {
		for _, problem := range w.pools[i].plan.Warnings(now) {
			found = append(found, w.pools[i].warning(ruleSchedule, "Schedule without effect", "."+problem.Path, problem.Message))
		}
	}
	return found
}

// commandWarnings warns about pools that run GitHub's image without a command, because the image has no entrypoint.
func (w *workspace) commandWarnings() (found []report.Finding) {
	for i := range w.pools {
		field := podspec.CommandMissing(w.pools[i].Spec.Template.Raw)
		if field != "" && !w.pools[i].Spec.Persists() { // Corral starts persistent runners itself
			f := w.pools[i].warning(ruleCommand, "Runner without a command", "."+field, "GitHub's runner image starts nothing by itself, so the runner ends without a job")
			f.Help = `set command: ["/home/runner/run.sh"]`
			found = append(found, f)
		}
	}
	return found
}

// compete reports whether webhooks count the same jobs for two pools. If so, the older pool gets all of these jobs. If a
// connection is not declared here, compete uses its name instead of its URL.
func (w *workspace) compete(a, b *declaredPool) bool {
	haveWebhooks := a.Spec.Demand.Webhook != nil && b.Spec.Demand.Webhook != nil
	return haveWebhooks && a.Namespace == b.Namespace && a.Spec.GetMode() == b.Spec.GetMode() && jobmatch.Compete(w.match(a), w.match(b))
}

// sharedNameCheck returns a check for pools that share the name of a scale set as a label: jobs that request only this label
// may go to either pool. The check looks up candidates by label, because comparing all pairs of thousands of pools would
// take most of vet's time.
func (w *workspace) sharedNameCheck() func(p *declaredPool) string {
	withLabel, withName := map[string][]*declaredPool{}, map[string][]*declaredPool{} // the previous pools by label, and by the name of the scale set
	return func(p *declaredPool) string {
		if p.Spec.GetMode() == v1alpha1.Observe || p.Spec.GetRegistration() == v1alpha1.RegisterREST {
			return ""
		}
		match, name := w.match(p), strings.ToLower(p.GetScaleSetName())
		labels := slices.Sorted(match.Labels())
		candidates := slices.Clone(withLabel[name])
		for _, label := range labels {
			candidates = append(candidates, withName[label]...)
		}
		for _, other := range candidates {
			shared := jobmatch.SharedName(w.match(other), match, other.GetScaleSetName(), p.GetScaleSetName())
			if shared != "" {
				return fmt.Sprintf("jobs that ask for %s alone may also go to pool %s, which has this label, too", shared, other.name())
			}
		}
		withName[name] = append(withName[name], p)
		for _, label := range labels {
			withLabel[label] = append(withLabel[label], p)
		}
		return ""
	}
}

// match returns the data with which jobs are matched to the pool. It caches them, because compete compares each pool with
// many others.
func (w *workspace) match(p *declaredPool) *jobmatch.Pool {
	if p.match != nil {
		return p.match
	}
	scope, ok := jobmatch.ScopeOf(w.connection(p.RunnerPool).Spec.URL)
	if !ok {
		scope = jobmatch.Scope{Kind: jobmatch.Organization, Path: connectionOf(p.RunnerPool)}
	}
	p.match = new(jobmatch.Of(p.RunnerPool, scope))
	return p.match
}

// connectionOf returns the qualified name of a pool's connection. The name has no namespace if neither the pool nor its
// reference declares one.
func connectionOf(p *v1alpha1.RunnerPool) string {
	key := p.Spec.ConnectionRef.From(p.Namespace)
	return wording.Qualified(key.Namespace, key.Name)
}

// name returns the pool's qualified name.
func (p *declaredPool) name() string { return wording.Qualified(p.Namespace, p.Name) }

// warning returns a finding about a field of the pool.
func (p *declaredPool) warning(rule, title, path, message string) report.Finding {
	f := warning(rule, title, p.object.Diagnostic(path, message))
	f.Subject = "pool " + p.name()
	return f
}

// network returns the network settings that a pool's pods inherit from its connection, if the connection is declared here.
func (w *workspace) network(p *v1alpha1.RunnerPool) podspec.Network {
	return podspec.NetworkOf(&w.connection(p).Spec)
}

// connection returns a pool's connection, or an empty object if the connection is not declared here.
func (w *workspace) connection(p *v1alpha1.RunnerPool) *v1alpha1.GitHubConnection {
	return cmp.Or(w.connections[connectionOf(p)].GitHubConnection, &v1alpha1.GitHubConnection{})
}

// credentialProblems reports a pool whose pod reads a Secret with the credentials of a connection.
func (w *workspace) credentialProblems(p *declaredPool) []v1alpha1.Diagnostic {
	var credentials []string
	for _, c := range w.connections {
		if c.Namespace == p.Namespace {
			credentials = append(credentials, c.Secrets()...)
		}
	}
	pod, err := podspec.Specimen(p.RunnerPool)
	if err == nil {
		err = podspec.CheckSecrets(pod, credentials)
	}
	if err == nil {
		return nil
	}
	at := &podspec.FieldError{}
	if !errors.As(err, &at) {
		at.Problem = err.Error()
	}
	return []v1alpha1.Diagnostic{p.object.Diagnostic(strings.TrimSuffix("."+at.Path, "."), at.Problem)}
}

// namespacesOf returns the namespaces in which connections with the given name are declared, separated by commas.
func (w *workspace) namespacesOf(connection string) string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(w.connections)) {
		if namespace, base := path.Split(name); base == connection && namespace != "" {
			found = append(found, strings.TrimSuffix(namespace, "/"))
		}
	}
	return strings.Join(found, ", ")
}

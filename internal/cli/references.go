// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// unfinished warns of connections with the URL that init writes if it is told none.
func (w *workspace) unfinished() []report.Finding {
	var warnings []report.Finding
	for _, o := range w.Objects {
		url, _, _ := unstructured.NestedString(o.Manifest.Object, "spec", "url")
		if o.Manifest.GetKind() == "GitHubConnection" && strings.HasPrefix(url, exampleURL) {
			warnings = append(warnings, warning(ruleUnfinished, "URL is a placeholder", o.Diagnostic(".spec.url",
				url+" is a placeholder: put the URL of your organization, repository or enterprise there")))
		}
	}
	return warnings
}

// unreferenced warns of pools whose connection is not among those that are declared, if any are.
func (w *workspace) unreferenced() []report.Finding {
	declared := w.connections()
	if len(declared) == 0 {
		return nil
	}
	var warnings []report.Finding
	for i := range w.pools {
		p := &w.pools[i]
		if name := connectionOf(p.RunnerPool); declared[name] == nil {
			warnings = append(warnings, p.warning(ruleConnection, "Connection is not declared here", ".spec.connectionRef",
				fmt.Sprintf("no GitHubConnection %s is declared here, so it must be in the cluster", name)))
		}
	}
	return warnings
}

// exposed warns of pools whose jobs could read the credentials of their connection.
func (w *workspace) exposed() []report.Finding {
	var warnings []report.Finding
	for i := range w.pools {
		p := &w.pools[i]
		if why := podspec.HooksMayRead(p.RunnerPool); why != "" {
			warnings = append(warnings, p.warning(ruleCredentials, "Jobs can read credentials", ".spec.containerMode", why))
		}
	}
	return warnings
}

// sharedScaleSets warns of pools that would have the same scale set on GitHub: only one of them gets it.
func (w *workspace) sharedScaleSets() []report.Finding {
	first := map[string]*declaredPool{}
	var warnings []report.Finding
	for i := range w.pools {
		p := &w.pools[i]
		if p.Spec.Registration == v1alpha1.RegisterREST {
			continue
		}
		name := p.GetScaleSetName()
		key := strings.ToLower(strings.Join([]string{connectionOf(p.RunnerPool), p.Spec.RunnerGroup, name}, "\n"))
		if other := first[key]; other != nil {
			warnings = append(warnings, p.warning(ruleScaleSet, "Pools share a scale set", ".spec.scaleSetName",
				fmt.Sprintf("pool %s has the scale set %s, too: one of the two will be refused", wording.Qualified(other.Namespace, other.Name), name)))
			continue
		}
		first[key] = p
	}
	return warnings
}

// withoutCertificates warns of containers that don't get the certificates of their pool's connection.
func (w *workspace) withoutCertificates() []report.Finding {
	var warnings []report.Finding
	for i := range w.pools {
		p := &w.pools[i]
		if !w.network(p.RunnerPool).CA {
			continue
		}
		pod, err := podspec.Specimen(p.RunnerPool)
		if err != nil {
			continue // what is wrong with the template is told elsewhere
		}
		if found := podspec.OwnTrust(pod); found != "" {
			warnings = append(warnings, p.warning(ruleTrust, "Container lacks certificates", ".spec.template", found))
		}
	}
	return warnings
}

// publicTrust is the word of pools that run everybody's code.
const publicTrust = "public"

// staying warns of pools whose runners stay although it isn't known that those are trusted whose jobs they take.
func (w *workspace) staying() []report.Finding {
	var warnings []report.Finding
	for i := range w.pools {
		p := &w.pools[i]
		if !p.Spec.Persists() || p.Spec.Trust != "" && p.Spec.Trust != publicTrust {
			continue
		}
		warning := p.warning(rulePersistent, "Runners stay for anybody's jobs", ".spec.lifetime",
			"its pods get a token that registers any runner, and each job finds what the one before left: not for code of people you don't trust")
		warning.Help = "leave lifetime at Job, or say in spec.trust whose code the runners run, such as internal"
		warnings = append(warnings, warning)
	}
	return warnings
}

// warning is about a field of a pool.
func (p *declaredPool) warning(rule, title, path, message string) report.Finding {
	w := warning(rule, title, p.object.Diagnostic(path, message))
	w.Subject = p.subject()
	return w
}

// subject names the pool in findings.
func (p *declaredPool) subject() string { return "pool " + wording.Qualified(p.Namespace, p.Name) }

// connections are the spec of those that are declared, by namespace and name.
func (w *workspace) connections() map[string]map[string]any {
	declared := map[string]map[string]any{}
	for _, object := range w.Objects {
		if m := object.Manifest; m.GetKind() == "GitHubConnection" {
			spec, _ := m.Object["spec"].(map[string]any)
			declared[wording.Qualified(m.GetNamespace(), m.GetName())] = spec
		}
	}
	return declared
}

// network is what a pool's pods get of its connection's, as far as that is declared here.
func (w *workspace) network(p *v1alpha1.RunnerPool) podspec.Network {
	if w.declared == nil {
		w.declared = w.connections()
	}
	spec := &v1alpha1.GitHubConnectionSpec{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(w.declared[connectionOf(p)], spec) != nil {
		return podspec.Network{} // what is wrong with its fields is told elsewhere
	}
	return podspec.NetworkOf(spec)
}

// credentials are the names of the Secrets of connections, by namespace.
func (w *workspace) credentials() map[string][]string {
	secrets := map[string][]string{}
	for _, object := range w.Objects {
		c := &v1alpha1.GitHubConnection{}
		if object.Manifest.GetKind() != "GitHubConnection" || runtime.DefaultUnstructuredConverter.FromUnstructured(object.Manifest.Object, c) != nil {
			continue // what is wrong with its fields is told elsewhere
		}
		secrets[c.Namespace] = append(secrets[c.Namespace], c.Secrets()...)
	}
	return secrets
}

// reads says which of the Secrets with credentials a pool's pod would read.
func (p *declaredPool) reads(credentials []string) []v1alpha1.Diagnostic {
	pod, err := podspec.Specimen(p.RunnerPool)
	if err == nil {
		err = podspec.CheckSecrets(pod, credentials)
	}
	if err == nil {
		return nil
	}
	var at *podspec.FieldError
	if errors.As(err, &at) {
		return []v1alpha1.Diagnostic{p.object.Diagnostic("."+at.Path, at.Problem)}
	}
	return []v1alpha1.Diagnostic{p.object.Diagnostic("", err.Error())}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

// useToken writes a token to the Secret of the connection acme, and triggers a reconciliation.
func (s *fixture) useToken(token string) {
	s.Helper()
	s.patch(w.CredentialsSecret(s.namespace, "acme"), fmt.Sprintf(`{"stringData":{%q:%q}}`, v1alpha1.TokenKey, token))
	s.request(s.connection())
}

// listening creates a pool and waits until it is ready.
func (s *fixture) listening(name string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	s.Helper()
	p := s.pool(name, change...)
	s.ready(p)
	return p
}

// badToken are the causes of a connection whose Secret, SECRET, has a token that GitHub refuses.
const badToken = `SecretRefusedByGitHub secret="SECRET"`

func TestAWrongToken(t *testing.T) {
	s := newFixture(t)
	secret := w.CredentialsSecret(s.namespace, "wrong")
	secret.StringData[v1alpha1.TokenKey] = "ghp_wrong"
	s.create(secret)
	connection := s.connection()
	connection.Name = "wrong"
	connection.Spec = v1alpha1.GitHubConnectionSpec{URL: s.github.ConfigURL(s.namespace), SecretRef: &v1alpha1.LocalObjectReference{Name: "wrong"}}
	s.create(connection)
	s.says(connection, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.CredentialsRefusedReason, Stalled: true, Causes: badToken, Details: []string{"401"},
	}, `"wrong"`, `"SECRET"`)
	pool := newPool(s.namespace, "linux", "wrong")
	s.create(pool)
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ConnectionNotReadyReason,
		Causes: "ConnectionFailed connection=\"wrong\" reason=\"CredentialsRefused\"\nOfScaleSet",
	})
	s.look(v1alpha1.CredentialsRefusedReason, 1, "pool/linux")
	s.othersGoOn()
	s.patch(secret, fmt.Sprintf(`{"stringData":{%q:%q}}`, v1alpha1.TokenKey, world.Token))
	s.request(connection)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
}

func TestARotationToAWrongToken(t *testing.T) {
	s := newFixture(t)
	s.listening("linux")
	s.useToken("ghp_wrong")
	s.says(s.connection(), verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.CredentialsRefusedReason, Stalled: true,
		Causes: badToken + "\nFormerCredentials", Details: []string{"401"},
	}, `"acme"`, `"SECRET"`)
	s.look(v1alpha1.CredentialsRefusedReason, 1, "pool/linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond)) // with the previous token
	s.othersGoOn()
}

func TestATokenThatLosesItsRightsLater(t *testing.T) {
	s := newFixtureOnOwnGitHub(t, githubsim.Options{SessionExpiry: 3 * time.Second})
	token := "ghp_" + s.namespace
	s.github.AddToken(token)
	s.useToken(token)
	pool := s.listening("linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond))

	s.github.AddToken(token, "organization_self_hosted_runners:read")
	s.github.ExpireAdminTokens()
	waiting := s.addJobs("linux", 1, time.Millisecond)
	s.says(s.connection(), verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PermissionMissingReason, Stalled: true,
		Causes: "PermissionMissing", Details: []string{`"Self-hosted runners: read and write"`, "admin:org", "403", "Resource not accessible by personal access token"},
	})
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PermissionMissingReason,
		Causes: "PermissionMissing\nOfRunner runner=\"RUNNER\"", Details: []string{`"RUNNER"`, "403", "Resource not accessible by personal access token"},
	})
	s.look(v1alpha1.PermissionMissingReason, 1, "pool/linux")
	s.othersGoOn()

	s.github.AddToken(token)
	s.request(s.connection())
	s.allDone(waiting)
}

func TestARunnerGroupThatDoesNotExist(t *testing.T) {
	s := newFixture(t)
	pool := s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerGroup = "gpu" })
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.RunnerGroupNotFoundReason, Stalled: true,
		Causes: "RunnerGroupMissing group=\"gpu\" connection=\"acme\"\nOfScaleSet",
	})
	s.look("gpu", 1, "pool/linux")
	s.othersGoOn()
	s.patch(pool, `{"spec":{"runnerGroup":"default"}}`)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
}

// refusesTemplate shows that a template is rejected with a reason, both in a new pool and as a change to a running
// one. The running pool keeps the previous template.
func (s *fixture) refusesTemplate(template, code, field string, values ...string) {
	s.Helper()
	fresh := s.pool("fresh", func(p *v1alpha1.RunnerPool) { p.Spec.Template = runtime.RawExtension{Raw: []byte(template)} })
	want := verdict{Ready: metav1.ConditionFalse, Reason: v1alpha1.TemplateInvalidReason, Stalled: true, Causes: code, Details: append([]string{field}, values...)}
	s.says(fresh, want)
	changed := s.listening("linux")
	before := changed.Status.Revision
	s.patch(changed, `{"spec":{"template":`+template+`}}`)
	want.Causes += "\nPreviousRevision inForce=\"BEFORE\""
	s.says(changed, want, before, "BEFORE")
	s.look(field, 2, "pool/fresh", "pool/linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

func TestAPodTemplateThatTheAPIServerRefuses(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}}`,
		"PodRefused", "spec.template.spec.containers[0].resources.requests", `Invalid value: "2": must be less than or equal to cpu limit of 1`)
}

func TestATemplateThatMountsTheConnectionsSecret(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1","envFrom":[{"secretRef":{"name":"acme"}}]}]}}`,
		"PodInvalid", "spec.template.spec.containers[0].envFrom[0]", `Secret "acme"`)
}

func TestATemplateThatMountsAnotherRunnersSecret(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1"}],"volumes":[{"name":"other","projected":{"sources":[{"secret":{"name":"bystander-00000-1-jit"}}]}}]}}`,
		"PodInvalid", "spec.template.spec.volumes[0]", `Secret "RUNNER-jit"`)
}

func TestATemplateWithAnAnnotationOfCorral(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"metadata":{"annotations":{"corral.dev/job":"{}"}},"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}`,
		"PodInvalid", "spec.template.metadata.annotations[corral.dev/job]")
}

func TestATemplateThatStartsItsRunnerAgain(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1","restartPolicy":"Always"}]}}`,
		"PodInvalid", "spec.template.spec.containers[0].restartPolicy", "Never", "Always")
}

// The quota applies to pods with requests. The bystander's pods have none.
func TestAnExhaustedQuota(t *testing.T) {
	s := newFixture(t)
	s.create(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "runners"},
		Spec: corev1.ResourceQuotaSpec{
			Hard:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")},
			Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort},
		},
	})
	pool := s.listening("linux", func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:1","resources":{"requests":{"cpu":"1"}}}]}}`)
	})
	long := s.addJobs("linux", 2, harness.LongJob)
	waiting := s.addJobs("linux", 2, time.Millisecond)
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.QuotaExceededReason,
		Causes:  "PodQuota\nOfRunner runner=\"RUNNER\"",
		Details: []string{`pods "RUNNER" is forbidden: exceeded quota: runners, requested: pods=1, used: pods=2, limited: pods=2`},
	})
	s.look("exceeded quota: runners", 1, "pool/linux")
	s.othersGoOn()
	harness.CutShort(s.T, s.github, long...)
	s.allDone(waiting)
	s.ready(pool)
}

func TestAScaleSetThatAnotherPoolHolds(t *testing.T) {
	s := newFixture(t)
	s.listening("linux")
	second := s.pool("thief", func(p *v1alpha1.RunnerPool) { p.Spec.ScaleSetName = "linux" })
	s.says(second, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.OwnedElsewhereReason, Stalled: true,
		Causes: "ScaleSetHeld name=\"linux\" owner=\"RunnerPool NAMESPACE/linux of this cluster\"\nOfScaleSet",
	}, s.namespace, "NAMESPACE")
	s.look("RunnerPool "+s.namespace+"/linux", 1, "pool/thief")
	s.allDone(s.addJobs("linux", 3, time.Millisecond))
	s.othersGoOn()
}

// The next name that the pool would use belongs to a runner of another scale set.
func TestARunnerNameThatIsTaken(t *testing.T) {
	s := newFixture(t)
	s.listening("linux")
	other := s.listening("other")
	first := s.addJobs("linux", 1, time.Millisecond)
	s.allDone(first)
	next := s.nextRunner(first[0])
	set := &v1alpha1.RunnerScaleSet{}
	must(t, w.Client.Get(t.Context(), key(s.namespace, other.Name), set))
	github, err := scaleset.NewClient(github.Credentials{ConfigURL: s.github.ConfigURL(s.namespace), Token: s.token}, github.Options{})
	must(t, err)
	_, err = github.GenerateJIT(t.Context(), set.Status.ID, next)
	must(t, err)
	s.watch(0)
	second := s.addJobs("linux", 1, time.Millisecond)
	s.hasEvent(next, string(v1alpha1.RunnerFailed), fmt.Sprintf("%q", next), fmt.Sprintf("(id %d)", set.Status.ID))
	s.othersGoOn()
	s.allDone(second) // by the next runner
}

// nextRunner returns the name of the runner after the one that ran a job.
func (s *fixture) nextRunner(job string) string {
	s.Helper()
	for _, j := range s.github.Jobs() {
		if j.ID != job {
			continue
		}
		parts := regexp.MustCompile(`^(.*-)(\d+)$`).FindStringSubmatch(j.Runner)
		number, err := strconv.Atoi(parts[2])
		must(s.T, err)
		return parts[1] + strconv.Itoa(number+1)
	}
	s.Fatalf("job %s is unknown", job)
	return ""
}

// hasEvent waits for an event about an object of the fixture, with values in its text.
func (s *fixture) hasEvent(name, reason string, values ...string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := w.Client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.Regarding.Name != name {
				continue
			}
			if e.Reason == reason && !slices.ContainsFunc(values, func(value string) bool { return !strings.Contains(e.Note, value) }) {
				return nil
			}
			seen = append(seen, e.Reason+": "+e.Note)
		}
		return fmt.Errorf("no event about %s is %s with %q, but %q", name, reason, values, seen)
	})
}

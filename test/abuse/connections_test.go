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

// useToken puts a token into the Secret of the connection acme and has it looked at.
func (s *fixture) useToken(token string) {
	s.Helper()
	s.patch(w.CredentialsSecret(s.namespace, "acme"), fmt.Sprintf(`{"stringData":{%q:%q}}`, v1alpha1.TokenKey, token))
	s.request(s.connection())
}

// ready puts up a pool that listens.
func (s *fixture) listening(name string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	s.Helper()
	p := s.pool(name, change...)
	s.ready(p)
	return p
}

const badToken = "Secret \"SECRET\": github_token is wrong, expired or revoked: GitHub answered 401"

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
		Ready: metav1.ConditionFalse, Reason: v1alpha1.CredentialsRefusedReason, Stalled: true, Message: badToken,
	}, `"wrong"`, `"SECRET"`)
	pool := newPool(s.namespace, "linux", "wrong")
	s.create(pool)
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ConnectionNotReadyReason,
		Message: `scale set: GitHubConnection "wrong" is not ready: CredentialsRefused`,
	})
	s.look("GitHub answered 401", 1, "pool/linux")
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
		Message: badToken + "; pools go on with the former credentials, and a restart of the controller would stop them",
	}, `"acme"`, `"SECRET"`)
	s.look("GitHub answered 401", 1, "pool/linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond)) // with the token before
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
		Message: `a fine-grained token needs the organization permission "Self-hosted runners: read and write", a classic one the scope admin:org: ` +
			"GitHub answered 403: Resource not accessible by personal access token",
	})
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PermissionMissingReason,
		Message: `runner RUNNER: registering runner "RUNNER": GitHub answered 403: Resource not accessible by personal access token`,
	})
	s.look("Self-hosted runners: read and write", 1, "pool/linux")
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
		Message: `scale set: runner group "gpu" is not there, or GitHubConnection "acme" may not see it: create it on GitHub, or correct spec.runnerGroup`,
	})
	s.look(`runner group "gpu"`, 1, "pool/linux")
	s.othersGoOn()
	s.patch(pool, `{"spec":{"runnerGroup":"default"}}`)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
}

// refusesTemplate shows that a template is refused with a reason, in a new pool and as a change to a
// running one, which goes on with the template before.
func (s *fixture) refusesTemplate(template, complaint string) {
	s.Helper()
	fresh := s.pool("fresh", func(p *v1alpha1.RunnerPool) { p.Spec.Template = runtime.RawExtension{Raw: []byte(template)} })
	want := verdict{Ready: metav1.ConditionFalse, Reason: v1alpha1.TemplateInvalidReason, Stalled: true, Message: complaint}
	s.says(fresh, want)
	changed := s.listening("linux")
	before := changed.Status.Revision
	s.patch(changed, `{"spec":{"template":`+template+`}}`)
	want.Message = "revision BEFORE goes on: " + complaint
	s.says(changed, want, before, "BEFORE")
	cause, _, _ := strings.Cut(complaint, `"`)
	s.look(cause, 2, "pool/fresh", "pool/linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

func TestAPodTemplateThatTheAPIServerRefuses(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}}`,
		`spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`)
}

func TestATemplateThatMountsTheConnectionsSecret(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1","envFrom":[{"secretRef":{"name":"acme"}}]}]}}`,
		`spec.template.spec.containers[0].envFrom[0]: Secret "acme" holds the credentials of a GitHubConnection or a PoolSource; a runner may not read it`)
}

func TestATemplateThatMountsAnotherRunnersSecret(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1"}],"volumes":[{"name":"other","projected":{"sources":[{"secret":{"name":"bystander-00000-1-jit"}}]}}]}}`,
		`spec.template.spec.volumes[0]: Secret "RUNNER-jit" is named like a runner's registration (*-jit); a runner may not read another's`)
}

func TestATemplateWithAnAnnotationOfCorral(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"metadata":{"annotations":{"corral.dev/job":"{}"}},"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}`,
		`spec.template.metadata.annotations[corral.dev/job]: keys of corral.dev are the controller's own`)
}

func TestATemplateThatStartsItsRunnerAgain(t *testing.T) {
	newFixture(t).refusesTemplate(
		`{"spec":{"containers":[{"name":"runner","image":"runner:1","restartPolicy":"Always"}]}}`,
		`spec.template.spec.containers[0].restartPolicy: must be Never, a runner takes one job; found Always`)
}

// The quota is on pods with requests, which the bystander's have none of.
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
		Message: `runner RUNNER: creating the pod: pods "RUNNER" is forbidden: exceeded quota: runners, requested: pods=1, used: pods=2, limited: pods=2`,
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
		Message: `scale set: the scale set "linux" is held by RunnerPool NAMESPACE/linux of this cluster; choose another spec.scaleSetName or end the other`,
	}, s.namespace, "NAMESPACE")
	s.look("is held by RunnerPool "+s.namespace+"/linux", 1, "pool/thief")
	s.allDone(s.addJobs("linux", 3, time.Millisecond))
	s.othersGoOn()
}

// The next name that a pool will give is taken by a runner of another scale set.
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
	s.hasEvent(next, fmt.Sprintf("GitHub: a runner named %q is registered with another scale set (id %d)", next, set.Status.ID))
	s.othersGoOn()
	s.allDone(second) // by the runner that comes after it
}

// nextRunner is the name that comes after that of the runner that did a job.
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

// hasEvent waits for an event about an object of the fixture.
func (s *fixture) hasEvent(name, note string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := w.Client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		var notes []string
		for _, e := range list.Items {
			if e.Regarding.Name == name {
				notes = append(notes, e.Note)
			}
		}
		if !slices.Contains(notes, note) {
			return fmt.Errorf("the events about %s are %q", name, notes)
		}
		return nil
	})
}

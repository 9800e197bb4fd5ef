// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/webhook"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// hookFixture is a fixture whose connection receives webhooks.
type hookFixture struct {
	*fixture
	url string
	// full is a pool with a max of 0, so that the jobs it learns of remain in its status.
	full *v1alpha1.RunnerPool
}

func newHookFixture(t *testing.T) *hookFixture {
	t.Helper()
	s := hookFixtureWith(t, world.WebhookSecret)
	// The replicas reject events until the leader has reconciled the connection.
	eventually(t, func(ctx context.Context) error {
		if status, text := s.send(s.event("ping", "{}")); status != http.StatusOK {
			return fmt.Errorf("answered %d: %s", status, text)
		}
		return ctx.Err()
	})
	s.tell("queued", 1)
	s.awaitJobs(1)
	s.tell("completed", 1)
	s.awaitJobs(0)
	return s
}

// hookFixtureWith creates a fixture whose webhook has the given secret, and sends no events.
func hookFixtureWith(t *testing.T, secret string) *hookFixture {
	t.Helper()
	s := &hookFixture{fixture: newFixture(t)}
	s.url = world.WebhookURL(hooks, s.namespace, "acme")
	must(t, s.github.AddRepository(githubsim.Repository{FullName: s.namespace + "/app"}))
	hook := world.HookSecret(s.namespace, "hook")
	hook.StringData = map[string]string{v1alpha1.WebhookSecretKey: secret}
	s.create(hook)
	s.ready(s.connection()) // so that it reports twice which features GitHub does not support
	s.patch(s.connection(), `{"spec":{"webhook":{"secretRef":{"name":"hook"}}}}`)
	s.full = s.restPool("told", 0)
	return s
}

// restPool creates a pool without a scale set, and waits until it is ready.
func (s *hookFixture) restPool(name string, most int32) *v1alpha1.RunnerPool {
	s.Helper()
	p := s.pool(name, func(p *v1alpha1.RunnerPool) {
		p.Spec.Registration, p.Spec.RunnerLabels = v1alpha1.RegisterREST, []string{name}
		p.Spec.Scale.Max, p.Spec.Demand.Webhook = &most, &v1alpha1.WebhookDemand{}
	})
	s.ready(p)
	return p
}

// event creates a webhook request as GitHub sends it.
func (s *hookFixture) event(name, body string) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url, strings.NewReader(body))
	must(s.T, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", name)
	r.Header.Set("X-GitHub-Delivery", fmt.Sprintf("guid-%d", guid.Add(1)))
	r.Header.Set("X-Hub-Signature-256", webhook.Sign([]byte(world.WebhookSecret), []byte(body)))
	return r
}

var guid atomic.Int64

// sender has its own source addresses, so that limits on bad requests affect only these tests.
var sender = &http.Client{Timeout: 2 * time.Minute}

func (s *hookFixture) send(r *http.Request) (status int, text string) {
	s.Helper()
	return s.sendBy(sender, r)
}

func (s *hookFixture) sendBy(client *http.Client, r *http.Request) (status int, text string) {
	s.Helper()
	answer, err := client.Do(r)
	must(s.T, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(s.T, err)
	return answer.StatusCode, strings.TrimSpace(string(body))
}

// job returns an event about a job for the pool told. The simulated GitHub has no such job.
func (s *hookFixture) job(action string, id int) string {
	return fmt.Sprintf(`{"action":%q,"workflow_job":{"id":%d,"status":%[1]q,"labels":["told"]},"repository":{"id":1,"full_name":"%[3]s/app","owner":{"type":"Organization"}},"organization":{"login":%[3]q}}`, action, id, s.namespace)
}

// tell sends a job event, and repeats it until the controller accepts it.
func (s *hookFixture) tell(action string, id int) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if status, text := s.send(s.event(webhook.WorkflowJobEvent, s.job(action, id))); status != http.StatusAccepted {
			return fmt.Errorf("answered %d: %s", status, text)
		}
		return ctx.Err()
	})
}

// awaitJobs waits until the pool counts the given number of jobs.
func (s *hookFixture) awaitJobs(jobs int32) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(s.namespace, s.full.Name), s.full); err != nil {
			return err
		}
		for _, d := range s.full.Status.Demand {
			if d.Name == "webhook" && d.Jobs != nil && *d.Jobs == jobs {
				return nil
			}
		}
		return fmt.Errorf("it is told %+v", s.full.Status.Demand)
	})
}

// refused sends a request that must be refused with a value in the answer.
func (s *hookFixture) refused(r *http.Request, status int, value string) {
	s.Helper()
	if gotStatus, got := s.send(r); gotStatus != status || !strings.Contains(got, value) {
		s.Errorf("answered %d %q; want %d %q", gotStatus, got, status, value)
	}
}

// goesOn checks that valid events are processed, and that refused ones had no effect.
func (s *hookFixture) goesOn() {
	s.Helper()
	s.tell("queued", 1000)
	s.awaitJobs(1)
	s.othersGoOn()
	s.processIsWell()
}

func TestAForgedWebhook(t *testing.T) {
	s := newHookFixture(t)
	s.watch(0)
	forged := s.event(webhook.WorkflowJobEvent, s.job("queued", 2))
	forged.Header.Set("X-Hub-Signature-256", webhook.Sign([]byte("guessed"), []byte(s.job("queued", 2))))
	s.refused(forged, http.StatusUnauthorized, "GitHubConnection "+s.namespace+"/acme.")
	unsigned := s.event(webhook.WorkflowJobEvent, s.job("queued", 2))
	unsigned.Header.Del("X-Hub-Signature-256")
	s.refused(unsigned, http.StatusUnauthorized, "X-Hub-Signature-256 is missing: give the webhook a secret on GitHub, the same as in the connection's Secret.")
	s.goesOn()
}

func TestAReplayedWebhook(t *testing.T) {
	s := newHookFixture(t)
	s.watch(0)
	s.refused(s.event(webhook.WorkflowJobEvent, s.job("queued", 1)), http.StatusAccepted, "already")
	// The same event with a different body, as GitHub might send it much later.
	s.refused(s.event(webhook.WorkflowJobEvent, s.job("queued", 1)+" "), http.StatusAccepted, "taken")
	s.goesOn()
}

func TestAnOversizedWebhook(t *testing.T) {
	s := newHookFixture(t)
	s.watch(0)
	r := s.event(webhook.WorkflowJobEvent, "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat(" ", webhook.MaxBody+1))), webhook.MaxBody+1
	r.Header.Set("Expect", "100-continue")
	waits := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	defer waits.CloseIdleConnections()
	status, text := s.sendBy(waits, r)
	if want := "The body has 26214401 bytes; GitHub sends 26214400 at most."; status != http.StatusRequestEntityTooLarge || text != want {
		t.Errorf("answered %d %q; want %q", status, text, want)
	}
	s.goesOn()
}

func TestAMalformedWebhook(t *testing.T) {
	s := newHookFixture(t)
	s.watch(0)
	for body, want := range map[string]string{
		`{"action":`:              "bad event: the body isn't JSON, at byte 10.",
		`{"action":"queued"}`:     "bad event: repository is missing.",
		strings.Repeat("[", 1e5):  "bad event: the JSON has more than 32 levels.",
		s.job("queued", -1):       "bad event: workflow_job.id is missing.",
		`{"workflow_job":"none"}`: "bad event: workflow_job is of another kind.",
	} {
		s.refused(s.event(webhook.WorkflowJobEvent, body), http.StatusBadRequest, want)
	}
	s.goesOn()
}

func TestAWebhookForNobody(t *testing.T) {
	s := newHookFixture(t)
	s.watch(0)
	for _, name := range []string{"bystander", "nobody"} { // as if the secret belonged to another connection
		r := s.event(webhook.WorkflowJobEvent, s.job("queued", 2))
		r.URL.Path = "/github/" + s.namespace + "/" + name
		s.refused(r, http.StatusUnauthorized, "GitHubConnection "+s.namespace+"/"+name+".")
	}
	r := s.event(webhook.WorkflowJobEvent, s.job("queued", 2))
	r.URL.Path = "/"
	s.refused(r, http.StatusNotFound, "/github/NAMESPACE/CONNECTION")
	s.refused(s.event("issues", "{}"), http.StatusAccepted, "")
	s.goesOn()
}

func TestWebhooksOutOfOrder(t *testing.T) {
	s := newHookFixture(t)
	s.checkMessages(0)
	s.restPool("web", 5)
	hook, err := s.github.AddHook(githubsim.Hook{Owner: s.namespace, URL: s.url, Secret: world.WebhookSecret, Parallel: 4})
	must(t, err)
	s.github.AddDeliveryFault(githubsim.DeliveryFault{Hook: hook, Probability: 0.3, Duplicate: 2})
	s.github.AddDeliveryFault(githubsim.DeliveryFault{Hook: hook, Probability: 0.3, Behind: 4})
	s.allDone(s.addJobs("web", 15, time.Millisecond))
	// The end of a job arrives before its beginning. Such a job does not count.
	s.tell("completed", 2)
	s.tell("queued", 2)
	s.goesOn()
}

func TestAWebhookWithoutSecret(t *testing.T) {
	s := newHookFixture(t)
	s.patch(s.connection(), `{"spec":{"webhook":{"secretRef":{"name":"absent"}}}}`)
	s.says(s.connection(), verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.WebhookSecretMissingReason, Stalled: true,
		Causes: `WebhookSecretNotFound secret="absent"`,
	})
	s.look("absent", 1, "pool/told")
	s.refused(s.event(webhook.WorkflowJobEvent, s.job("queued", 2)), http.StatusUnauthorized,
		"GitHubConnection "+s.namespace+"/acme.")
	s.listening("linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond)) // by its scale set
	s.patch(s.connection(), `{"spec":{"webhook":{"secretRef":{"name":"hook"}}}}`)
	s.goesOn()
}

func TestAWebhookWithAnotherSecret(t *testing.T) {
	s := hookFixtureWith(t, "a typo")
	eventually(t, func(ctx context.Context) error {
		if status, text := s.send(s.event("ping", "{}")); status != http.StatusUnauthorized {
			return fmt.Errorf("answered %d: %s", status, text)
		}
		return ctx.Err()
	})
	// refuses reconciles the connection at once, and waits for the wanted message.
	refuses := func(at, secret string) {
		s.patch(s.connection(), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, at))
		eventually(t, func(ctx context.Context) error {
			c := &v1alpha1.GitHubConnection{}
			if err := w.Client.Get(ctx, key(s.namespace, "acme"), c); err != nil {
				return err
			}
			if got := c.EventsRefused(); (got == "") != (secret == "") || !strings.Contains(got, secret) {
				return fmt.Errorf("it reports %q, want %q", got, secret)
			}
			return nil
		})
	}
	const secret = "Secret hook"
	refuses("1", secret)
	s.look(secret, 0, "pool/told")
	s.patch(world.HookSecret(s.namespace, "hook"), fmt.Sprintf(`{"stringData":{"secret":%q}}`, world.WebhookSecret))
	s.goesOn()
	refuses("2", "")
}

func TestAFloodOfForgedWebhooks(t *testing.T) {
	s := newHookFixture(t)
	s.watch(0)
	// From a separate source address, as an attacker would have.
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}
	const senders = 450 // each refusal takes half a second, so the senders exceed 300 requests per second
	flood := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: senders}}
	defer flood.CloseIdleConnections()
	answers := make(chan int, 4500)
	for range senders {
		go func() {
			for range cap(answers) / senders {
				r := s.event(webhook.WorkflowJobEvent, s.job("queued", 2))
				r.Header.Set("X-Hub-Signature-256", webhook.Sign([]byte("guessed"), nil))
				answer, err := flood.Do(r)
				if err != nil {
					answers <- 0
					continue
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				answers <- answer.StatusCode
			}
		}()
	}
	counts, began := map[int]int{}, time.Now()
	for i := range cap(answers) {
		counts[<-answers]++
		if i%750 == 0 { // six times
			s.tell("queued", 100+i)
		}
	}
	isFlood := time.Since(began) < time.Duration(cap(answers))*time.Second/300 // a busy machine may be too slow
	if counts[http.StatusUnauthorized]+counts[http.StatusTooManyRequests] != cap(answers) || isFlood && counts[http.StatusTooManyRequests] == 0 {
		t.Errorf("answers %v", counts)
	}
	s.awaitJobs(6)
	s.othersGoOn()
	s.processIsWell()
}

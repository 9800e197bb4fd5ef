// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

// Prober determines, with read requests, which features that a connection's pools use are missing on GitHub. If it returns
// an error, the list is incomplete.
type Prober func(ctx context.Context, conn *v1alpha1.GitHubConnection) ([]v1alpha1.MissingFeature, error)

// missingFeatures returns the features that GitHub does not have, and a digest of the input on which that result depends.
// If the status contains a result with the same digest, no request is sent, so that idle connections cost none. The digest
// is empty if some features are unknown. These are probed again after the next verification.
func (r *Reconciler) missingFeatures(ctx context.Context, conn *v1alpha1.GitHubConnection, v verification) ([]v1alpha1.MissingFeature, string) {
	const asked = 1 // increase it when a probe changes
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s %q %q", asked, v.generation, v.hash, v.request, v.identity.ServerVersion))
	about := hex.EncodeToString(sum[:16])
	if conn.Status.FeaturesProbe == about {
		return conn.Status.MissingFeatures, about
	}
	if !v.probed {
		v.probed = true
		if v.missing, v.unknown = r.Probe(ctx, conn); v.unknown != nil {
			kube.Warn(ctx, "Some features of GitHub are still unknown", "reason", v.unknown.Error())
		}
		r.keep(client.ObjectKeyFromObject(conn), v)
	}
	if v.unknown != nil {
		about = ""
	}
	return v.missing, about
}

// question probes one feature of GitHub. A 403 or 404 means that the feature is unavailable.
type question struct {
	of, follows string
	ask         func(context.Context) error
}

// NewProber returns a Prober that uses the clients of pools, so that both use the same tokens and cached answers.
func NewProber(sets *github.Clients[*scaleset.Client], api *github.Clients[*rest.Client]) Prober {
	return func(ctx context.Context, conn *v1alpha1.GitHubConnection) ([]v1alpha1.MissingFeature, error) {
		key := Key(client.ObjectKeyFromObject(conn))
		service, served := sets.Get(key)
		gh, there := api.Get(key)
		if !served || !there {
			return nil, errors.New("the connection has no client")
		}
		questions := questionsOf(conn, service, gh)
		answers := make([]error, len(questions))
		var asking sync.WaitGroup
		for i, q := range questions { // concurrently, so that one without an answer delays no other
			asking.Go(func() { answers[i] = q.ask(ctx) })
		}
		asking.Wait()
		return judge(conn.Status, questions, answers)
	}
}

func questionsOf(conn *v1alpha1.GitHubConnection, service *scaleset.Client, gh *rest.Client) []question {
	questions := []question{
		{v1alpha1.FeatureRunnerReleases, "pools do not report when GitHub will refuse their runners' version", func(ctx context.Context) error {
			_, err := gh.Releases(ctx)
			return err
		}},
		{v1alpha1.FeatureRunnerGroups, "pools without a scale set can only be in the default group, and also start runners for jobs of repositories that cannot use this group", func(ctx context.Context) error {
			_, err := gh.Groups(ctx) // sends no request for a repository, which has only one group
			return err
		}},
	}
	if gh.Target().Server { // github.com always has scale sets
		questions = append(questions, question{v1alpha1.FeatureScaleSets, "pools get jobs only with registration: REST", func(ctx context.Context) error {
			_, err := service.Find(ctx, github.DefaultRunnerGroupID, "corral") // whether it exists does not matter
			return err
		}})
	}
	if hook := conn.Spec.Webhook; hook != nil {
		questions = append(questions, question{v1alpha1.FeatureDeliveries, "Corral does not request lost events again", func(ctx context.Context) error {
			_, _, err := gh.Deliveries(ctx, hook.HookID, "")
			return err
		}})
	}
	return questions
}

// judge returns the missing features. If a probe fails with an error other than 403 or 404, the result for its feature is
// unknown: judge keeps the previous result from the status, and returns the error.
func judge(known v1alpha1.GitHubConnectionStatus, questions []question, answers []error) (missing []v1alpha1.MissingFeature, unknown error) {
	for i, q := range questions {
		switch err := answers[i]; {
		case github.IsNotFound(err), github.IsForbidden(err):
			missing = append(missing, v1alpha1.MissingFeature{Name: q.of, Message: fmt.Sprintf("%s (%s)", q.follows, github.Summary(err))})
		case err != nil:
			unknown = errors.Join(unknown, err)
			if before := slices.IndexFunc(known.MissingFeatures, func(l v1alpha1.MissingFeature) bool { return l.Name == q.of }); before >= 0 {
				missing = append(missing, known.MissingFeatures[before])
			}
		}
	}
	var major, minor int
	if _, err := fmt.Sscanf(known.ServerVersion, "%d.%d", &major, &minor); err == nil && (major < 3 || major == 3 && minor < 21) {
		missing = append(missing, v1alpha1.MissingFeature{Name: v1alpha1.FeatureSeveralLabels, Message: fmt.Sprintf(
			"scale sets keep only one label, unless a feature flag of the server is on: pools that lose labels report LabelsDropped (the server has version %s; 3.21 keeps all)", known.ServerVersion)})
	}
	return missing, unknown
}

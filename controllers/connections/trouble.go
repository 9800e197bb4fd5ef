// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/clock"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
)

// troubleLook is the delay before the next check whether GitHub's trouble is over, because possibly no call reports that in
// the meantime.
const troubleLook = 15 * time.Second

// outage is a GitHubOutage as an error, so that it can be wrapped in an outcome.
type outage struct{ is v1alpha1.GitHubOutage }

func (o *outage) Error() string { return o.is.String() }

// unavailable returns the outcome while GitHub cannot be used. next is the latest time of the next attempt.
func unavailable(after time.Duration, c catalog.Cause, code int, next time.Time) error {
	c = c.Retry(next)
	c.Err = &outage{v1alpha1.GitHubOutage{Code: int32(code), NextAttempt: c.NextAttempt}} //nolint:gosec // of HTTP
	return kube.Wait(after, c)
}

// Unavailable returns the cause of a call that failed because GitHub cannot be used, without the request's IDs.
func Unavailable(err error) catalog.Cause {
	return unavailableBy(github.CodeOf(err)).With().Wrap(github.Summarize(err))
}

// unavailableBy returns the row for an HTTP status that means that GitHub cannot be used.
func unavailableBy(code int) *catalog.Row {
	if code == http.StatusTooManyRequests {
		return catalog.GitHubRateLimited
	}
	return catalog.GitHubUnavailable
}

// ReportsReason reports whether connections report problems with a reason. The pools, scale sets and runners of a
// connection have the same problem, and one event is enough.
func ReportsReason(reason string) bool {
	return slices.Contains([]string{
		v1alpha1.GitHubUnavailableReason, v1alpha1.ConnectionNotReadyReason, v1alpha1.CredentialsRefusedReason, v1alpha1.PermissionMissingReason,
	}, reason)
}

// OutageOf returns the outage in an outcome; nil for none.
func OutageOf(err error) *v1alpha1.GitHubOutage {
	if kube.ReasonOf(err, "") != v1alpha1.GitHubUnavailableReason {
		return nil
	}
	if o := new(outage); errors.As(err, &o) {
		return &o.is
	}
	return &v1alpha1.GitHubOutage{Code: int32(github.CodeOf(err))} //nolint:gosec // of HTTP
}

// trouble returns an outage if consecutive calls for the connection's pools fail, even if GitHub accepted the credentials
// when they were last verified.
func (r *Reconciler) trouble(conn *v1alpha1.GitHubConnection) error {
	t, yes := r.Connections.Trouble(Key(client.ObjectKeyFromObject(conn)))
	switch {
	case !yes:
		return nil
	case errors.As(t.Fault, new(github.ForeignHost)):
		return unavailable(troubleLook, catalog.AnswersUnusable.With().Wrap(t.Fault), t.Code, t.Next)
	case t.Fault != nil:
		return unavailable(troubleLook, catalog.AnswersTooLarge.With().Wrap(t.Fault), t.Code, t.Next)
	case t.Code == 0:
		return unavailable(troubleLook, catalog.CallsUnanswered.With(), t.Code, t.Next)
	case t.Code == http.StatusTooManyRequests:
		return unavailable(troubleLook, catalog.CallsRateLimited.With(), t.Code, t.Next)
	}
	return unavailable(troubleLook, catalog.CallsFailing.With(t.Code), t.Code, t.Next)
}

// with adds a fact to causes, if there are any.
func with(causes []catalog.Cause, fact catalog.Cause) []catalog.Cause {
	if len(causes) == 0 {
		return nil
	}
	return append(causes, fact)
}

// notes returns information for the users of a ready connection.
func (r *Reconciler) notes(conn *v1alpha1.GitHubConnection) []catalog.Cause {
	var all []catalog.Cause
	if end := conn.TokenEnds(r.Now()); end != nil {
		all = append(all, catalog.TokenEnds.With(end.UTC().Format(time.DateOnly)))
	}
	if ahead := r.Connections.Ahead(Key(client.ObjectKeyFromObject(conn))); ahead.Abs() > clock.Limit {
		all = append(all, catalog.ClockDiffers.With(ahead.Round(time.Second)))
	}
	for _, feature := range conn.Status.MissingFeatures {
		all = append(all, catalog.FeatureMissing.With(feature.Name).Detailed(feature.Message))
	}
	return all
}

// identify returns a digest of credentials and their network settings.
func identify(creds github.Credentials) string { return creds.Hash() + creds.NetworkHash() }

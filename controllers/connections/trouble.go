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

// troubleLook is the time to the next look at whether GitHub's trouble is over: nobody may call in the meantime.
const troubleLook = 15 * time.Second

// outage is why GitHub can't be used now.
type outage struct{ is v1alpha1.GitHubOutage }

func (o *outage) Error() string { return o.is.String() }

// unavailable is the outcome of a GitHub that can't be used, and is asked again by a time at the latest.
func unavailable(after time.Duration, c catalog.Cause, code int, next time.Time) error {
	c = c.Retry(next)
	c.Err = &outage{v1alpha1.GitHubOutage{Code: int32(code), NextAttempt: c.NextAttempt}} //nolint:gosec // of HTTP
	return kube.Wait(after, c)
}

// Unavailable is the cause of a call that failed because GitHub can't be used, without the ids of the request.
func Unavailable(err error) catalog.Cause {
	return unavailableBy(github.CodeOf(err)).With().Wrap(github.Summarize(err))
}

// unavailableBy returns the row of an HTTP status that keeps GitHub from being used.
func unavailableBy(code int) *catalog.Row {
	if code == http.StatusTooManyRequests {
		return catalog.GitHubRateLimited
	}
	return catalog.GitHubUnavailable
}

// Tells reports whether a connection tells of what has such a reason: its pools, scale sets and runners have it too, and one event is enough.
func Tells(reason string) bool {
	return slices.Contains([]string{
		v1alpha1.GitHubUnavailableReason, v1alpha1.ConnectionNotReadyReason, v1alpha1.CredentialsRefusedReason, v1alpha1.PermissionMissingReason,
	}, reason)
}

// OutageOf is the outage that an outcome has; nil for none.
func OutageOf(err error) *v1alpha1.GitHubOutage {
	if kube.ReasonOf(err, "") != v1alpha1.GitHubUnavailableReason {
		return nil
	}
	if o := new(outage); errors.As(err, &o) {
		return &o.is
	}
	return &v1alpha1.GitHubOutage{Code: int32(github.CodeOf(err))} //nolint:gosec // of HTTP
}

// trouble is an outage if calls for the connection's pools fail one after the other: credentials that GitHub took ten minutes ago are of
// no use then.
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

// notes returns what the users of a connection that is ready should know.
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

// identify identifies credentials and their network.
func identify(creds github.Credentials) string { return creds.Hash() + creds.NetworkHash() }

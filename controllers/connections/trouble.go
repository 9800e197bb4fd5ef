// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/clock"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// troubleLook is the time to the next look at whether GitHub's trouble is over: nobody may call in the meantime.
const troubleLook = 15 * time.Second

// outage is why GitHub can't be used now.
type outage struct {
	message string
	is      v1alpha1.GitHubOutage
}

func (o *outage) Error() string { return o.message }

// unavailable is the outcome of a GitHub that can't be used, and is asked again by a time at the latest.
func unavailable(after time.Duration, message string, code int, next time.Time) error {
	is := v1alpha1.GitHubOutage{Code: int32(code), NextAttempt: &metav1.Time{Time: next.Truncate(time.Second)}} //nolint:gosec // of HTTP
	return kube.Wait(v1alpha1.GitHubUnavailableReason, after, "%w", &outage{message + "; " + wording.NextTryBy(next), is})
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
		return unavailable(troubleLook, fmt.Sprintf("GitHub's answers can't be used: %v", t.Fault), t.Code, t.Next)
	case t.Fault != nil:
		return unavailable(troubleLook, fmt.Sprintf("GitHub's answers are too large: %v, in answers to calls for pools", t.Fault), t.Code, t.Next)
	case t.Code == 0:
		return unavailable(troubleLook, "GitHub didn't answer calls for pools", t.Code, t.Next)
	}
	return unavailable(troubleLook, fmt.Sprintf("GitHub answered %d to calls for pools", t.Code), t.Code, t.Next)
}

// goOn says that pools go on with credentials that are the connection's no more, if they do.
func goOn(conn *v1alpha1.GitHubConnection) string {
	if !conn.Status.FormerCredentials {
		return ""
	}
	return "; pools go on with the former credentials, and a restart of the controller would stop them"
}

// ending says when the connection's token ends, if that is near.
func ending(conn *v1alpha1.GitHubConnection, now time.Time) string {
	end := conn.TokenEnds(now)
	if end == nil {
		return ""
	}
	return "; its token ends on " + end.UTC().Format(time.DateOnly)
}

// differing returns what Ready says of a GitHub whose clock differs.
func (r *Reconciler) differing(conn *v1alpha1.GitHubConnection) string {
	ahead := r.Connections.Ahead(Key(client.ObjectKeyFromObject(conn)))
	if ahead.Abs() <= clock.Limit {
		return ""
	}
	return fmt.Sprintf("; GitHub's clock differs from the API server's by %s", ahead.Round(time.Second))
}

// identify identifies credentials and their network.
func identify(creds github.Credentials) string { return creds.Hash() + creds.NetworkHash() }

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
)

// Delivery is one attempt by GitHub to deliver an event to a webhook.
type Delivery struct {
	ID int64
	// GUID is the same for all deliveries of an event.
	GUID string
	// Event and Action are the event's type, such as workflow_job and queued.
	Event, Action string
	// StatusCode is the status of the receiver's answer.
	StatusCode  int
	DeliveredAt time.Time
	// InstallationID is the App's installation that the event belongs to; 0 for none.
	InstallationID int64
}

// ofHook returns the kind for calls about a webhook's deliveries. It fails for an enterprise's webhooks, for which
// GitHub has no API. Webhook 0 is the App's own; other ids belong to an organization or a repository.
func (c *Client) ofHook(k kind, id int64, doing string) (kind, error) {
	if id != 0 && c.target.Scope == github.Enterprise {
		return k, github.NewError(github.KindNotFound, doing, 0, 0, "GitHub has no API for the deliveries of an enterprise's webhook: use an organization's, or an App's", nil)
	}
	k.asApp = id == 0
	return k, nil
}

// Deliveries lists the deliveries of a webhook, newest first, in pages of a hundred. Webhook 0 is the App's own, whose
// deliveries include all of its installations. The cursor is next from the previous page; next is empty on the last
// page. GitHub keeps deliveries for a few days.
func (c *Client) Deliveries(ctx context.Context, hookID int64, cursor string) (page []Delivery, next string, err error) {
	doing := "listing deliveries"
	k, err := c.ofHook(kindDeliveries, hookID, doing)
	if err != nil {
		return nil, "", err
	}
	o := &gogithub.ListCursorOptions{PerPage: pageSize, Cursor: cursor}
	err = c.do(ctx, k, doing, func(ctx context.Context, gh *gogithub.Client) (resp *gogithub.Response, err error) {
		var list []*gogithub.HookDelivery
		switch {
		case k.asApp:
			list, resp, err = gh.Apps.ListHookDeliveries(ctx, o)
		case c.target.Scope == github.Organization:
			list, resp, err = gh.Organizations.ListHookDeliveries(ctx, c.target.Owner, hookID, o)
		default:
			list, resp, err = gh.Repositories.ListHookDeliveries(ctx, c.target.Owner, c.target.Name, hookID, o)
		}
		if list, resp, err = listed(list, resp, err); err == nil {
			page, next = c.deliveriesOf(list), resp.Cursor
			_, err = github.Fit(&page)
		}
		return resp, err
	})
	return page, next, err
}

func (c *Client) deliveriesOf(list []*gogithub.HookDelivery) []Delivery {
	deliveries := make([]Delivery, 0, len(list))
	for _, d := range list {
		deliveries = append(deliveries, Delivery{
			ID: d.GetID(), GUID: d.GetGUID(), Event: d.GetEvent(), Action: d.GetAction(), StatusCode: d.GetStatusCode(),
			DeliveredAt: c.options.Ours(d.GetDeliveredAt().Time), InstallationID: d.GetInstallationID(),
		})
	}
	return deliveries
}

// InstallationID returns the connection's App installation; 0 with a token.
func (c *Client) InstallationID() int64 {
	if c.creds.App == nil {
		return 0
	}
	return c.creds.App.InstallationID
}

// Payload returns the event type and the payload of a delivery, or KindUnexpected if the payload has more than 4 MB;
// events about jobs are far smaller. The number of concurrent reads is limited, for all clients of NewClients and for
// the clients of one namespace.
func (c *Client) Payload(ctx context.Context, hookID, id int64) (event string, payload []byte, err error) {
	doing := fmt.Sprintf("reading delivery %d", id)
	k, err := c.ofHook(kindPayload, hookID, doing)
	if err != nil {
		return "", nil, err
	}
	if err := c.payloads.enter(ctx); err != nil {
		return "", nil, github.NewError(github.KindUnavailable, doing, 0, 0, "other deliveries took too long", err)
	}
	defer c.payloads.leave()
	d, err := ask(ctx, c, k, doing, func(ctx context.Context, gh *gogithub.Client) (*gogithub.HookDelivery, *gogithub.Response, error) {
		switch {
		case k.asApp:
			return something(gh.Apps.GetHookDelivery(ctx, id))
		case c.target.Scope == github.Organization:
			return something(gh.Organizations.GetHookDelivery(ctx, c.target.Owner, hookID, id))
		}
		return something(gh.Repositories.GetHookDelivery(ctx, c.target.Owner, c.target.Name, hookID, id))
	})
	if err == nil && d.Request != nil && d.Request.RawPayload != nil {
		payload = *d.Request.RawPayload
	}
	return d.GetEvent(), payload, err
}

// Redeliver asks GitHub to send a delivery again.
func (c *Client) Redeliver(ctx context.Context, hookID, id int64) error {
	doing := fmt.Sprintf("asking for delivery %d again", id)
	k, err := c.ofHook(kindRedeliver, hookID, doing)
	if err != nil {
		return err
	}
	_, err = ask(ctx, c, k, doing, func(ctx context.Context, gh *gogithub.Client) (*gogithub.HookDelivery, *gogithub.Response, error) {
		switch {
		case k.asApp:
			return gh.Apps.RedeliverHookDelivery(ctx, id)
		case c.target.Scope == github.Organization:
			return gh.Organizations.RedeliverHookDelivery(ctx, c.target.Owner, hookID, id)
		}
		return gh.Repositories.RedeliverHookDelivery(ctx, c.target.Owner, c.target.Name, hookID, id)
	})
	return err
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Verb is the verb of a request, as in RBAC.
type Verb string

// Verbs of requests. Delete includes deleting a collection.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Watch  Verb = "watch"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Writes are the verbs that change objects.
var Writes = []Verb{Create, Update, Patch, Delete}

const (
	// All matches every verb, or every resource including requests for no resource, such as discovery.
	All = "*"
	// NoAnswer is the status in Count for requests whose client received no response.
	NoAnswer = 0
)

// request contains the attributes of a client's request that faults select by.
type request struct {
	method      string
	verb        Verb
	group       string
	resource    string
	subresource string
	name        string
	loseAnswer  bool
}

type requestKey struct{}

func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) }

var requests = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// parse parses the path and query of a request as the API server does.
func parse(r *http.Request) (*request, error) {
	info, err := requests.NewRequestInfo(r)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	verb := Verb(info.Verb)
	if verb == "deletecollection" {
		verb = Delete
	}
	return &request{
		method: r.Method, verb: verb, group: info.APIGroup, resource: info.Resource, subresource: info.Subresource, name: info.Name,
	}, nil
}

func (r *request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.group, Resource: r.resource}
}

// tally is the key of a request counter.
type tally struct {
	verb     Verb
	resource string // including its subresource, as in "pods/status"
	status   int
}

func (p *Proxy) count(r *request, status int) {
	resource := r.resource
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[tally{r.verb, resource, status}]++
}

// Count returns how many requests have been answered so far with one of the given statuses, or with any status if none
// are given. A subresource is counted separately, as "pods/status". A request is counted just before its client
// receives the response. A watch is counted when it opens. NoAnswer counts the requests that were lost, cut, or
// canceled by the client.
func (p *Proxy) Count(verb Verb, resource string, status ...int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for t, n := range p.counts {
		if (verb == All || verb == t.verb) && (resource == All || resource == t.resource) &&
			(len(status) == 0 || slices.Contains(status, t.status)) {
			sum += n
		}
	}
	return sum
}

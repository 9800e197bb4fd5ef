// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/corral-dev/corral/internal/wording"
)

// actionsHosts is the domain of the Actions service and its message queues, for github.com and *.ghe.com.
const actionsHosts = ".actions.githubusercontent.com"

// ForeignHost is the error of a request that was not sent, because an answer of GitHub led to a URL whose server does
// not belong to the connection.
type ForeignHost struct {
	// Host is the host of the URL, with its port. Own is the host of the connection.
	Host, Own string
}

func (f ForeignHost) Error() string {
	return fmt.Sprintf("an answer contains a URL at %q, which is not a server of %s: no request was sent", f.Host, f.Own)
}

// ownHosts sends requests to the servers of one connection only. GitHub's answers contain URLs of the Actions service,
// of message queues, of further pages and of redirects. Without this check, a server that belongs to a tenant could
// make the controller send requests and tokens to any server that the controller can reach.
type ownHosts struct {
	next http.RoundTripper
	own  *url.URL
}

// onlyToOwnHosts limits a network to the servers of a connection, which is given by its URL.
func onlyToOwnHosts(next http.RoundTripper, configURL string) http.RoundTripper {
	own, err := url.Parse(configURL)
	if err != nil {
		own = &url.URL{} // no request has this host
	}
	return ownHosts{next: next, own: own}
}

// RoundTrip sends a request if it goes to one of the connection's servers.
func (o ownHosts) RoundTrip(req *http.Request) (*http.Response, error) {
	if !isOwnHost(o.own, req.URL) {
		return nil, ForeignHost{Host: wording.Truncate(req.URL.Host, maxName), Own: o.own.Hostname()}
	}
	return o.next.RoundTrip(req)
}

// isOwnHost reports whether a URL's host is the connection's host or a subdomain of it or, for GitHub's own hosts, a
// host of the Actions service. The scheme and the port must be the same as in the connection's URL, or HTTPS on port 443.
func isOwnHost(own, u *url.URL) bool {
	home, host := strings.TrimPrefix(strings.ToLower(own.Hostname()), "www."), strings.ToLower(u.Hostname())
	isCloud := home == "github.com" || strings.HasSuffix(home, ".ghe.com")
	isOwn := host == home || strings.HasSuffix(host, "."+home) || isCloud && strings.HasSuffix(host, actionsHosts)
	isPort := u.Scheme == own.Scheme && portOf(u) == portOf(own) || u.Scheme == "https" && portOf(u) == "443"
	return home != "" && isOwn && isPort
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/corral-dev/corral/internal/wording"
)

// JobURL is the URL of a job or of a whole workflow run on GitHub.
type JobURL struct {
	// Host with the port, if it has one.
	Host string
	// Owner and Name of the repository.
	Owner, Name string
	// RunID of the workflow run, and JobID of the job in GitHub's REST API. A JobID of 0 means the whole run.
	RunID, JobID int64
}

// jobPath matches owner, repository, run and optionally job. It is compiled on first use, because compiling it
// takes 5 ms.
var jobPath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^/([A-Za-z0-9_.-]{1,100})/([A-Za-z0-9_.-]{1,100})/actions/runs/([1-9][0-9]{0,17})(?:/attempts/[0-9]{1,9})?(?:/jobs?/([1-9][0-9]{0,17}))?/?$`)
})

// ParseJobURL reads https://HOST/OWNER/REPO/actions/runs/RUN[/attempts/N][/job/JOB].
func ParseJobURL(raw string) (JobURL, error) {
	u, err := url.Parse(raw)
	if err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" {
		if parts := jobPath().FindStringSubmatch(u.Path); parts != nil {
			return JobURL{Host: hostOf(u.Host), Owner: parts[1], Name: parts[2], RunID: number64(parts[3]), JobID: number64(parts[4])}, nil
		}
	}
	return JobURL{}, fmt.Errorf("%q is not a job URL: use https://HOST/OWNER/REPO/actions/runs/RUN_ID or the same with /job/JOB_ID", wording.Truncate(raw, maxText))
}

// number64 parses digits; 0 for an empty text.
func number64(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64) // the pattern limits the number of digits
	return n
}

// hostOf returns a host in the form used for comparisons.
func hostOf(host string) string {
	return strings.TrimPrefix(strings.ToLower(host), "www.")
}

// Repository returns OWNER/NAME.
func (j JobURL) Repository() string { return j.Owner + "/" + j.Name }

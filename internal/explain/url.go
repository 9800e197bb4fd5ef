// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// JobURL is where GitHub shows a job, or a whole workflow run.
type JobURL struct {
	// Host with the port, if it has one.
	Host string
	// Owner and Name of the repository.
	Owner, Name string
	// RunID of the workflow run, and JobID of the job in GitHub's REST API; a JobID of 0 is the
	// whole run.
	RunID, JobID int64
}

var ownerPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// ParseJobURL reads https://HOST/OWNER/REPO/actions/runs/RUN[/attempts/N][/job/JOB].
func ParseJobURL(raw string) (JobURL, error) {
	wrong := fmt.Errorf("%q is no job: want https://HOST/OWNER/REPO/actions/runs/RUN_ID or the same with /job/JOB_ID", clip(raw, maxText))
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return JobURL{}, wrong
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 5 || parts[2] != "actions" || parts[3] != "runs" || !ownerPattern.MatchString(parts[0]) || !ownerPattern.MatchString(parts[1]) {
		return JobURL{}, wrong
	}
	j := JobURL{Host: hostOf(u.Host), Owner: parts[0], Name: parts[1]}
	if j.RunID, err = id(parts[4]); err != nil {
		return JobURL{}, wrong
	}
	for rest := parts[5:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) < 2 || rest[0] != "job" && rest[0] != "jobs" && rest[0] != "attempts" {
			return JobURL{}, wrong
		}
		n, err := id(rest[1])
		if err != nil {
			return JobURL{}, wrong
		}
		if rest[0] != "attempts" {
			j.JobID = n
		}
	}
	return j, nil
}

func id(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n <= 0 {
		err = strconv.ErrRange
	}
	return n, err
}

// hostOf is a host as it is compared.
func hostOf(host string) string {
	host = strings.ToLower(host)
	if host == "www.github.com" {
		return "github.com"
	}
	return host
}

// Repository is OWNER/NAME.
func (j JobURL) Repository() string { return j.Owner + "/" + j.Name }

// String names the job as a message does.
func (j JobURL) String() string {
	words := fmt.Sprintf("workflow run %d of %s", j.RunID, j.Repository())
	if j.JobID != 0 {
		words = fmt.Sprintf("job %d of %s", j.JobID, words)
	}
	return words
}

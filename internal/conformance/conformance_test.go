// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

const token = "ghp_test"

// find runs the checks against a simulated GitHub, and returns the findings by check.
func find(t *testing.T, o githubsim.Options, faults ...githubsim.Fault) map[string]Finding {
	t.Helper()
	if o.OldestRunner == "" {
		o.OldestRunner = "2.320.0"
	}
	if o.Hold == 0 {
		o.Hold = 50 * time.Millisecond
	}
	if o.SessionExpiry == 0 {
		o.SessionExpiry = 2 * time.Second
	}
	leastHold := 20 * time.Millisecond
	if o.Hold < leastHold { // allows for a slow machine
		leastHold = time.Minute
	}
	sim, err := githubsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddOrg("acme")
	sim.AddToken(token)
	for _, f := range faults {
		sim.AddFault(f)
	}
	found := map[string]Finding{}
	got, err := Run(t.Context(), Config{
		Credentials: github.Credentials{ConfigURL: sim.ConfigURL("acme"), Token: token},
		Name:        "corral-conformance-x", Retry: 10 * time.Millisecond, Patience: time.Minute, LeastHold: leastHold, OnFinding: func(f Finding) { found[f.Check] = f },
	})
	if err != nil || len(got) != len(found) {
		t.Errorf("%d findings, %d told: %v", len(got), len(found), err)
	}
	if left := sim.Leftovers(); len(left) > 0 {
		t.Errorf("left on GitHub: %v", left)
	}
	return found
}

// differing returns the checks that differ or were not shown.
func differing(found map[string]Finding) map[string]Verdict {
	differ := map[string]Verdict{}
	for name, f := range found {
		if f.Verdict != AsExpected && f.Verdict != Noted {
			differ[name] = f.Verdict
		}
	}
	return differ
}

// Each known variant of GitHub's behavior, and each wrong answer, is detected, and nothing else is.
func TestWhatAGitHubDoesIsFound(t *testing.T) {
	refused := func(endpoint githubsim.Endpoint, status int) githubsim.Fault {
		return githubsim.Fault{Endpoint: endpoint, Status: status, Times: 1}
	}
	second := func(f githubsim.Fault) githubsim.Fault {
		f.Skip = 1
		return f
	}
	for name, tc := range map[string]struct {
		options githubsim.Options
		fault   githubsim.Fault
		differ  map[string]Verdict
		says    map[string]string
	}{
		"github.com": {says: map[string]string{
			"second session": "already has an active session.", "runner by its id": "offline",
			"releases of the runner": "not reachable", "rate limit": "calls per hour remain", "cleaned up": "nothing is left",
			"outdated runner": "refused with 403: RunnerVersionTooOld: ",
		}},
		"its former words":     {options: githubsim.Options{SessionOwners: true}, says: map[string]string{"second session": "for owner corral-conformance."}},
		"an Enterprise Server": {options: githubsim.Options{Mode: githubsim.Acquire}, says: map[string]string{"credentials": "3.21.0"}},
		"releases":             {options: githubsim.Options{Releases: []githubsim.Release{{Version: "2.331.0"}}}, says: map[string]string{"releases of the runner": "1 are listed"}},
		"one label":            {options: githubsim.Options{SingleLabel: true}, differ: map[string]Verdict{"several labels": Differs, "labels changed in place": Differs}},
		"labels that stay":     {options: githubsim.Options{LabelsFixed: true}, differ: map[string]Verdict{"labels changed in place": Differs}},
		"old runners that get jobs": {options: githubsim.Options{OldestRunner: "2.0.0"}, differ: map[string]Verdict{"outdated runner": Differs}, says: map[string]string{
			"outdated runner": "it was not refused",
		}},
		"runners that get no token": {fault: refused(githubsim.EndpointRunnerToken, 503), differ: map[string]Verdict{"outdated runner": NotShown}},
		"runners that are refused":  {fault: refused(githubsim.EndpointRunnerSession, 403), says: map[string]string{"outdated runner": "refused with 403"}},
		"bad credentials":           {fault: githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: 403}, differ: map[string]Verdict{"credentials": Differs}},
		"GitHub is away":            {fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateScaleSet, Status: 503}, differ: map[string]Verdict{"scale set created": NotShown}},
		"a name that isn't refused": {fault: second(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Status: 200, Body: `{"runner":{"id":1,"name":"x"},"encodedJITConfig":"x"}`, Times: 1}), differ: map[string]Verdict{"duplicate runner name": Differs}},
		"a taken name in new words": {fault: second(refused(githubsim.EndpointCreateScaleSet, 422)), differ: map[string]Verdict{"duplicate name": Differs}},
		"agents without a status":   {fault: githubsim.Fault{Endpoint: githubsim.EndpointGetAgent, Status: 200, Body: `{"id":1,"name":"corral-conformance-x"}`, Times: 1}, differ: map[string]Verdict{"runner by its id": Differs}},
		"other ids in REST":         {fault: refused(githubsim.EndpointRunner, 404), differ: map[string]Verdict{"runner by the REST API": Differs}},
		"a removal that is refused": {fault: refused(githubsim.EndpointDeleteAgent, 403), differ: map[string]Verdict{"runner removed": Differs}},
		"no session is resumed":     {fault: refused(githubsim.EndpointRefreshSession, 400), differ: map[string]Verdict{"session of another process resumed": Differs}},
		"a refusal in other words":  {fault: second(refused(githubsim.EndpointCreateSession, 403)), differ: map[string]Verdict{"second session": Differs}},
		"no statistics":             {fault: githubsim.Fault{Endpoint: githubsim.EndpointGetScaleSet, Alter: githubsim.AlterNoStatistics}, differ: map[string]Verdict{"statistics without a session": Differs}},
		"polls that aren't held":    {options: githubsim.Options{Hold: time.Millisecond}, differ: map[string]Verdict{"held poll": Differs}},
		"sessions that block nobody": {options: githubsim.Options{SessionExpiry: time.Nanosecond}, differ: map[string]Verdict{
			"second session": Differs, "session of another process resumed": Differs, "held poll": Differs, "session that was not closed": Differs,
			"session closed": Differs, "session of a previous owner": Differs,
		}},
		"a making that isn't answered": {fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateScaleSet, DropAnswer: true, Status: 504, Times: 1}, differ: map[string]Verdict{"scale set created": NotShown}},
		"GitHub asks to wait":          {fault: githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Status: 429, RetryAfter: time.Minute, Times: 1}, differ: map[string]Verdict{"runner registered": NotShown}},
		"GitHub can't be reached":      {fault: githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: 502}, differ: map[string]Verdict{"credentials": NotShown}},
		"runners aren't listed":        {fault: refused(githubsim.EndpointRunners, 403), differ: map[string]Verdict{"oldest connected runner": Differs}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var faults []githubsim.Fault
			if tc.fault.Endpoint != "" {
				faults = append(faults, tc.fault)
			}
			if tc.differ == nil {
				tc.differ = map[string]Verdict{}
			}
			found := find(t, tc.options, faults...)
			if diff := cmp.Diff(tc.differ, differing(found)); diff != "" {
				t.Errorf("-want +got:\n%s\n%v", diff, found)
			}
			for check, text := range tc.says {
				if !strings.Contains(found[check].Found, text) {
					t.Errorf("%s: %q doesn't say %q", check, found[check].Found, text)
				}
			}
		})
	}
}

// An invalid configuration is reported and does not stop the run.
func TestConfigurationsThatCannotBeUsed(t *testing.T) {
	encode := func(files map[string]string) string {
		raw := map[string][]byte{}
		for name, file := range files {
			raw[name] = []byte(file)
		}
		all, err := json.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(all)
	}
	rest := map[string]string{".credentials": `{"data":{"clientId":"x"}}`, ".credentials_rsaparams": `{"modulus":"AAAA","exponent":"AQAB"}`}
	with := func(settings string) map[string]string {
		files := maps.Clone(rest)
		files[".runner"] = settings
		return files
	}
	for encoded, want := range map[string]string{
		"%":                               "reading the JIT configuration: illegal base64",
		encode(nil):                       "reading the JIT configuration: unexpected end of JSON input",
		encode(with(`{"AgentId":"one"}`)): "reading the JIT configuration: json: invalid number literal",
		encode(with(`{"AgentId":1}`)):     errNotBroker.Error(),
		encode(with(`{"AgentId":"1","ServerUrlV2":"http://127.0.0.1:1/"}`)): "signing with the runner's key: ",
	} {
		if err := pollOutdated(t.Context(), http.DefaultTransport, encoded); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMessagesAreMadeHarmless(t *testing.T) {
	for name, tc := range map[string]struct {
		raw, want string
		unknown   []unknownPart
	}{
		"understood": {
			raw:  `{"messageId":1,"messageType":"RunnerScaleSetJobMessages","body":"[{\"messageType\":\"JobStarted\"}]","later":true}`,
			want: `{"messageId":1,"messageType":"RunnerScaleSetJobMessages","body":"[{\"messageType\":\"JobStarted\"}]","later":true}`,
		},
		"unknown message": {
			raw:     `{"messageId":2,"messageType":"News","body":"hello","statistics":{"totalAssignedJobs":3}}`,
			want:    `{"messageId":2,"messageType":"RunnerScaleSetJobMessages","body":"","statistics":{"totalAssignedJobs":3}}`,
			unknown: []unknownPart{{partMessage, "News"}},
		},
		"body that is no list": {
			raw:     `{"messageId":3,"messageType":"RunnerScaleSetJobMessages","body":"{}"}`,
			want:    `{"messageId":3,"messageType":"RunnerScaleSetJobMessages","body":""}`,
			unknown: []unknownPart{{partBody, "undecodable"}},
		},
		"odd events among good ones": {
			raw: `{"messageId":4,"messageType":"RunnerScaleSetJobMessages",
				"body":"[{\"messageType\":\"JobDreamt\"},7,{\"messageType\":\"JobCompleted\",\"runnerId\":\"x\"},{\"messageType\":\"JobCompleted\"}]"}`,
			want:    `{"messageId":4,"messageType":"RunnerScaleSetJobMessages","body":"[{\"messageType\":\"JobCompleted\"}]"}`,
			unknown: []unknownPart{{partEvent, "JobDreamt"}, {partEvent, "undecodable"}, {partEvent, "JobCompleted"}},
		},
		"not a message": {raw: `<html>`, want: `<html>`},
	} {
		t.Run(name, func(t *testing.T) {
			clean, unknown, err := harmless([]byte(tc.raw))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(clean)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.unknown, unknown, cmp.AllowUnexported(unknownPart{})); diff != "" {
				t.Errorf("unknown: -want +got:\n%s", diff)
			}
		})
	}
}

func TestUnknownNamesAreClipped(t *testing.T) {
	_, unknown, _ := harmless([]byte(`{"messageType":"` + strings.Repeat("x", 1<<20) + `"}`))
	if len(unknown) != 1 || len(unknown[0].name) > 500+3 {
		t.Errorf("got %d parts", len(unknown))
	}
}

func FuzzHarmlessNeverLosesTheID(f *testing.F) {
	f.Add([]byte(`{"messageId":1,"messageType":"RunnerScaleSetJobMessages","body":"[{}]"}`))
	f.Add([]byte("\xef\xbb\xbf{\"messageId\":1,\"messageType\":\"News\",\"body\":\"[\"}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		clean, unknown, err := harmless(raw)
		if err != nil {
			return
		}
		if again, none, _ := harmless(clean); len(none) != 0 || string(again) != string(clean) {
			t.Errorf("%q became %q, which is not harmless: %v (was %v)", raw, clean, none, unknown)
		}
	})
}

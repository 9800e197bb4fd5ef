// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/golden"
)

// Said fails the test if something was said, or is to be seen now, that isn't in the file: all sentences that may be said of a fault
// where which of them are, how often and in what order depends on the moment. What is new is added where golden files are written.
func (r *Recorder) Said(ctx context.Context, t *testing.T, w *world.World) {
	t.Helper()
	r.t, r.w, r.any = t, w, true
	text, err := os.ReadFile(r.File)
	if err != nil && !golden.Updating() {
		t.Fatal(err)
	}
	may := slices.Collect(strings.Lines(string(text)))
	if golden.Updating() {
		may = append(may, r.sentences(ctx)...)
		slices.Sort(may)
		golden.Compare(t, r.File, strings.Join(slices.Compact(may), ""))
		return
	}
	// What is to be seen now may pass yet; what was told stays.
	if err := world.Until(ctx, 3*time.Minute, func(ctx context.Context) error {
		unknown := slices.DeleteFunc(r.sentences(ctx), func(sentence string) bool { return slices.Contains(may, sentence) })
		if err := ctx.Err(); err != nil || len(unknown) == 0 {
			return err
		}
		return fmt.Errorf("said, and not in %s (UPDATE_GOLDEN=1 adds it):\n%s", r.File, strings.Join(unknown, ""))
	}); err != nil {
		t.Error(err)
	}
}

// sentences are what was told, and what conditions and corral status say now, each with where it is read and whom it is about.
func (r *Recorder) sentences(ctx context.Context) (all []string) {
	r.t.Helper()
	events, warnings, err := r.events(ctx)
	log, logErr := r.log(false)
	conditions, condErr := r.conditions(ctx)
	if err := cmp.Or(err, logErr, condErr); err != nil {
		r.t.Fatal(err)
	}
	r.enough(warnings)
	_, status, _ := strings.Cut(r.status(ctx), "\n")
	for where, byObject := range map[string]map[string][]string{
		"condition": conditions, "event": events, "log": log,
		"corral": {"status": strings.FieldsFunc(moreOf.ReplaceAllString(status, " "), isEnd)},
	} {
		for about, lines := range byObject {
			if where == "condition" && strings.HasPrefix(about, "Runner ") { // what runners do in the end is a matter of the moment
				continue
			}
			for _, line := range lines {
				line = strings.Join(strings.Fields(strings.ReplaceAll(r.settle(where+" "+about+" "+line), "\n", `\n`)), " ")
				for _, v := range uncounted {
					line = v.what.ReplaceAllString(line, v.by)
				}
				all = append(all, line+"\n")
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// moreOf is where a line of corral status goes on.
var moreOf = regexp.MustCompile(`\n {2,}`)

func isEnd(r rune) bool { return r == '\n' }

// uncounted are numbers that differ by the moment.
var uncounted = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\b\d+ runners?: .*?\. `), "N runners. "}, // by state
	{regexp.MustCompile(`\b\d+ (job|runner|pool|connection)s?( wait)?s?\b`), "N ${1}s$2"},
	{regexp.MustCompile(`\b\d+ of them\b`), "N of them"},
	{regexp.MustCompile(`\b([a-z]+)-\d+\b`), "$1-N"}, // names that were counted
	{regexp.MustCompile(`\bmessage \d+`), "message N"},
	{regexp.MustCompile(`(deleted at TIME); [^"]*`), "$1; RUNNERS FINISH THEIR JOBS OR END"}, // by what is known of them then
	{regexp.MustCompile(` \(ActivityId UUID\)`), ""},                                         // a call that the simulated GitHub answers as faulty at once has none
}

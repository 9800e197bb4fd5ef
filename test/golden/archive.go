// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// heading begins a file of an archive, as in the format txtar.
var heading = regexp.MustCompile(`(?m)^-- (.+) --\n`)

// writing lets one test at a time write an archive.
var writing sync.Mutex

// Read returns the files of an archive in the format txtar, by name. An archive that does not exist has none.
func Read(t testing.TB, archive string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(archive)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	files := map[string]string{}
	places := heading.FindAllStringSubmatchIndex(string(text), -1)
	for i, place := range places {
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		files[string(text[place[2]:place[3]])] = string(text[place[1]:end])
	}
	return files
}

// CompareIn fails a test that got other than what a file of an archive holds, or writes that file anew. A text ends with a newline in an archive.
func CompareIn(t testing.TB, archive, name, got string) {
	t.Helper()
	if got != "" && !strings.HasSuffix(got, "\n") {
		got += "\n"
	}
	if Updating() {
		write(t, archive, name, got)
	}
	want, isThere := Read(t, archive)[name]
	if diff := cmp.Diff(want, got); diff != "" || !isThere {
		t.Errorf("%s of %s (-want +got; UPDATE_GOLDEN=1 accepts it):\n%s", name, archive, diff)
	}
}

func write(t testing.TB, archive, name, got string) {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	files, text := Read(t, archive), ""
	files[name] = got
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text += fmt.Sprintf("-- %s --\n%s", name, files[name])
	}
	if err := os.WriteFile(archive, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

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

// heading matches the line that starts a file in a txtar archive.
var heading = regexp.MustCompile(`(?m)^-- (.+) --\n`)

// writing serializes writes to archives.
var writing sync.Mutex

// Read returns the files of a txtar archive, by name. It returns no files if the archive does not exist.
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

// CompareIn fails a test if its result differs from a file in an archive. If golden files are being updated, it
// writes the file instead. Texts in an archive always end with a newline.
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

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// versions returns the version of each module that the go.mod file of a folder requires, after its replacements.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	c := exec.Command("go", "mod", "edit", "-json")
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	type module struct{ Path, Version string }
	var file struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range file.Require {
		all[m.Path] = m.Version
	}
	for _, r := range file.Replace {
		if _, ok := all[r.Old.Path]; ok {
			all[r.Old.Path] = r.New.Version
		}
	}
	return all
}

// The control plane of the demo and the tests has a module of its own. Where the versions differ, each package that imports
// such a module is compiled twice, and a first make demo takes minutes longer. After an upgrade in go.mod, write the new
// versions into the other file, and run go mod tidy there.
func TestBothModulesRequireTheSameVersions(t *testing.T) {
	corral, controlPlane := versions(t, "../.."), versions(t, "../../sim/localcluster/localkube")
	for path, version := range controlPlane {
		if own, ok := corral[path]; ok && own != version {
			t.Errorf("%s is %s in go.mod, and %s in sim/localcluster/localkube/go.mod", path, own, version)
		}
	}
	if corral["k8s.io/kubernetes"] == "" || controlPlane["k8s.io/kubernetes"] == "" {
		t.Error("a go.mod file does not require k8s.io/kubernetes")
	}
}

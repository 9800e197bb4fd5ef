// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/corral-dev/corral/test/golden"
)

var testName = regexp.MustCompile("`(Test\\w+)`")

// elsewhere lists the stories of test/suite that are the only story of a row. Their problems are recorded in
// testdata/faults.txtar there. Exceptions are the template that is too deep, which only the API server rejects,
// and the stories about the ends of pods and about pacing, which check values instead.
var elsewhere = []string{
	"TestAControllerWhoseClockIsWrong", "TestAControllerWhoseClockJumps", "TestANodeWhoseClockIsWrong", "TestAGitHubWhoseClockIsWrong",
	"TestCredentialsThatAreReplacedWhileNobodyLeads",
	"TestEndsByNodesAndOthersAreNamedAndBlameNoTemplate", "TestAnUpdateOutlivesEndsByNodesAndOthers", "TestEndsThatTheTemplateCausesHoldThePoolBack",
	"TestEndsByNodesAndOthersWithAJobAreNamed",
	"TestASlowClusterLeavesNoPoolWithoutRunners", "TestASilentWatchOfRunners", "TestGitHubFindsNothing",
	"TestPodsThatAreSlowerThanTheirDeadline", "TestPodsThatAreDeletedAtOnceAreReplacedEverMoreSlowly", "TestRefusedSecretsCostOneRegistrationEach",
	"TestAQuotaOnRunnersIsTold", "TestAPassingRefusalOfCredentialsIsWithdrawn",
	"TestRunnersThatAnotherFinalizerKeeps", "TestSecretsOfFormerRunnersThatStay", "TestDeletesOfRunnersAreRefused", "TestARestoreOfEtcd",
	"TestACommitReadsWhatBecameOfIt", "TestAStatusThatCannotBeReadIsWrittenAnew", "TestOneUnreadableObjectOfEachKindStopsNobodyElse", "TestATemplateTooDeepToBeListedIsRefused",
	"TestNoAnswerLeadsToAnotherServer", // the simulated server is on the connection's host
}

// Every test is in a row of docs/faults.md, and every row names a story of the whole system. Rows may also name
// unit tests.
func TestTheTableOfFaultsIsWhole(t *testing.T) {
	page, err := os.ReadFile("../../docs/faults.md")
	must(t, err)
	tests := testsIn(t, "*_test.go")
	all := slices.Concat(tests, testsIn(t, "../../internal/*/*_test.go"), testsIn(t, "../../internal/*/*/*_test.go"), testsIn(t, "../../controllers/*/*_test.go"), testsIn(t, "../../apis/*/*_test.go"), testsIn(t, "../suite/*_test.go"))
	var told []string
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what goes wrong ") {
			continue
		}
		isStory := false
		for _, name := range testName.FindAllStringSubmatch(line, -1) {
			told, isStory = append(told, name[1]), isStory || slices.Contains(tests, name[1]) || slices.Contains(elsewhere, name[1])
			if !slices.Contains(all, name[1]) {
				t.Errorf("docs/faults.md names %s, which is not there", name[1])
			}
		}
		if !isStory {
			t.Errorf("a row is no story: %s", line)
		}
	}
	for _, name := range tests {
		if !slices.Contains(told, name) {
			t.Errorf("docs/faults.md does not tell of %s", name)
		}
	}
}

// measured lists the stories that compare waiting times and record no problems.
var measured = []string{"TestATenantAtTheMaximumOfEveryBound"}

// Every fault has a recording of the problems that it causes.
func TestEachFaultIsLookedAt(t *testing.T) {
	stories := slices.Collect(maps.Keys(golden.Read(t, "testdata/faults.txtar")))
	for _, name := range testsIn(t, "*_test.go") {
		if slices.Contains(measured, name) {
			continue
		}
		isOfTest := func(story string) bool {
			return story == name || strings.HasPrefix(story, name+".") || strings.HasPrefix(story, name+"-")
		}
		if !slices.ContainsFunc(stories, isOfTest) {
			t.Errorf("%s has no story in testdata/faults.txtar", name)
		}
	}
}

// testsIn lists the tests in the matching files, except for this file.
func testsIn(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must(t, err)
	var names []string
	for _, file := range files {
		if file == "table_test.go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

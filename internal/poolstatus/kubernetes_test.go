// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/localcluster"
)

// otherReleases is a file that lists the reasons of several Kubernetes releases, one per line: release, kind, reason
// and source file. The flag -record renews it.
const otherReleases = "testdata/kubernetes-reasons.txt"

var record = flag.String("record", "", "comma-separated releases of k8s.io/kubernetes, such as v1.37.2, whose reasons to write to "+otherReleases)

// Kinds of reasons. Each kind has its own table.
const (
	ofPods       = "pod"
	ofDisruption = "disruption"
	ofContainers = "container"
)

// resizing is the reason with which a kubelet refuses to change the resources of a running pod. It does not end the
// pod: see pkg/kubelet/allocation/handlers.go.
const resizing = "Infeasible"

// completed is the reason of a container that succeeded.
const completed = "Completed"

// A new Kubernetes release may end pods for a reason that is missing from the tables. This test reads the source code of
// the local control plane's release, which is upgraded together with the client libraries.
func TestEveryReasonOfKubernetesIsKnown(t *testing.T) {
	t.Parallel()
	found := readReasons(t, folderOf(t, "k8s.io/kubernetes"), folderOf(t, "k8s.io/api"))
	for kind, least := range map[string]int{ofPods: 25, ofDisruption: 6, ofContainers: 2} {
		if len(found[kind]) < least {
			t.Errorf("found only %d reasons of kind %s, want at least %d", len(found[kind]), kind, least)
		}
		for _, reason := range slices.Sorted(maps.Keys(found[kind])) {
			if !isKnown(kind, reason) {
				t.Errorf("the tables do not contain the %s reason %s of %s", kind, reason, found[kind][reason])
			}
		}
	}
}

func TestEveryReasonOfOtherReleasesIsKnown(t *testing.T) {
	if *record != "" {
		recordReasons(t, strings.Split(*record, ","))
	}
	text, err := os.ReadFile(otherReleases)
	if err != nil {
		t.Fatal(err)
	}
	releases := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		parts := strings.Fields(line)
		releases[parts[0]] = true
		if !isKnown(parts[1], parts[2]) {
			t.Errorf("the tables do not contain the %s reason %s of %s %s", parts[1], parts[2], parts[0], parts[3])
		}
	}
	if len(releases) < 3 {
		t.Errorf("%s has only the releases %v", otherReleases, releases)
	}
}

func isKnown(kind, reason string) bool {
	table := map[string]map[string]verdict{ofPods: podVerdicts, ofDisruption: disruptionVerdicts, ofContainers: containerVerdicts}[kind]
	_, known := table[reason]
	return known || kind == ofPods && (reason == resizing || strings.HasPrefix(reason, outOf)) || kind == ofContainers && reason == completed
}

func folderOf(t *testing.T, module string) string {
	t.Helper()
	folder, err := localcluster.Source(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func recordReasons(t *testing.T, releases []string) {
	t.Helper()
	var text strings.Builder
	for _, release := range releases {
		found := readReasons(t, folderOf(t, "k8s.io/kubernetes@"+release), folderOf(t, "k8s.io/api@v0"+strings.TrimPrefix(release, "v1")))
		for _, kind := range slices.Sorted(maps.Keys(found)) {
			for _, reason := range slices.Sorted(maps.Keys(found[kind])) {
				fmt.Fprintln(&text, release, kind, reason, found[kind][reason])
			}
		}
	}
	if err := os.WriteFile(otherReleases, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// computed lists expressions whose value is not a constant, but a reason that the test finds where it is assigned. Any
// other expression without a constant value fails the test, because the test could miss a reason.
var computed = []string{
	"admissionErr.Type()", "reason", "result.Reason", "re.PredicateName", "r.Name", "oldPodStatus.Reason", "pod.Status.Reason", "cs.Reason",
	"waiting.Reason", "kl.reasonCache.Get(pod.UID, container.Name)", // of containers that wait
	`fmt.Sprintf("%s%s", InsufficientResourcePrefix, re.ResourceName)`,
}

// sources reads reasons from the Go files of Kubernetes.
type sources struct {
	*testing.T
	root, api string
	files     *token.FileSet
	constants map[string]map[string]constant // by folder and name
	found     map[string]map[string]string   // the file that sets a reason, by kind and reason
}

// constant is the value of a constant, and the file that declares it.
type constant struct {
	value ast.Expr
	file  *ast.File
}

func readReasons(t *testing.T, root, api string) map[string]map[string]string {
	t.Helper()
	s := &sources{T: t, root: root, api: api, files: token.NewFileSet(), constants: map[string]map[string]constant{}, found: map[string]map[string]string{}}
	for _, folder := range []string{"pkg/kubelet", "pkg/controller", "pkg/scheduler", "pkg/registry/core/pod"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "/testing/") {
				s.read(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s.found
}

func (s *sources) read(path string) {
	s.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	if !bytes.Contains(text, []byte("Reason")) && !bytes.Contains(text, []byte(" Type() string")) {
		return
	}
	file, err := parser.ParseFile(s.files, path, text, 0)
	if err != nil {
		s.Fatal(err)
	}
	where := strings.TrimPrefix(path, s.root+"/")
	note := func(kind string, e ast.Expr) {
		reason, ok := s.value(filepath.Dir(path), file, e)
		if s.text(e) == "reason" && where != "pkg/kubelet/active_deadline.go" { // a local variable that shadows the constant
			reason, ok = "", false
		}
		switch {
		case ok && reason != "":
			if s.found[kind] == nil {
				s.found[kind] = map[string]string{}
			}
			s.found[kind][reason] = where
		case !ok && !slices.Contains(computed, s.text(e)):
			s.Errorf("%s: cannot determine the value of the reason %s", where, s.text(e))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			s.literal(where, n, note)
		case *ast.CallExpr: // the second-to-last argument of Kubelet.rejectPod is the reason
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "rejectPod" {
				note(ofPods, n.Args[len(n.Args)-2])
			}
		case *ast.AssignStmt:
			s.assignment(where, n, note)
		case *ast.FuncDecl: // errors of the kubelet's resource managers return the reason as their type
			if n.Name.Name == "Type" && n.Recv != nil && strings.HasPrefix(where, "pkg/kubelet/cm/") {
				note(ofPods, n.Body.List[0].(*ast.ReturnStmt).Results[0])
			}
		}
		return true
	})
}

// literal finds the reasons in composite literals that describe the end of a pod.
func (s *sources) literal(where string, l *ast.CompositeLit, note func(kind string, e ast.Expr)) {
	fields := map[string]ast.Expr{}
	for _, e := range l.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			fields[s.text(kv.Key)] = kv.Value
		}
	}
	name := ""
	if l.Type != nil {
		name = s.text(l.Type)
	}
	name = name[strings.LastIndex(name, ".")+1:]
	reason := fields["Reason"]
	switch {
	case name == "PodAdmitResult" && reason != nil, name == "ShouldEvictResponse" && reason != nil:
		note(ofPods, reason)
	case name == "PredicateFailureError" && len(l.Elts) == 2 && reason == nil:
		note(ofPods, l.Elts[0])
	case name == "AdmissionResult" && fields["Name"] != nil: // the scheduler's checks, which the kubelet repeats
		note(ofPods, fields["Name"])
	case name == "ContainerStateTerminated" && reason != nil:
		note(ofContainers, reason)
	case name == "PodCondition" && fields["Type"] != nil && strings.HasSuffix(s.text(fields["Type"]), ".DisruptionTarget") && reason != nil:
		note(ofDisruption, reason)
	}
}

// assignment finds the reasons that are assigned to the status of a pod, or to a variable that ends up there.
func (s *sources) assignment(where string, a *ast.AssignStmt, note func(kind string, e ast.Expr)) {
	for i, to := range a.Lhs {
		if i >= len(a.Rhs) {
			return
		}
		switch to := s.text(to); {
		case to == "status.Reason", to == "s.Reason", to == "apiPodStatus.Reason", to == "pod.Status.Reason" && where != "pkg/kubelet/kubelet_pods.go":
			note(ofPods, a.Rhs[i])
		case to == "reason" && where == "pkg/kubelet/lifecycle/predicate.go":
			note(ofPods, a.Rhs[i])
		case to == "reason" && where == "pkg/kubelet/kubelet_pods.go":
			note(ofContainers, a.Rhs[i])
		}
	}
}

// value returns the string value of an expression.
func (s *sources) value(folder string, file *ast.File, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.Ident:
		c, ok := s.constantsOf(folder)[e.Name]
		if !ok {
			return "", false
		}
		return s.value(folder, c.file, c.value)
	case *ast.SelectorExpr:
		name, ok := e.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		if folder = s.imported(file, name.Name); folder == "" {
			return "", false
		}
		return s.value(folder, file, e.Sel)
	}
	return "", false
}

// imported returns the folder of the package that a file imports under a name; "" if it is not part of Kubernetes.
func (s *sources) imported(file *ast.File, name string) string {
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if i.Name == nil && filepath.Base(path) != name || i.Name != nil && i.Name.Name != name {
			continue
		}
		if rest, ok := strings.CutPrefix(path, "k8s.io/kubernetes/"); ok {
			return filepath.Join(s.root, rest)
		}
		if rest, ok := strings.CutPrefix(path, "k8s.io/api/"); ok {
			return filepath.Join(s.api, rest)
		}
	}
	return ""
}

func (s *sources) constantsOf(folder string) map[string]constant {
	if known, ok := s.constants[folder]; ok {
		return known
	}
	all := map[string]constant{}
	s.constants[folder] = all
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		s.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			s.Fatal(err)
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i, n := range v.Names {
					if i < len(v.Values) {
						all[n.Name] = constant{v.Values[i], file}
					}
				}
			}
		}
	}
	return all
}

func (s *sources) text(n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, s.files, n); err != nil {
		s.Fatal(err)
	}
	return b.String()
}

// At least one release sets each reason in the tables. The exceptions are reasons of container runtimes, and one constant
// that Kubernetes declares but no longer uses.
func TestEveryReasonInTheTablesIsUsed(t *testing.T) {
	text, err := os.ReadFile(otherReleases)
	if err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for kind, table := range map[string]map[string]verdict{ofPods: podVerdicts, ofDisruption: disruptionVerdicts, ofContainers: containerVerdicts} {
		for reason := range table {
			if !strings.Contains(string(text), " "+kind+" "+reason+" ") {
				unused[reason] = true
			}
		}
	}
	exceptions := map[string]bool{outOfMemory: true, "StartError": true, "ContainerCannotRun": true, "Unknown": true, "InitContainerRestartPolicyForbidden": true}
	if diff := cmp.Diff(exceptions, unused); diff != "" {
		t.Errorf("reasons that no release sets (-want +got):\n%s", diff)
	}
}

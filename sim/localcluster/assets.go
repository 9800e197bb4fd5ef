// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/corral-dev/corral/sim/gobuild"
)

// modulePath is the folder of the nested module, relative to the root of the repository.
const modulePath = "sim/localcluster/localkube"

// cacheFolder is the folder for built binaries, relative to the root of the repository. Git ignores it.
const cacheFolder = ".cache"

// builtName is the name of a built binary. The programs are symbolic links to it.
const builtName = "localkube"

// buildFlags are the Makefile's: with others, the control plane would share no compiled package with Corral.
const buildFlags = "-buildvcs=false -trimpath -gcflags=all=-dwarf=false"

// binary is one main package of the nested module, and the programs that its binary contains.
type binary struct {
	folder, title string
	programs      []string
}

var (
	controlPlane = binary{".", "Compiling a Kubernetes control plane (once)", []string{"etcd", "kube-apiserver", "kube-controller-manager"}}
	controllers  = binary{"controllers", "Compiling controllers of Kubernetes (once)", []string{"kube-controller-manager"}}
	kubectl      = binary{"kubectl", "Compiling kubectl (once)", []string{"kubectl"}}
	node         = binary{"node", "Compiling kubelet and kube-scheduler (once)", []string{"kubelet", "kube-scheduler", "kube-controller-manager"}}
)

// kubernetesVersion matches the line of the nested go.mod with the version that the API server reports.
var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`)

// Assets returns a folder with etcd and kube-apiserver, as for KUBEBUILDER_ASSETS. It uses the first of these:
//
//   - The value of KUBEBUILDER_ASSETS, without a check.
//   - A folder of the PATH or of setup-envtest, if its kube-apiserver has the minor version of the nested module.
//   - Programs that are built from Go modules into .cache/localkube below the root of the repository, once for each
//     content of the nested module and Go version. A build with a cold cache takes minutes, and its progress is written
//     to w. Concurrent processes wait for the building process.
func Assets(ctx context.Context, w io.Writer) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	version, err := Version()
	if err != nil {
		return "", err
	}
	if dir := installed(ctx, version); dir != "" {
		return dir, nil
	}
	return controlPlane.build(ctx, w)
}

// Node returns a folder with kubelet, kube-scheduler and the whole kube-controller-manager, which it builds if necessary.
func Node(ctx context.Context, w io.Writer) (string, error) { return node.build(ctx, w) }

// Kubectl returns the path of kubectl in the version of the control plane. It is taken from KUBEBUILDER_ASSETS if it is
// there, or built.
func Kubectl(ctx context.Context, w io.Writer) (string, error) {
	path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	if filepath.IsAbs(path) && isFile(path) {
		return path, nil
	}
	dir, err := kubectl.build(ctx, w)
	return filepath.Join(dir, "kubectl"), err
}

// Version returns the version of Kubernetes that is built, such as v1.37.2.
func Version() (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, modulePath, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("reading the nested module: %w", err)
	}
	match := kubernetesVersion.FindSubmatch(content)
	if match == nil {
		return "", errors.New("the nested module does not require k8s.io/kubernetes")
	}
	return string(match[1]), nil
}

// installed returns a folder with etcd and a kube-apiserver of the same minor version, or an empty string.
func installed(ctx context.Context, version string) string {
	data := os.Getenv("XDG_DATA_HOME")
	if home, err := os.UserHomeDir(); err == nil && data == "" {
		data = filepath.Join(home, ".local", "share")
	}
	minor := version[:strings.LastIndex(version, ".")+1]
	downloaded, _ := filepath.Glob(filepath.Join(data, "kubebuilder-envtest", "k8s", strings.TrimPrefix(minor, "v")+"*-"+runtime.GOOS+"-"+runtime.GOARCH))
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), downloaded...) {
		server := filepath.Join(dir, "kube-apiserver")
		if !filepath.IsAbs(dir) || !isFile(server) || !isFile(filepath.Join(dir, "etcd")) {
			continue
		}
		if out, err := exec.CommandContext(ctx, server, "--version").Output(); err == nil && strings.HasPrefix(string(out), "Kubernetes "+minor) {
			return dir
		}
	}
	return ""
}

// build returns the folder of the binary's programs in the cache. It builds them if they are not there.
func (b binary) build(ctx context.Context, w io.Writer) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, modulePath)
	key, flags, err := buildInputs(module)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, cacheFolder, "localkube", strings.TrimSuffix(key+"-"+b.folder, "-."))
	if isDir(dir) {
		return dir, nil
	}
	_, unlock, err := LockCache(ctx, "localkube")
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(dir) {
		return dir, nil
	}
	return dir, b.fill(ctx, w, module, dir, flags)
}

// repositoryRoot returns the nearest parent folder that contains the nested module, starting at this source file or,
// for a binary built with -trimpath, at the working directory.
func repositoryRoot() (string, error) {
	_, source, _, _ := runtime.Caller(0)
	working, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for _, start := range []string{filepath.Dir(source), working} {
		for dir := start; filepath.IsAbs(dir); dir = filepath.Dir(dir) {
			if isDir(filepath.Join(dir, modulePath)) {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("finding the repository: no folder above %s holds %s", working, modulePath)
}

// buildInputs returns the linker flags and a digest of everything that the binary depends on.
func buildInputs(module string) (key, flags string, err error) {
	digest := sha256.New()
	err = filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(module, path)
		fmt.Fprintf(digest, "%s %d\n%s", name, len(content), content)
		if name == "go.mod" {
			flags = linkerFlags(content)
		}
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("reading the nested module: %w", err)
	}
	fmt.Fprintln(digest, runtime.Version(), runtime.GOOS, runtime.GOARCH, flags, buildFlags)
	return hex.EncodeToString(digest.Sum(nil))[:16], flags, nil
}

func linkerFlags(gomod []byte) string {
	flags := "-s -w"
	if version := kubernetesVersion.FindSubmatch(gomod); version != nil {
		const set = " -X k8s.io/component-base/version.git"
		flags += fmt.Sprintf(set+"Version=%s"+set+"Major=%s"+set+"Minor=%s", version[1], version[2], version[3])
	}
	return flags
}

// LockCache creates and locks a folder for binaries below the root of the repository, waiting until ctx ends. The lock
// is released when the process ends.
func LockCache(ctx context.Context, name string) (folder string, unlock func(), err error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", nil, err
	}
	folder = filepath.Join(root, cacheFolder, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", nil, fmt.Errorf("making the cache folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", nil, fmt.Errorf("opening the cache's lock: %w", err)
	}
	if err := lock(ctx, file); err != nil {
		_ = file.Close()
		return "", nil, fmt.Errorf("locking %s: %w", folder, err)
	}
	return folder, func() { _ = file.Close() }, nil
}

// lock waits while another process holds the lock.
func lock(ctx context.Context, file *os.File) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another build: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// fill builds the binary and its links into dir atomically: the folder is either complete or absent.
func (b binary) fill(ctx context.Context, w io.Writer, module, dir, flags string) error {
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("clearing an unfinished build: %w", err)
	}
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return fmt.Errorf("making the assets folder: %w", err)
	}
	build := gobuild.Build{
		Title: b.title, Dir: module, Verb: "run", Flags: []string{"-mod=readonly", "-ldflags", flags},
		Args: []string{"./" + b.folder, "install", filepath.Join(unfinished, builtName)},
		Env:  append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="+buildFlags),
	}
	if err := build.Run(ctx, w); err != nil {
		return err
	}
	for _, name := range b.programs {
		if err := os.Symlink(builtName, filepath.Join(unfinished, name)); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return fmt.Errorf("finishing the assets folder: %w", err)
	}
	return nil
}

// tail returns the end of a log, which contains the cause of a failure.
func tail(text string) string {
	const most = 4 << 10
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// modulePath is the folder of the nested module, relative to the root of the repository.
const modulePath = "sim/localcluster/localkube"

// cacheFolder is the folder for built binaries, relative to the root of the repository. Git ignores it.
const cacheFolder = ".cache"

// components are the programs in the assets folder. All are links to one binary.
var components = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"}

// kubernetesVersion matches the line of the nested go.mod with the version that the API server reports.
var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`)

// Assets returns a folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl, as
// for KUBEBUILDER_ASSETS. If that variable is set, its value is returned without a check. Otherwise the programs are
// built from Go modules into .cache/localkube below the root of the repository, once for each content of the nested
// module and Go version. A build with a cold cache takes minutes, and its progress is written to w. Concurrent
// processes wait for the building process.
func Assets(ctx context.Context, w io.Writer) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, modulePath)
	key, flags, err := buildInputs(module)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, cacheFolder, "localkube", key)
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
	return dir, build(ctx, w, module, dir, flags)
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
	files, err := os.ReadDir(module)
	if err != nil {
		return "", "", fmt.Errorf("reading the nested module: %w", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(module, file.Name()))
		if err != nil {
			return "", "", fmt.Errorf("reading the nested module: %w", err)
		}
		fmt.Fprintf(digest, "%s %d\n%s", file.Name(), len(content), content)
		if file.Name() == "go.mod" {
			flags = linkerFlags(content)
		}
	}
	fmt.Fprintln(digest, runtime.Version(), runtime.GOOS, runtime.GOARCH, flags)
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

// build fills dir atomically: it is either complete or absent.
func build(ctx context.Context, w io.Writer, module, dir, flags string) error {
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("clearing an unfinished build: %w", err)
	}
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return fmt.Errorf("making the assets folder: %w", err)
	}
	if err := compile(ctx, w, module, filepath.Join(unfinished, "localkube"), flags); err != nil {
		return err
	}
	for _, name := range components {
		if err := os.Symlink("localkube", filepath.Join(unfinished, name)); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return fmt.Errorf("finishing the assets folder: %w", err)
	}
	return nil
}

// compile runs the go command in the nested module, and writes to w every few seconds that it is still running.
func compile(ctx context.Context, w io.Writer, module, binary, flags string) error {
	const what = "building the local Kubernetes control plane from source"
	command := exec.CommandContext(ctx, "go", "run", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", flags, ".", "install", binary)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=") // other flags would cause a rebuild
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // on an interrupt, go ends its compilers; on a kill it would not
	command.WaitDelay = 5 * time.Second
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	start := time.Now()
	fmt.Fprintln(w, what+": this happens once, and takes about six minutes on two cores")
	done := make(chan error, 1)
	go func() { done <- command.Run() }()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", what, err, tail(output.String()))
			}
			fmt.Fprintf(w, "%s: done after %s\n", what, time.Since(start).Round(time.Second))
			return nil
		case <-tick.C:
			fmt.Fprintf(w, "%s: %s so far\n", what, time.Since(start).Round(time.Second))
		}
	}
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

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Components are a program with the components of a Kubernetes version.
type Components struct {
	// Version is that of Kubernetes, such as v1.36.3. Of a program with a Problem it is that of its name.
	Version string `json:"version"`
	// Default is true for the version of Clusters without spec.version.
	Default bool `json:"default"`
	// Etcd is the version of etcd.
	Etcd string `json:"etcd,omitempty"`
	// Program is the path.
	Program string `json:"program"`
	// Problem tells why the version cannot be used, and what to do. Empty if it can.
	Problem string `json:"problem,omitempty"`
}

// Installed returns the versions that an engine with this keelson-kube has, in ascending order.
func Installed(ctx context.Context, main string) ([]Components, error) {
	own, err := ask(ctx, main)
	if err != nil {
		return nil, fmt.Errorf("%s does not report its version: %w", main, err)
	}
	own.Default = true
	var all []Components
	for _, version := range namedVersions(main, own.Version) {
		if version == own.Version {
			all = append(all, own)
			continue
		}
		program := beside(main, version)
		found, err := ask(ctx, program)
		if err != nil {
			found.Problem = fmt.Sprintf("it does not report its version: %v", err)
		} else if err := checkVersion(program, version, found.Version); err != nil {
			found.Problem = err.Error()
		}
		found.Version = version
		all = append(all, found)
	}
	return all, nil
}

// checkVersion returns an error unless a program has the version that its name says. The rules of upgrades depend on it.
func checkVersion(program, want, got string) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s has the components of %s: rename it, or build those of %s with `make kube KUBE_VERSION=%[3]s`", program, got, want)
}

// versionTimeout limits how long a program may take to print its versions.
const versionTimeout = 10 * time.Second

// ask runs a program to get the versions of its components.
func ask(ctx context.Context, program string) (Components, error) {
	found := Components{Program: program}
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, fmt.Errorf("it did not respond within %s", versionTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "version")
	cmd.WaitDelay = time.Second // for what the program may have started
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return found, context.Cause(ctx)
	case err != nil:
		return found, err
	}
	for line := range strings.Lines(string(out)) {
		switch name, version, _ := strings.Cut(strings.TrimSpace(line), " "); name {
		case "kubernetes":
			found.Version = version
		case "etcd":
			found.Etcd = version
		}
	}
	if found.Version == "" {
		return found, errors.New("it prints no version of Kubernetes")
	}
	return found, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// waitTimeout is how long anything may take.
const waitTimeout = "3m"

// peer is kwokctl, with directories of its own.
type peer struct{ dir string }

// newPeer builds kwokctl from the module in bench/peers, and prepares the programs that it runs: ours.
func (b *bench) newPeer(ctx context.Context, host *harness.Cluster, dir string) (*peer, error) {
	p := &peer{dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		return nil, err
	}
	version, err := host.BuildPeer(ctx, p.program("kwokctl"), "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwokctl")
	if err != nil {
		return nil, fmt.Errorf("%w (--peer=false leaves it out)", err)
	}
	b.Note("kwokctl %s", version)
	kube, err := env.Binary("keelson-kube")
	if err != nil {
		return nil, err
	}
	if kube, err = filepath.Abs(kube); err != nil {
		return nil, err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		if err := os.Symlink(kube, p.program(name)); err != nil {
			return nil, err
		}
	}
	// kwokctl calls it by a name that keelson-kube does not know.
	wrapper := fmt.Sprintf("#!/bin/sh\nexec '%s' kwok \"$@\"\n", kube)
	return p, os.WriteFile(p.program("kwok-controller"), []byte(wrapper), 0o700)
}

func (p *peer) program(name string) string { return filepath.Join(p.dir, "bin", name) }

// run runs kwokctl with an environment of its own.
func (p *peer) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, p.program("kwokctl"), args...)
	cmd.Env = []string{"HOME=" + p.dir, "KWOK_WORKDIR=" + p.dir, "PATH=" + filepath.Join(p.dir, "bin") + ":" + os.Getenv("PATH")}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kwokctl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}

// configure writes the configuration of a cluster. We choose the ports, since kwokctl takes the same ones for clusters that
// are created at the same time, and listen on loopback alone; everything else is as shipped.
func (p *peer) configure(name string) error {
	options := map[string]any{
		"runtime": "binary", "bindAddress": "127.0.0.1",
		"etcdBinary": p.program("etcd"), "kubeApiserverBinary": p.program("kube-apiserver"),
		"kubeControllerManagerBinary": p.program("kube-controller-manager"), "kubeSchedulerBinary": p.program("kube-scheduler"),
		"kwokControllerBinary": p.program("kwok-controller"), "kubectlBinary": p.program("kubectl"),
	}
	keys := []string{"etcdPort", "etcdPeerPort", "kubeApiserverPort", "kubeControllerManagerPort", "kubeSchedulerPort", "kwokControllerPort"}
	ports, err := freePorts(len(keys))
	if err != nil {
		return err
	}
	for i, key := range keys {
		options[key] = ports[i]
	}
	document, err := yaml.Marshal(map[string]any{"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokctlConfiguration", "options": options})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.dir, name+".yaml"), document, 0o600)
}

// start returns when kwokctl says that all clusters are ready.
func (p *peer) start(ctx context.Context, s *harness.Sample) error {
	for i := range s.Size {
		if err := p.configure(objectName(i)); err != nil {
			return err
		}
	}
	return s.AtOnce(ctx, "ready", time.Now(), func(ctx context.Context, i int) error {
		path := filepath.Join(p.dir, objectName(i))
		return p.run(ctx, "--config="+path+".yaml", "create", "cluster", "--name="+objectName(i), "--kubeconfig="+path+".kubeconfig", "--wait="+waitTimeout)
	})
}

func (p *peer) pids(context.Context) (pids []int, err error) {
	files, err := filepath.Glob(filepath.Join(p.dir, "clusters", "*", "pids", "*.pid"))
	for _, file := range files {
		data, readErr := os.ReadFile(file)
		pid, parseErr := strconv.Atoi(strings.TrimSpace(string(data)))
		pids, err = append(pids, pid), errors.Join(err, readErr, parseErr)
	}
	return pids, err
}

// stop deletes the clusters, also those of an interrupted run.
func (p *peer) stop(ctx context.Context, s *harness.Sample) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return s.AtOnce(ctx, "gone", time.Now(), func(ctx context.Context, i int) error {
		return p.run(ctx, "delete", "cluster", "--name="+objectName(i), "--kubeconfig="+filepath.Join(p.dir, objectName(i)+".kubeconfig"))
	})
}

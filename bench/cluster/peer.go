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

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/bench/cluster/floor"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// waitTimeout is how long anything may take.
const waitTimeout = 3 * time.Minute

// peer is kwokctl, with directories of its own.
type peer struct {
	dir, version string
}

// newPeer builds kwokctl from the module in bench/peers, and prepares the programs that it runs: ours.
func newPeer(ctx context.Context, dir, kube string) (*peer, error) {
	p := &peer{dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		return nil, err
	}
	var err error
	if p.version, err = harness.BuildPeer(ctx, p.program("kwokctl"), "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwokctl"); err != nil {
		return nil, fmt.Errorf("%w (--peer=false leaves it out)", err)
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
	ports, err := floor.FreePorts(len(keys))
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

// create makes a cluster and returns when kwokctl says that it is ready.
func (p *peer) create(ctx context.Context, name string) error {
	return p.run(ctx, "--config="+filepath.Join(p.dir, name+".yaml"), "create", "cluster", "--name="+name,
		"--kubeconfig="+filepath.Join(p.dir, name+".kubeconfig"), "--wait="+waitTimeout.String())
}

func (p *peer) delete(ctx context.Context, name string) error {
	return p.run(ctx, "delete", "cluster", "--name="+name, "--kubeconfig="+filepath.Join(p.dir, name+".kubeconfig"))
}

// endAll deletes the clusters that an error has left behind.
func (p *peer) endAll() error {
	dirs, err := filepath.Glob(filepath.Join(p.dir, "clusters", "*"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, dir := range dirs {
		err = errors.Join(err, p.delete(ctx, filepath.Base(dir)))
	}
	return err
}

// runPeer measures clusters of kwokctl from nothing to nothing.
func (b *bench) runPeer(ctx context.Context, s *harness.Sample) error {
	for i := range s.Size {
		if err := b.peer.configure(fmt.Sprintf("bench-%d", i)); err != nil {
			return err
		}
	}
	atOnce := func(figure string, do func(ctx context.Context, name string) error) error {
		took := make([]time.Duration, s.Size)
		began := time.Now()
		group, ctx := errgroup.WithContext(ctx)
		for i := range took {
			group.Go(func() error {
				err := do(ctx, fmt.Sprintf("bench-%d", i))
				took[i] = time.Since(began)
				return err
			})
		}
		err := group.Wait()
		s.SetTimes(figure, took...)
		return err
	}
	if err := atOnce("ready", b.peer.create); err != nil {
		return err
	}
	return atOnce("gone", b.peer.delete)
}

// measurePeerMemory measures a cluster of kwokctl that has been left alone for a while.
func (b *bench) measurePeerMemory(ctx context.Context) error {
	b.Say("Memory of a cluster of kwokctl, after %s", b.idle)
	const name = "memory"
	if err := b.peer.configure(name); err != nil {
		return err
	}
	if err := b.peer.create(ctx, name); err != nil {
		return err
	}
	if err := harness.Pause(ctx, b.idle); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(b.peer.dir, "clusters", name, "pids", "*.pid"))
	if err != nil {
		return err
	}
	s, all := b.NewSample(kwokctlIdle, 0, 1), 0.0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		memory, err := harness.MemoryOf(pid)
		if err != nil {
			return err
		}
		component := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".pid"), "-controller") // kwok, as we call it
		s.Set(component, memory.PSS)
		all += memory.PSS
	}
	s.Set("all", all)
	return b.peer.delete(ctx, name)
}

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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/bench/internal/floor"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The package that the peer is built from, and its module.
const (
	peerPackage = "sigs.k8s.io/kwok/cmd/kwokctl"
	peerModule  = "sigs.k8s.io/kwok"
)

// peer is kwokctl, with directories of its own.
type peer struct {
	dir, version string
}

// newPeer builds kwokctl from the module that bench/peers names, and lays the programs ready that it runs: ours.
func newPeer(ctx context.Context, dir, kube string) (*peer, error) {
	p := &peer{dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		return nil, err
	}
	keelson, err := env.Binary("keelson")
	if err != nil {
		return nil, err
	}
	module := filepath.Join(filepath.Dir(keelson), "..", "bench", "peers")
	build := exec.CommandContext(ctx, "go", "-C", module, "build", "-o", p.program("kwokctl"), peerPackage)
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s (--peer=false leaves it out): %w: %s", peerPackage, err, output)
	}
	output, err := exec.CommandContext(ctx, "go", "-C", module, "list", "-m", "-f", "{{.Version}}", peerModule).Output()
	if err != nil {
		return nil, fmt.Errorf("find the version of %s: %w", peerModule, err)
	}
	p.version = strings.TrimSpace(string(output))
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		if err := os.Symlink(kube, p.program(name)); err != nil {
			return nil, err
		}
	}
	// It calls it by a name that our program does not know.
	wrapper := fmt.Sprintf("#!/bin/sh\nexec '%s' kwok \"$@\"\n", kube)
	return p, os.WriteFile(p.program("kwok-controller"), []byte(wrapper), 0o700)
}

func (p *peer) program(name string) string { return filepath.Join(p.dir, "bin", name) }

func (p *peer) kubeconfig(name string) string { return filepath.Join(p.dir, name+".kubeconfig") }

// command returns kwokctl as a process of its own world.
func (p *peer) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.program("kwokctl"), args...)
	cmd.Env = []string{"HOME=" + p.dir, "KWOK_WORKDIR=" + p.dir, "PATH=" + filepath.Join(p.dir, "bin") + ":" + os.Getenv("PATH")}
	return cmd
}

func runCommand(cmd *exec.Cmd) error {
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, output)
	}
	return nil
}

// configure writes the configuration of a cluster, and a kubeconfig with the address that it will have. The ports are
// ours to choose: kwokctl takes the same ones for clusters that are created at the same time. Nothing but loopback is
// listened on; all else is as shipped.
func (p *peer) configure(name string) (server string, err error) {
	options := map[string]any{
		"runtime": "binary", "bindAddress": "127.0.0.1",
		"etcdBinary": p.program("etcd"), "kubeApiserverBinary": p.program("kube-apiserver"),
		"kubeControllerManagerBinary": p.program("kube-controller-manager"), "kubeSchedulerBinary": p.program("kube-scheduler"),
		"kwokControllerBinary": p.program("kwok-controller"), "kubectlBinary": p.program("kubectl"),
	}
	keys := []string{"etcdPort", "etcdPeerPort", "kubeApiserverPort", "kubeControllerManagerPort", "kubeSchedulerPort", "kwokControllerPort"}
	ports, err := floor.FreePorts(len(keys))
	if err != nil {
		return "", err
	}
	for i, key := range keys {
		options[key] = ports[i]
	}
	document, err := yaml.Marshal(map[string]any{"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokctlConfiguration", "options": options})
	if err != nil {
		return "", err
	}
	return "https://127.0.0.1:" + strconv.Itoa(ports[2]), os.WriteFile(filepath.Join(p.dir, name+".yaml"), document, 0o600)
}

// create makes a cluster and returns when kwokctl says that it is ready.
func (p *peer) create(ctx context.Context, name string) error {
	return runCommand(p.command(ctx, "--config="+filepath.Join(p.dir, name+".yaml"), "create", "cluster", "--name="+name,
		"--kubeconfig="+p.kubeconfig(name), "--wait="+patience.String()))
}

func (p *peer) delete(ctx context.Context, name string) error {
	return runCommand(p.command(ctx, "delete", "cluster", "--name="+name, "--kubeconfig="+p.kubeconfig(name)))
}

// clusterDir is where kwokctl keeps a cluster.
func (p *peer) clusterDir(name string) string { return filepath.Join(p.dir, "clusters", name) }

// pids are those of the processes of a cluster, by name.
func (p *peer) pids(name string) (map[string]int, error) {
	files, err := filepath.Glob(filepath.Join(p.clusterDir(name), "pids", "*.pid"))
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || pid <= 1 {
			return nil, fmt.Errorf("%s has no pid: %q", file, data)
		}
		pids[strings.TrimSuffix(filepath.Base(file), ".pid")] = pid
	}
	return pids, nil
}

// endAll deletes the clusters that an error has left behind.
func (p *peer) endAll() error {
	dirs, err := filepath.Glob(filepath.Join(p.clusterDir("*")))
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

// runPeer measures clusters of kwokctl from nothing to nothing. It says that one is ready some time after its API does,
// so both are noted.
func (b *bench) runPeer(ctx context.Context, s *sample) error {
	names := make([]string, s.Clusters)
	servers := make([]string, s.Clusters)
	for i := range names {
		names[i] = fmt.Sprintf("bench-%d", i)
		var err error
		if servers[i], err = b.peer.configure(names[i]); err != nil {
			return err
		}
	}
	s.Ready, s.API = make([]time.Duration, s.Clusters), make([]time.Duration, s.Clusters)
	began := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	for i, name := range names {
		group.Go(func() error {
			err := b.peer.create(groupCtx, name)
			s.Ready[i] = time.Since(began)
			return err
		})
		group.Go(func() error {
			err := b.awaitPeer(groupCtx, name)
			s.API[i] = time.Since(began)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.Gone = make([]time.Duration, s.Clusters)
	began = time.Now()
	group, groupCtx = errgroup.WithContext(ctx)
	for i, name := range names {
		group.Go(func() error {
			err := b.peer.delete(groupCtx, name)
			s.Gone[i] = time.Since(began)
			return err
		})
	}
	return group.Wait()
}

// awaitPeer returns when the API of a cluster of kwokctl is ready.
func (b *bench) awaitPeer(ctx context.Context, name string) error {
	path := filepath.Join(b.peer.clusterDir(name), "kubeconfig.yaml")
	var config *rest.Config
	err := until(ctx, func() (err error) { // it may not be there, or not be whole
		config, err = clientcmd.BuildConfigFromFlags("", path)
		return err
	})
	if err != nil {
		return err
	}
	return floor.AwaitReady(ctx, config)
}

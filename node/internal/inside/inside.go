// Package inside is the part of a node that runs in namespaces of its own, as their first process: it prepares them for a
// kubelet, and runs kubelet, containerd and kube-proxy until it is stopped.
package inside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/handover"
	"github.com/keelson-dev/keelson/node/internal/image"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// runtimeTimeout is how long containerd may take until it answers. It may have a large store to look through.
const runtimeTimeout = 2 * time.Minute

// Run runs the node that the settings describe until SIGTERM. With its end the kernel ends all that is left.
func Run(path string) error {
	if os.Getpid() != 1 {
		return errors.New("keelson-node inside is for keelson-node run, which starts it in namespaces of its own")
	}
	s, err := settings.Read(path)
	if err != nil {
		return err
	}
	if s.Rootless != nil {
		if err := endWithParent(); err != nil {
			return err
		}
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	outside, err := handover.Open(handover.InsideFD)
	if err != nil {
		return err
	}
	if err := handover.Await(outside); err != nil {
		return fmt.Errorf("wait for the link to the machine: %w", err)
	}
	f, err := prepare(s, outside)
	if err != nil {
		return fmt.Errorf("prepare the node: %w", err)
	}
	return runComponents(ctx, f)
}

// prepare makes the namespaces fit for the components.
func prepare(s settings.Settings, outside *net.UnixConn) (facts, error) {
	if err := prepareNetwork(s); err != nil {
		return facts{}, err
	}
	sockets, err := listen(s)
	if err != nil {
		return facts{}, err
	}
	if sockets.Tunnel, err = openTunnel(s); err != nil {
		slog.Error("Pods do not reach other networks by UDP", "error", err.Error())
	}
	if err := handover.Send(outside, sockets); err != nil {
		return facts{}, fmt.Errorf("hand the sockets over: %w", err)
	}
	if s.Rootless != nil {
		go handover.Offer(outside)
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return facts{}, fmt.Errorf("set the host name: %w", err)
	}
	shared, err := openLayers(s)
	if err != nil {
		return facts{}, fmt.Errorf("layers of images: %w", err)
	}
	if err := prepareMounts(s); err != nil {
		return facts{}, err
	}
	if err := shared.mount(); err != nil {
		return facts{}, err
	}
	for name, value := range map[string]string{"TMPDIR": run, "PATH": searchPath} { // the machine's may be out of sight now
		if err := os.Setenv(name, value); err != nil {
			return facts{}, err
		}
	}
	if err := leadOut(s); err != nil {
		slog.Error("Pods do not reach other networks", "error", err.Error())
	}
	if err := prepareCgroups(s.Cgroup()); err != nil {
		return facts{}, err
	}
	snapshots, err := snapshotter()
	if err != nil {
		return facts{}, err
	}
	f := facts{Settings: s, Snapshotter: snapshots, shared: shared}
	if f.Reserved, err = reserve(s.Nodes); err != nil {
		return facts{}, err
	}
	return f, writeConfig(f)
}

// runComponents runs containerd, and when that is ready kubelet and kube-proxy. When the context ends it stops the
// containers, after kubelet, which would start them again.
func runComponents(ctx context.Context, f facts) error {
	k := newSupervisor()
	var runtime, node sync.WaitGroup
	runtimeCtx, endRuntime := context.WithCancel(context.WithoutCancel(ctx))
	defer runtime.Wait()
	defer endRuntime()
	runtime.Go(func() { k.keep(runtimeCtx, f.shared.hand(containerd())) })
	if err := awaitRuntime(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // it was stopped, and nothing runs yet
		}
		return err
	}
	for _, c := range []component{kubelet(f), kubeProxy()} {
		node.Go(func() { k.keep(ctx, c) })
	}
	<-ctx.Done()
	node.Wait()
	stopContainers()
	return nil
}

// searchPath is for runc, mount, iptables and whatever else is called.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is what the components get. Not root's home: kubelet would show what Docker has there for registries to them.
func environment(more ...string) []string {
	return append([]string{"PATH=" + searchPath, "HOME=" + home, "TZ=" + os.Getenv("TZ")}, more...)
}

func containerd() component {
	proxy := fmt.Sprintf("http://127.0.0.1:%d", proxyPort)
	return component{
		name: "containerd", path: filepath.Join(programsDir, "keelson-node"), args: []string{"--config", containerdConfig, "--log-level", "warn"},
		env: environment("HTTP_PROXY="+proxy, "HTTPS_PROXY="+proxy),
	}
}

func kubelet(f facts) component {
	return component{
		name: "kubelet", path: kubeBinary,
		args: []string{
			"--config=" + kubeletConfig,
			"--kubeconfig=" + filepath.Join(nodeDir, settings.KubeletConfig),
			"--hostname-override=" + f.Name,
			"--node-ip=" + f.each(func(of settings.Family) string { return of(f.NodeAddress()).Addr().String() }),
		},
		env: environment(),
	}
}

func kubeProxy() component {
	return component{name: "kube-proxy", path: kubeBinary, args: []string{"--config=" + kubeProxyConfig}, env: environment()}
}

// awaitRuntime waits until containerd answers, and gives it the image that every Pod needs.
func awaitRuntime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	for {
		err := offerPause(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
			slog.Debug("Waiting for containerd", "error", err.Error())
		}
	}
}

func offerPause(ctx context.Context) (err error) {
	if _, err := os.Stat(containerdSocket); err != nil {
		return err
	}
	store, err := image.Open(containerdSocket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.LoadPause(ctx, programsDir)
}

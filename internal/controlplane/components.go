package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The components, by the names that keelson-kube, their records and their logs know them by.
const (
	nameEtcd              = "etcd"
	nameAPIServer         = "kube-apiserver"
	nameControllerManager = "kube-controller-manager"
	nameScheduler         = "kube-scheduler"
	nameKwok              = "kwok"
)

// kwokUser is who kwok is to the API; nodes.go grants it what it needs.
const kwokUser = "system:kwok-controller"

// etcdSocket is etcd's client socket, relative to layout.sockets. etcd insists on the form host:port also for a unix
// socket; the file has the whole as its name.
const (
	etcdSocket = "etcd:0"
	peerSocket = "peer:0"
)

// etcd keeps all objects. A member alone needs no network: clients and the (absent) peers meet it on unix sockets in
// a directory that is closed to others, which stands in for TLS.
func (cp *ControlPlane) etcd() *component {
	args := []string{
		"--name=keelson",
		"--data-dir=" + cp.dir.etcdData(),
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=unix://" + peerSocket,
		"--initial-cluster=keelson=unix://" + peerSocket,
		"--enable-grpc-gateway=false",
		"--log-level=warn",
	}
	if cp.opts.Ephemeral {
		args = append(args, "--unsafe-no-fsync")
	}
	socket := cp.dir.path("sockets", etcdSocket)
	return &component{
		name: nameEtcd,
		args: func() []string { return args },
		// The socket of a killed etcd must not be taken for a sign of life.
		prepare: func() error { return removeIfExists(socket) },
		ready:   func(context.Context) error { _, err := os.Stat(socket); return err },
		// kube-apiserver that finds no etcd waits a second before its next attempt, so it is worth to look often.
		readyInterval: 5 * time.Millisecond,
		readyTimeout:  time.Minute,
	}
}

// apiserver serves the API on loopback, to clients with a certificate or a token only.
func (cp *ControlPlane) apiserver() *component {
	return &component{
		name:          nameAPIServer,
		args:          cp.apiserverArgs,
		prepare:       cp.ensurePort,
		ready:         cp.checkReadyz,
		readyInterval: 20 * time.Millisecond,
		readyTimeout:  2 * time.Minute,
	}
}

func (cp *ControlPlane) apiserverArgs() []string {
	cp.mu.Lock()
	port := cp.state.Port
	cp.mu.Unlock()
	pki := cp.dir.pki
	return []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		// Without an address it looks for the default route, and ends where there is none. Nobody reaches the API
		// through the Service "kubernetes" on simulated nodes, so nobody needs to keep its endpoints.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("sa.key"),
		"--service-account-signing-key-file=" + pki("sa.key"),
		"--service-cluster-ip-range=" + serviceNetwork,
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--shutdown-delay-duration=0s",
		"--profiling=false",
	}
}

// controllerManager runs Kubernetes' own controllers. It is alone, so it does not elect a leader: a restart would
// wait for the lease of its predecessor.
func (cp *ControlPlane) controllerManager() *component {
	pki := cp.dir.pki
	args := append(cp.clientArgs(nameControllerManager),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+pki("sa.key"),
		"--root-ca-file="+pki("ca.crt"),
		"--cluster-signing-cert-file="+pki("ca.crt"),
		"--cluster-signing-key-file="+pki("ca.key"),
		"--service-cluster-ip-range="+serviceNetwork,
	)
	return &component{name: nameControllerManager, args: func() []string { return args }}
}

// scheduler places pods on nodes.
func (cp *ControlPlane) scheduler() *component {
	args := cp.clientArgs(nameScheduler)
	return &component{name: nameScheduler, args: func() []string { return args }}
}

// clientArgs are the flags that kube-controller-manager and kube-scheduler share: alone, listening nowhere, and not
// throttled to the 20 requests a second that suit a shared API.
func (cp *ControlPlane) clientArgs(name string) []string {
	return []string{
		"--kubeconfig=" + cp.dir.userFile(name),
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}
}

// kwok plays the kubelets of the simulated nodes.
func (cp *ControlPlane) kwok() *component {
	args := []string{
		"--kubeconfig=" + cp.dir.userFile(nameKwok),
		"--config=" + cp.dir.stages(),
		"--manage-nodes-with-label-selector=" + simulatedLabel + "=true",
		"--node-lease-duration-seconds=40",
		"--cidr=10.244.0.0/16",
		"--node-ip=127.0.0.1",
	}
	return &component{
		name:          nameKwok,
		args:          func() []string { return args },
		prepare:       cp.writeStages,
		ready:         cp.checkNodes,
		readyInterval: 50 * time.Millisecond,
		readyTimeout:  2 * time.Minute,
	}
}

// writeStages stores the rules by which kwok plays nodes and pods: those that it ships.
func (cp *ControlPlane) writeStages() error {
	out, err := exec.Command(cp.opts.Binary, "kwok-stages").Output()
	if err != nil {
		return fmt.Errorf("ask %s for kwok's stages: %w", cp.opts.Binary, err)
	}
	return writeFile(cp.dir.stages(), out)
}

// ensurePort chooses another port, and tells the kubeconfigs, when somebody else listens on ours. Once the API has
// been ready, the port stays: clients hold on to it, so a restart waits until it is free again.
func (cp *ControlPlane) ensurePort() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	taken := cp.state.Port
	if isFree(taken) {
		return nil
	}
	if cp.portFixed {
		return fmt.Errorf("port %d on 127.0.0.1 is taken by another program: end that program", taken)
	}
	port, err := freePort(string(cp.dir))
	if err != nil {
		return err
	}
	cp.opts.Log.Info("Moving the API to another port, because another program listens on it", "taken", taken, "port", port)
	cp.state.Port = port
	if err := saveState(cp.dir, cp.state); err != nil {
		return err
	}
	if err := writeKubeconfigs(cp.dir, port); err != nil {
		return err
	}
	cp.config, err = loadConfig(cp.dir)
	return err
}

// checkReadyz asks the API whether it is ready. An API that has been ready keeps its port.
func (cp *ControlPlane) checkReadyz(ctx context.Context) error {
	if err := readyz(ctx, cp.Config()); err != nil {
		return err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.portFixed = true
	return nil
}

// readyz asks an API whether it is ready.
func readyz(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := kubernetes.NewForConfig(config) // transports are cached, so this is cheap
	if err != nil {
		return err
	}
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

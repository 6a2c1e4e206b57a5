package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// reconnectTimeout limits the time of kube-apiserver to reconnect to a restarted etcd.
const reconnectTimeout = 10 * time.Second

// apiserver serves the API on loopback, only to clients with a certificate or a token.
func (cp *ControlPlane) apiserver() *component {
	return &component{
		name:          nameAPIServer,
		args:          cp.apiserverArgs,
		later:         cp.simulatedNodeArgs(),
		once:          cp.portArgs,
		inputs:        []string{cp.dir.pki("sa.key")},
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
	args := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + cmp.Or(cp.opts.Address, loopback),
		"--secure-port=" + strconv.Itoa(port),
		// Without an address it looks for the default route, and exits where there is none. On simulated nodes
		// no client uses the Service "kubernetes", so its endpoints are not needed.
		"--advertise-address=127.0.0.1",
		"--anonymous-auth=false",
	}
	return slices.Concat(args, APIServerFlags(cp.dir.pki, cp.clientTrust(), cp.serviceNetworks()), cp.nodeArgs(), cp.opts.APIServerArgs)
}

// APIServerFlags returns the flags of kube-apiserver that all control planes have in common. pki returns the path of a file of the
// certificates, trust names the file with the CAs of clients, and services has the networks of Services.
func APIServerFlags(pki func(file string) string, trust, services string) []string {
	return []string{
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki(trust),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("sa.key"),
		"--service-account-signing-key-file=" + pki("sa.key"),
		"--service-cluster-ip-range=" + services,
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--shutdown-delay-duration=0s",
		// Otherwise it waits for all watches, which their clients do not end: the other components, kubelets and users.
		"--shutdown-watch-termination-grace-period=1s",
		"--profiling=false",
	}
}

// IsReservedFlag reports whether a flag of kube-apiserver, without dashes, cannot be among Options.APIServerArgs: one that
// this package sets because the control plane depends on it, or one that would break those.
func IsReservedFlag(name string) bool {
	for _, prefix := range []string{"etcd-", "tls-cert", "tls-private", "requestheader-", "proxy-client-", "service-account-key", "service-account-signing"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(reservedFlags, name)
}

// fileFlags matches the names of flags of kube-apiserver whose values are files, folders or sockets of the
// host.
var fileFlags = regexp.MustCompile(`-(file|cafile|certfile|keyfile|path|dir|key|authority|certificate|manifest|provider-config|logs-handler)$`)

// NamesFile reports whether a flag of kube-apiserver, without dashes, makes it read or write files of the host, or
// serve its logs. Users without access to the host must not set it.
func NamesFile(name string) bool { return fileFlags.MatchString(name) }

var reservedFlags = []string{
	"admission-control", "advertise-address", "allow-privileged", "anonymous-auth", "authentication-config",
	"authorization-config", "authorization-mode", "bind-address", "cert-dir", "client-ca-file",
	"disable-admission-plugins", "egress-selector-config-file", "emulated-version", "endpoint-reconciler-type",
	"external-hostname", "help", "kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key",
	"kubelet-preferred-address-types", "min-compatibility-version", "permit-address-sharing", "permit-port-sharing",
	"secure-port", "service-account-issuer", "service-cluster-ip-range", "storage-backend", "version",
}

// CheckFlags returns an error if a user must not set one of the flags of kube-apiserver, in extraArgs of a Cluster.
func CheckFlags(flags map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if IsReservedFlag(name) {
			return fmt.Errorf("the cluster depends on the flag --%s of kube-apiserver, so that spec.apiServer.extraArgs cannot set it", name)
		}
		if NamesFile(name) {
			return fmt.Errorf("the flag --%s of kube-apiserver names a file of the host, so that spec.apiServer.extraArgs cannot set it", name)
		}
	}
	return nil
}

// Flags returns flags as a command line in a stable order.
func Flags(flags map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		all = append(all, "--"+name+"="+flags[name])
	}
	return all
}

// ensurePort chooses another port, and updates the kubeconfigs, if another process listens on ours. Once the API has
// been ready, clients use the port, so it does not change: a restart waits until it is free again.
func (cp *ControlPlane) ensurePort(context.Context) error {
	cp.mu.Lock()
	taken, isFixed := cp.state.Port, cp.portFixed || cp.opts.Port != 0
	cp.mu.Unlock()
	if cp.isPortHeld(taken) || isFree(cp.opts.Address, taken) {
		return nil
	}
	user, remedy := "another program", "stop that program"
	if cp.opts.PortUser != nil {
		if known := cp.opts.PortUser(serverURL(cp.opts.Address, taken)); known != "" {
			user, remedy = known, "choose another port for one of the two"
		}
	}
	if isFixed {
		return fmt.Errorf("port %d on %s is in use by %s: %s", taken, cmp.Or(cp.opts.Address, loopback), user, remedy)
	}
	port, err := freePort(string(cp.dir), cp.opts.Address)
	if err != nil {
		return err
	}
	cp.opts.Log.Info("Moving the API to another port, because its port is in use by "+user, "taken", taken, "port", port)
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.state.Port = port
	if err := saveState(cp.dir, cp.state); err != nil {
		return err
	}
	if err := cp.writeNodeSettings(); err != nil {
		return err
	}
	return cp.writeKubeconfigsLocked()
}

func (cp *ControlPlane) isPortHeld(port int) bool {
	return cp.opts.PortHeld != nil && cp.opts.PortHeld(cmp.Or(cp.opts.Address, loopback), port)
}

// portArgs makes kube-apiserver share its port with the caller. Without one it does not: two control planes must not share a port.
func (cp *ControlPlane) portArgs() []string {
	cp.mu.Lock()
	port := cp.state.Port
	cp.mu.Unlock()
	if !cp.isPortHeld(port) {
		return nil
	}
	return []string{"--permit-port-sharing=true"}
}

var errPortHeld = errors.New("kube-apiserver does not listen yet")

// checkReadyz checks whether the API is ready. An API that was ready keeps its port. As long as the caller listens at the port, a request
// could reach the caller instead, which does not answer.
func (cp *ControlPlane) checkReadyz(ctx context.Context) error {
	cp.mu.Lock()
	port := cp.state.Port
	cp.mu.Unlock()
	if cp.isPortHeld(port) {
		return errPortHeld
	}
	err := readyz(ctx, cp.Config())
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		cp.answered.Do(cp.answers)
	}
	if err != nil {
		return err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.portFixed = true
	return nil
}

// answers starts the work that need not wait until the API is ready.
func (cp *ControlPlane) answers() {
	if cp.opts.Answering != nil {
		cp.wg.Go(func() { cp.opts.Answering(cp.supervision, cp.Config()) })
	}
	if cp.opts.OpenEarly {
		cp.wg.Go(func() { cp.opened <- cp.openNow(cp.supervision) })
	}
}

// readyz checks whether an API is ready.
func readyz(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := kubernetes.NewForConfig(config) // transports are cached, so this is cheap
	if err != nil {
		return err
	}
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// reviveAPI stops a kube-apiserver that does not reconnect to a restarted etcd, so that it is restarted, too: its
// reconnect backoff grows to two minutes while etcd is down.
func (cp *ControlPlane) reviveAPI(ctx context.Context) {
	p, err := cp.procs.Find(nameAPIServer)
	if err != nil || time.Since(p.Status().StartedAt) < goodRun {
		return // it may still be starting
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.Done(): // its successor connects to etcd
			cancel()
		case <-ctx.Done():
		}
	}()
	err = await(ctx, nameAPIServer, 500*time.Millisecond, reconnectTimeout, cp.checkReadyz)
	if err == nil || ctx.Err() != nil {
		return
	}
	cp.opts.Log.Info("Restarting kube-apiserver, because it does not reconnect to etcd", "reason", err.Error())
	// Without etcd, a graceful shutdown is impossible.
	if err := stopProcess(ctx, p, abandonTimeout); err != nil && ctx.Err() == nil {
		cp.opts.Log.Error(err, "Failed to stop kube-apiserver")
	}
}

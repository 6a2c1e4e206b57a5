package controlplane

import (
	"cmp"
	"context"
	_ "embed" // for moreStages
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/node"
)

// The components, by their names in keelson-kube, in records and in logs.
const (
	nameEtcd              = "etcd"
	nameAPIServer         = "kube-apiserver"
	nameControllerManager = "kube-controller-manager"
	nameScheduler         = "kube-scheduler"
	nameKwok              = "kwok"
	nameNode              = "node" // of the first real node
)

// numbered returns the name of what the control plane has for the real node with an index. That of the first one has no number.
func numbered(name string, index int) string {
	if index == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(index+1)
}

// nodeNames are the names of all possible real nodes, as components.
var nodeNames = func() (names []string) {
	for index := range node.MaxNodes {
		names = append(names, numbered(nameNode, index))
	}
	return names
}()

// isNode reports whether a component is a real node.
func isNode(component string) bool { return slices.Contains(nodeNames, component) }

// componentNames are the names of all possible components in the order of their dependencies.
var componentNames = append([]string{nameEtcd, nameAPIServer, nameControllerManager, nameScheduler, nameKwok}, nodeNames...)

// kwokUser is the user of kwok; nodes.go grants its permissions.
const kwokUser = "system:kwok-controller"

// etcdSocket is etcd's client socket, relative to layout.sockets. etcd requires the form host:port even for a unix
// socket; all of it is the file name.
const (
	etcdSocket = "etcd:0"
	peerSocket = "peer:0"
)

// The names of etcd and its cluster of one member.
const (
	memberName     = "keelson"
	initialCluster = memberName + "=unix://" + peerSocket
)

// componentEnv returns the part of our environment that the components get. The rest may be secret or change their
// behavior: etcd refuses to start if ETCD_NAME is set, and kwok reads KWOK_ variables.
func componentEnv(environ []string) []string {
	wanted := []string{"HOME", "PATH", "TMPDIR", "TZ"} // TZ: CronJobs without a time zone follow kube-controller-manager's
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !slices.Contains(wanted, name)
	})
}

// etcd stores all objects. A single member needs no network: it listens on unix sockets in a private directory,
// which replaces TLS.
func (cp *ControlPlane) etcd() *component {
	args := []string{
		"--name=" + memberName,
		"--data-dir=" + cp.dir.etcdData(),
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=unix://" + peerSocket,
		"--initial-cluster=" + initialCluster,
		"--enable-grpc-gateway=false",
		"--log-level=warn",
		// A single member elects itself after a random part of the election timeout, half a second on average
		// with the default, while everything waits. It sends no heartbeats and cannot lose an election, so
		// shorter times only cost clock ticks: 50 a second instead of 10, 0.3 % of one processor.
		"--heartbeat-interval=20",
		"--election-timeout=100",
	}
	if cp.opts.Ephemeral {
		args = append(args, "--unsafe-no-fsync")
	}
	socket := cp.dir.path("sockets", etcdSocket)
	return &component{
		name: nameEtcd,
		args: func() []string { return args },
		// The default is 2 GiB.
		later: []string{"--quota-backend-bytes=" + strconv.FormatInt(cmp.Or(cp.opts.QuotaBytes, defaultQuota), 10)},
		// The socket may be left over from a killed etcd.
		prepare:       func(context.Context) error { return removeIfExists(socket) },
		ready:         func(context.Context) error { _, err := os.Stat(socket); return err },
		readyInterval: 5 * time.Millisecond, // everything waits for etcd
		readyTimeout:  time.Minute,
		restarted:     func(ctx context.Context) { cp.wg.Go(func() { cp.reviveAPI(ctx) }) },
	}
}

// controllerManager runs Kubernetes' own controllers. There is one replica, so leader election is off: a restart
// would wait for the lease of its predecessor.
func (cp *ControlPlane) controllerManager() *component {
	pki, signer := cp.dir.pki, clientAuthority(cp.generation())
	args := append(ClientFlags(cp.dir.userFile(nameControllerManager)), ControllerManagerFlags(pki, signer, cp.serviceNetworks())...)
	args = append(args, "--leader-elect=false", "--secure-port=0")
	return &component{
		name: nameControllerManager,
		args: func() []string { return args },
		// Without it, it creates a folder on the host.
		later:  []string{"--flex-volume-plugin-dir=" + cp.dir.volumePlugins()},
		inputs: []string{cp.dir.userFile(nameControllerManager), pki("sa.key")},
	}
}

// ControllerManagerFlags returns the flags of kube-controller-manager that all control planes have in common. pki returns the path of a
// file of the certificates, signer names the CA of client certificates, and services has the networks of Services.
func ControllerManagerFlags(pki func(file string) string, signer, services string) []string {
	return []string{
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + pki("sa.key"),
		"--root-ca-file=" + pki("ca.crt"),
		"--cluster-signing-cert-file=" + pki(signer+".crt"),
		"--cluster-signing-key-file=" + pki(signer+".key"),
		"--service-cluster-ip-range=" + services,
	}
}

// scheduler assigns Pods to nodes.
func (cp *ControlPlane) scheduler() *component {
	args := append(ClientFlags(cp.dir.userFile(nameScheduler)), "--leader-elect=false", "--secure-port=0")
	return &component{
		name:   nameScheduler,
		args:   func() []string { return args },
		inputs: []string{cp.dir.userFile(nameScheduler)},
	}
}

// ClientFlags are the common flags of kube-controller-manager and kube-scheduler: no throttling to 20 requests a second, which suits a
// shared API.
func ClientFlags(kubeconfig string) []string {
	return []string{"--kubeconfig=" + kubeconfig, "--profiling=false", "--kube-api-qps=500", "--kube-api-burst=1000"}
}

// kwok simulates the kubelets of the simulated nodes.
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
		name:   nameKwok,
		kube:   cp.opts.Simulator,
		args:   func() []string { return args },
		inputs: []string{cp.dir.userFile(nameKwok)},
		// kwok drops a Pod whose request fails with any error other than connection refused, for example because
		// kube-apiserver was killed or has no roles yet: that Pod would never run. A restarted kwok lists all Pods.
		follows:       nameAPIServer,
		prepare:       cp.prepareKwok,
		ready:         cp.checkNodes,
		readyInterval: 20 * time.Millisecond,
		readyTimeout:  2 * time.Minute,
	}
}

// moreStages are additional Stages for kwok.
//
//go:embed stages.yaml
var moreStages []byte

// prepareKwok writes kwok's default Stages and ours, and releases the leases of the nodes.
func (cp *ControlPlane) prepareKwok(ctx context.Context) error {
	stages, err := cp.kwokStages()
	if err != nil {
		return err
	}
	if stages, err = adaptStages(stages); err != nil {
		return err
	}
	if err := atomicfile.Write(cp.dir.stages(), stages, atomicfile.Volatile); err != nil {
		return err
	}
	// The API may just be restarting.
	return await(ctx, "the API, which has the leases of the nodes,", 100*time.Millisecond, 30*time.Second, cp.freeNodes)
}

// simulatedCondition is the template of a condition of every simulated Pod. It tells users that a ready Pod is not really
// running.
const simulatedCondition = `      - lastTransitionTime: {{ $now | Quote }}
        status: "True"
        type: keelson.dev/Simulated
        reason: NotExecuted
        message: This Pod is on a simulated node, which reports that it runs. No container was started.
`

// imageName is a regular expression for image names, after the reference grammar of registries.
const imageName = `^((localhost|[a-zA-Z0-9-]+([.][a-zA-Z0-9-]+)*)(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*` +
	`(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@[a-zA-Z0-9]+:[a-fA-F0-9]{32,})?$`

// invalidImages is a jq expression for the invalid image names of a Pod.
const invalidImages = `.spec | (.containers + (.initContainers // [])) | .[] | .image | select(test("` + imageName + `") | not)`

// adaptStages returns kwok's stages and ours. A Pod with an invalid image name does not become ready, and a Pod that becomes ready gets
// simulatedCondition.
func adaptStages(shipped []byte) ([]byte, error) {
	text := string(shipped)
	for _, addition := range []struct{ after, text string }{
		{"  name: pod-ready\nspec:\n  resourceRef:\n    apiGroup: v1\n    kind: Pod\n  selector:\n    matchExpressions:\n",
			"    - key: '" + invalidImages + "'\n      operator: 'DoesNotExist'\n"},
		{"        type: Initialized\n", simulatedCondition},
	} {
		if strings.Count(text, addition.after) != 1 {
			return nil, fmt.Errorf("kwok's stages have changed: they do not have this text once:\n%s", addition.after)
		}
		text = strings.Replace(text, addition.after, addition.after+addition.text, 1)
	}
	ours := strings.NewReplacer("$INVALID_IMAGES", invalidImages, "$IMAGE_NAME", imageName).Replace(string(moreStages))
	return []byte(text + "\n---\n" + ours), nil
}

// stages caches the default Stages of the kwok in a binary, by binary and build time, because getting them
// starts a program.
var stages = struct {
	sync.Mutex
	of map[string][]byte
}{of: map[string][]byte{}}

// kwokStages returns the default Stages of kwok.
func (cp *ControlPlane) kwokStages() ([]byte, error) {
	binary := cmp.Or(cp.opts.Simulator, cp.opts.Binary)
	info, err := os.Stat(binary)
	if err != nil {
		return nil, fmt.Errorf("get kwok's stages: %w", err)
	}
	key := binary + " " + info.ModTime().String()
	stages.Lock()
	defer stages.Unlock()
	if text := stages.of[key]; text != nil {
		return text, nil
	}
	text, err := exec.CommandContext(cp.supervision, binary, "kwok-stages").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for kwok's stages: %w", binary, err)
	}
	stages.of[key] = text
	return text, nil
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

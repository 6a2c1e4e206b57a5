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
)

// The components, by the names that keelson-kube, their records and their logs know them by.
const (
	nameEtcd              = "etcd"
	nameAPIServer         = "kube-apiserver"
	nameControllerManager = "kube-controller-manager"
	nameScheduler         = "kube-scheduler"
	nameKwok              = "kwok"
	nameNode              = "node"
)

// kwokUser is the user of kwok; nodes.go grants its permissions.
const kwokUser = "system:kwok-controller"

// etcdSocket is etcd's client socket, relative to layout.sockets. etcd insists on the form host:port also for a unix
// socket; the file has the whole as its name.
const (
	etcdSocket = "etcd:0"
	peerSocket = "peer:0"
)

// The names of etcd and of its cluster, which has one member.
const (
	memberName     = "keelson"
	initialCluster = memberName + "=unix://" + peerSocket
)

// componentEnv returns what the components get of our environment. Most of it does not concern them or may be secret,
// and some of it changes their behavior: etcd refuses to start when ETCD_NAME is set, and kwok reads KWOK_ variables.
func componentEnv(environ []string) []string {
	wanted := []string{"HOME", "PATH", "TMPDIR", "TZ"} // TZ: CronJobs without a time zone follow kube-controller-manager's
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !slices.Contains(wanted, name)
	})
}

// etcd keeps all objects. A member alone needs no network: clients and the (absent) peers meet it on unix sockets in
// a directory that is closed to others, which stands in for TLS.
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
		// A member alone elects itself after a random part of the election timeout, half a second on average with the
		// default, and everything waits. It sends no heartbeats and cannot lose an election, so the only
		// cost of shorter times is its clock: 50 ticks a second instead of 10, 0.3 % of one processor.
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
		// The socket of a killed etcd must not be taken for a sign of life.
		prepare:       func(context.Context) error { return removeIfExists(socket) },
		ready:         func(context.Context) error { _, err := os.Stat(socket); return err },
		readyInterval: 5 * time.Millisecond, // the way to a ready API leads through this
		readyTimeout:  time.Minute,
		restarted:     func(ctx context.Context) { cp.wg.Go(func() { cp.reviveAPI(ctx) }) },
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
		"--cluster-signing-cert-file="+pki(clientAuthority(cp.generation())+".crt"),
		"--cluster-signing-key-file="+pki(clientAuthority(cp.generation())+".key"),
		"--service-cluster-ip-range="+cp.services().String(),
	)
	return &component{
		name: nameControllerManager,
		args: func() []string { return args },
		// Without it, it makes a folder of the machine.
		later:  []string{"--flex-volume-plugin-dir=" + cp.dir.volumePlugins()},
		inputs: []string{cp.dir.userFile(nameControllerManager), pki("sa.key")},
	}
}

// scheduler places pods on nodes.
func (cp *ControlPlane) scheduler() *component {
	args := cp.clientArgs(nameScheduler)
	return &component{
		name:   nameScheduler,
		args:   func() []string { return args },
		inputs: []string{cp.dir.userFile(nameScheduler)},
	}
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
		name:   nameKwok,
		args:   func() []string { return args },
		inputs: []string{cp.dir.userFile(nameKwok)},
		// It forgets a pod whose request had no answer, or another one than that the connection was refused, such as those
		// of a kube-apiserver that was killed or does not know its roles yet: that pod would never run. A new one looks at
		// all of them.
		follows:       nameAPIServer,
		prepare:       cp.prepareKwok,
		ready:         cp.checkNodes,
		readyInterval: 20 * time.Millisecond,
		readyTimeout:  2 * time.Minute,
	}
}

// moreStages are rules for kwok that it does not ship.
//
//go:embed stages.yaml
var moreStages []byte

// prepareKwok stores the rules by which kwok plays nodes and pods, those that it ships and ours, and frees the nodes.
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

// simulatedCondition is the template of a condition of every simulated Pod, for users who take a Pod that is ready for one that runs.
const simulatedCondition = `      - lastTransitionTime: {{ $now | Quote }}
        status: "True"
        type: keelson.dev/Simulated
        reason: NotExecuted
        message: This Pod is on a simulated node, which reports that it runs. No container was started.
`

// imageName is a regular expression for the names of images, as the reference grammar of registries has it.
const imageName = `^((localhost|[a-zA-Z0-9-]+([.][a-zA-Z0-9-]+)*)(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*` +
	`(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@[a-zA-Z0-9]+:[a-fA-F0-9]{32,})?$`

// invalidImages is a jq expression for the names of images of a Pod that are invalid.
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

// stages are the rules that the kwok in a binary ships, by binary and when that was built: getting them starts a
// program, which the control planes of one process need not repeat.
var stages = struct {
	sync.Mutex
	of map[string][]byte
}{of: map[string][]byte{}}

// kwokStages returns the rules that kwok ships.
func (cp *ControlPlane) kwokStages() ([]byte, error) {
	info, err := os.Stat(cp.opts.Binary)
	if err != nil {
		return nil, fmt.Errorf("ask for kwok's stages: %w", err)
	}
	key := cp.opts.Binary + " " + info.ModTime().String()
	stages.Lock()
	defer stages.Unlock()
	if text := stages.of[key]; text != nil {
		return text, nil
	}
	text, err := exec.CommandContext(cp.supervision, cp.opts.Binary, "kwok-stages").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for kwok's stages: %w", cp.opts.Binary, err)
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

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// scripts start the components of control planes with shell scripts. Their certificates exist before the clock starts.
type scripts struct {
	base string // for the folders of the scripts
	// What scripts are made from: the flags and files of a control plane of ours, in a folder and at a port.
	dir, port string
	config    *rest.Config
	files     map[string]string   // what its components read at their start, by path
	commands  map[string][]string // by component

	running []*harness.Script
}

// The components that everything else waits for, and those that start once the API is ready.
const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"
)

var others = []string{"kube-controller-manager", "kube-scheduler", "kwok"}

// newScripts looks at the first cluster of ours, which can go then.
func newScripts(ctx context.Context, ours *clusters, base string) (*scripts, error) {
	dir := ours.dirs[0]
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, fmt.Errorf("the server of the model: %w", err)
	}
	f := &scripts{base: base, dir: dir, port: port, config: config, files: map[string]string{}, commands: map[string][]string{}}
	pids, err := ours.pids(ctx)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		words, err := harness.CommandLine(pid)
		if err != nil {
			return nil, err
		}
		if len(words) > 1 { // not of all shims
			f.commands[words[1]] = words
		}
	}
	paths, err := filepath.Glob(filepath.Join(dir, "pki", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(paths, filepath.Join(dir, "kwok-stages.yaml")) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f.files[path] = string(data)
	}
	return f, nil
}

// prepare writes the files of a control plane in another folder and at a port of its own.
func (f *scripts) prepare(dir, port string) (*harness.Script, error) {
	for _, sub := range []string{"sockets", "etcd", "pki"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	adapt := strings.NewReplacer(f.dir, dir, "127.0.0.1:"+f.port, "127.0.0.1:"+port, "--secure-port="+f.port, "--secure-port="+port)
	for path, data := range f.files {
		if err := os.WriteFile(adapt.Replace(path), []byte(adapt.Replace(data)), 0o600); err != nil {
			return nil, err
		}
	}
	script := &harness.Script{Dir: dir}
	start := func(component string) {
		words := adapt.Replace(strings.Join(f.commands[component], "\n"))
		script.Process("", "sockets", strings.Split(words, "\n"), "../"+component+".log")
	}
	start(etcd)
	// Without its socket, the first attempt of kube-apiserver would fail, and the next would come a second later.
	script.Printf("while [ ! -S sockets/etcd:0 ] && kill -0 $!; do sleep 0.005; done")
	start(apiServer)
	script.Printf("read -r _")
	for _, component := range others {
		start(component)
	}
	return script, nil
}

func (f *scripts) start(ctx context.Context, s *harness.Sample) error {
	f.running = nil
	ports, err := freePorts(s.Size)
	if err != nil {
		return err
	}
	for i, port := range ports {
		script, err := f.prepare(filepath.Join(f.base, strconv.Itoa(i)), strconv.Itoa(port))
		if err != nil {
			return err
		}
		f.running = append(f.running, script)
	}
	configs := make([]*rest.Config, s.Size)
	err = s.AtOnce(ctx, "ready", time.Now(), func(ctx context.Context, i int) error {
		if err := f.running[i].Start(); err != nil {
			return err
		}
		config := rest.CopyConfig(f.config)
		config.Host = fmt.Sprintf("https://127.0.0.1:%d", ports[i])
		configs[i] = config
		if err := awaitReady(ctx, config); err != nil {
			log, _ := os.ReadFile(filepath.Join(f.running[i].Dir, apiServer+".log")) // there may be none
			return fmt.Errorf("%w; the end of its log is\n%s", err, log[max(0, len(log)-4<<10):])
		}
		return f.running[i].Go()
	})
	for _, config := range configs {
		if err == nil {
			err = allowKwok(ctx, config)
		}
	}
	return err
}

// allowKwok gives kwok its permissions, without which it ends after a while.
func allowKwok(ctx context.Context, config *rest.Config) error {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kwok"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:kwok-controller"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	return err
}

func (f *scripts) pids(ctx context.Context) (pids []int, err error) {
	for _, script := range f.running {
		some, scriptErr := script.PIDs(ctx)
		pids, err = append(pids, some...), errors.Join(err, scriptErr)
	}
	return pids, err
}

func (f *scripts) stop(context.Context, *harness.Sample) (err error) {
	for _, script := range f.running {
		err = errors.Join(err, script.Stop())
	}
	return err
}

// pollInterval is how often awaitReady asks, as our control planes do.
const pollInterval = 20 * time.Millisecond

// awaitReady returns when /readyz of an API says ok.
func awaitReady(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 5*time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return harness.Until(ctx, pollInterval, func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	})
}

// freePorts returns n ports on 127.0.0.1 that nothing listens on.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, listenErr := net.Listen("tcp", "127.0.0.1:0")
		if listenErr != nil {
			return nil, errors.Join(err, listenErr)
		}
		defer func() { err = errors.Join(err, l.Close()) }() // all are open until the end, so that none comes twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

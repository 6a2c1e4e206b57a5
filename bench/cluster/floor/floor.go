// Package floor starts the components of a control plane with a shell script, the least work that makes them run. Their
// certificates exist before the clock starts.
package floor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// The components that everything else waits for, and those that start once the API is ready.
const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"
)

var others = []string{"kube-controller-manager", "kube-scheduler", "kwok"}

// Model is what scripts are made from: the programs, flags and files of a control plane of ours.
type Model struct {
	dir, port string // of the control plane
	files     string // copies of what its components read at their start
	config    *rest.Config
	commands  map[string][]string // by component
}

// NewModel looks at the control plane that runs in dir, and copies its files to another directory, so that it can go.
func NewModel(dir string, config *rest.Config, files string) (*Model, error) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, fmt.Errorf("the server of the model: %w", err)
	}
	m := &Model{dir: dir, port: port, files: files, config: config, commands: map[string][]string{}}
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		return nil, err
	}
	for _, s := range statuses {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID))
		if err != nil {
			return nil, err
		}
		m.commands[s.ID] = strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	}
	if m.commands[etcd] == nil || m.commands[apiServer] == nil {
		return nil, fmt.Errorf("etcd and kube-apiserver do not run in %s", dir)
	}
	if err := os.CopyFS(filepath.Join(files, "pki"), os.DirFS(filepath.Join(dir, "pki"))); err != nil {
		return nil, err
	}
	stages, err := os.ReadFile(filepath.Join(dir, "kwok-stages.yaml"))
	if err != nil {
		return nil, err
	}
	return m, os.WriteFile(filepath.Join(files, "kwok-stages.yaml"), stages, 0o600)
}

// Floor is a control plane that a script starts.
type Floor struct {
	dir    string
	config *rest.Config
	script *exec.Cmd
	input  io.WriteCloser // a line tells the script that the API is ready, the end that it has to stop
}

// Prepare writes the script and its files for another directory and a port of its own. The script starts etcd and
// kube-apiserver, and all other components, too, if it is asked to.
func (m *Model) Prepare(dir string, all bool) (*Floor, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(ports[0])
	for _, sub := range []string{"sockets", "etcd"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	adapt := strings.NewReplacer(m.dir, dir, "127.0.0.1:"+m.port, "127.0.0.1:"+port, "--secure-port="+m.port, "--secure-port="+port)
	if err := os.CopyFS(dir, os.DirFS(m.files)); err != nil {
		return nil, err
	}
	kubeconfigs, err := filepath.Glob(filepath.Join(dir, "pki", "*.kubeconfig"))
	if err != nil {
		return nil, err
	}
	for _, path := range kubeconfigs {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(adapt.Replace(string(data))), 0o600); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, "start.sh")
	if err := os.WriteFile(path, []byte(m.text(dir, all, adapt)), 0o700); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(m.config)
	config.Host = "https://127.0.0.1:" + port
	f := &Floor{dir: dir, config: config, script: exec.Command("/bin/sh", path)}
	f.input, err = f.script.StdinPipe()
	return f, err
}

// text returns the script.
func (m *Model) text(dir string, all bool, adapt *strings.Replacer) string {
	var text strings.Builder
	command := func(name string) {
		for _, arg := range m.commands[name] {
			text.WriteString(quote(adapt.Replace(arg)) + " ")
		}
		fmt.Fprintf(&text, "> ../%s.log 2>&1 &\npids=\"$pids $!\"\n", name)
	}
	fmt.Fprintf(&text, "#!/bin/sh\ncd %s/sockets || exit 1\npids=\n", quote(dir))
	command(etcd)
	// Without its socket, the first attempt of kube-apiserver would fail, and the next would come a second later.
	text.WriteString("while [ ! -S etcd:0 ] && kill -0 $!; do sleep 0.005; done\n")
	command(apiServer)
	text.WriteString("read -r _\n")
	for _, name := range others {
		if all && m.commands[name] != nil {
			command(name)
		}
	}
	text.WriteString("read -r _\nkill -KILL $pids\nwait\n")
	return text.String()
}

func quote(arg string) string { return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'" }

// Start starts the shell.
func (f *Floor) Start() error { return f.script.Start() }

// AwaitReady returns when /readyz says ok, and tells the script.
func (f *Floor) AwaitReady(ctx context.Context) error {
	if err := AwaitReady(ctx, f.config); err != nil {
		log, _ := os.ReadFile(filepath.Join(f.dir, apiServer+".log")) // there may be none
		return fmt.Errorf("%w; the end of its log is\n%s", err, log[max(0, len(log)-4<<10):])
	}
	_, err := f.input.Write([]byte{'\n'})
	return err
}

// Stop kills all components and returns when they are gone, so that the next start has the machine for itself. It does
// nothing to a floor that was not started.
func (f *Floor) Stop() error {
	if f == nil || f.script.Process == nil {
		return nil
	}
	_ = f.input.Close() // tells the script, which may have ended
	var exit *exec.ExitError
	if err := f.script.Wait(); !errors.As(err, &exit) { // the status of what was killed
		return err
	}
	return nil
}

// PollInterval is how often AwaitReady asks, as our control planes do.
const PollInterval = 20 * time.Millisecond

// AwaitReady returns when /readyz of an API says ok.
func AwaitReady(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	client.Timeout = 5 * time.Second
	defer client.CloseIdleConnections()
	return harness.Until(ctx, PollInterval, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s is not ready: %s", config.Host, response.Status)
		}
		return errors.Join(err, response.Body.Close())
	})
}

// The ports to choose from lie below those of our own control planes, and below those that the kernel takes for outgoing
// connections, so that nothing takes one before it is used.
const (
	firstPort = 11000
	lastPort  = 20000 // exclusive
)

// Benchmarks may run side by side, so each begins at another port.
var next = struct {
	sync.Mutex
	port int // a port that was given out does not come again soon
}{port: firstPort + rand.IntN(lastPort-firstPort)}

// FreePorts returns n ports on 127.0.0.1 that nothing listens on.
func FreePorts(n int) ([]int, error) {
	next.Lock()
	defer next.Unlock()
	var ports []int
	for range lastPort - firstPort {
		if len(ports) == n {
			return ports, nil
		}
		port := next.port
		if next.port++; next.port == lastPort {
			next.port = firstPort
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 from %d to %d", n, firstPort, lastPort-1)
}

// Package floor starts the components of a control plane by a shell script: the least that anybody has to do who wants
// them to run. Its certificates are made before the clock starts.
package floor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// The components that everything else waits for, and those that come when the API is ready.
const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"
)

var others = []string{"kube-controller-manager", "kube-scheduler", "kwok"}

// Model is a running control plane of ours that a script is made like: the same programs with the same flags.
type Model struct {
	dir      string // of the model
	files    string // where its files are
	port     string // of its API
	config   *rest.Config
	commands map[string][]string // by component
}

// NewModel looks at the control plane that runs in dir. The configuration is that of its administrator.
func NewModel(dir string, config *rest.Config) (*Model, error) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, fmt.Errorf("the server of the model: %w", err)
	}
	m := &Model{dir: dir, files: dir, port: port, config: config, commands: map[string][]string{}}
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
	return m, nil
}

// Keep copies what scripts need of the model to another directory, so that it can be removed.
func (m *Model) Keep(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := m.copyFiles(dir, strings.NewReplacer()); err != nil {
		return err
	}
	m.files = dir
	return nil
}

// Script says how the components are started.
type Script struct {
	// AtOnce starts etcd and kube-apiserver at the same time, instead of one after the other.
	AtOnce bool
	// All starts all other components, too, when the API is ready.
	All bool
}

// Floor is a control plane that a script starts.
type Floor struct {
	dir    string
	config *rest.Config
	cmd    *exec.Cmd
}

// Prepare writes the script, and what it finds there: certificates, and kubeconfigs for another directory and a port of
// its own.
func (m *Model) Prepare(dir string, s Script) (*Floor, error) {
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
	if err := m.copyFiles(dir, adapt); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "start.sh")
	if err := os.WriteFile(path, []byte(m.script(dir, s, adapt)), 0o700); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(m.config)
	config.Host = "https://127.0.0.1:" + port
	return &Floor{dir: dir, config: config, cmd: exec.Command("/bin/sh", path)}, nil
}

// copyFiles copies what components read at their start.
func (m *Model) copyFiles(dir string, adapt *strings.Replacer) error {
	if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(m.files, "pki"))); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "pki", "*.kubeconfig"))
	if err != nil {
		return err
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(adapt.Replace(string(data))), 0o600); err != nil {
			return err
		}
	}
	stages, err := os.ReadFile(filepath.Join(m.files, "kwok-stages.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there are no nodes
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kwok-stages.yaml"), stages, 0o600)
}

// Files by which the script is told that the API is ready, and that it need not wait for anything any more. A script that
// had to ask the API itself would start a program for that.
const (
	readyFile = "ready"
	stopFile  = "stop"
)

func (m *Model) script(dir string, s Script, adapt *strings.Replacer) string {
	var text strings.Builder
	command := func(name string) {
		for _, arg := range m.commands[name] {
			text.WriteString(quote(adapt.Replace(arg)) + " ")
		}
		fmt.Fprintf(&text, "> ../%s.log 2>&1 &\n", name)
	}
	fmt.Fprintf(&text, "#!/bin/sh\ncd %s/sockets || exit 1\n", quote(dir))
	command(etcd)
	if !s.AtOnce {
		// What follows would fail its first attempt and make a pause of a second.
		text.WriteString("while [ ! -S etcd:0 ] && [ ! -e ../" + stopFile + " ]; do sleep 0.005; done\n")
	}
	command(apiServer)
	if s.All {
		fmt.Fprintf(&text, "while [ ! -e ../%s ] && [ ! -e ../%s ]; do sleep 0.01; done\n", readyFile, stopFile)
		for _, name := range others {
			if m.commands[name] != nil {
				command(name)
			}
		}
	}
	text.WriteString("wait\n")
	return text.String()
}

func quote(arg string) string { return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'" }

// Start starts the shell.
func (f *Floor) Start() error { return f.cmd.Start() }

// PollInterval is how often AwaitReady asks, which is what a control plane of ours does, too.
const PollInterval = 20 * time.Millisecond

const readyTimeout = 3 * time.Minute

// AwaitReady returns when /readyz says ok, and lets the script go on.
func (f *Floor) AwaitReady(ctx context.Context) error {
	if err := AwaitReady(ctx, f.config); err != nil {
		log, _ := os.ReadFile(filepath.Join(f.dir, apiServer+".log")) // there may be none
		return fmt.Errorf("%w; the end of its log is\n%s", err, log[max(0, len(log)-4<<10):])
	}
	return os.WriteFile(filepath.Join(f.dir, readyFile), nil, 0o600)
}

// Stop ends what the script has started at once, and returns when all of it is gone, so that the next start has the
// machine for itself. The script ends with its children.
func (f *Floor) Stop() error {
	if f.cmd.Process == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(f.dir, stopFile), nil, 0o600); err != nil {
		return err
	}
	pid := f.cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- f.cmd.Wait() }()
	for {
		if err := killChildren(pid); err != nil {
			return err
		}
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return nil // the status of what was killed
			}
			return err
		case <-time.After(5 * time.Millisecond): // it may just have started another one
		}
	}
}

func killChildren(shell int) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell, shell))
	if err != nil {
		return nil // it has ended
	}
	for _, text := range bytes.Fields(data) {
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

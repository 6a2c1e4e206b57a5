package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// engineDir is the environment variable with the directory of the engine that this process becomes.
const engineDir = "KEELSON_TEST_ENGINE"

// becomeEngine turns this process, the init of its namespaces, into a Docker engine. When it ends,
// the kernel ends all its children; only its directory is left on the host.
func becomeEngine(dir string) error {
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
	)
	if err != nil {
		return fmt.Errorf("prepare namespaces: %w", err)
	}
	path, err := exec.LookPath("dockerd")
	if err != nil {
		return err
	}
	settings := filepath.Join(dir, "daemon.json")
	// The registry of docs/install.md is a test server without TLS.
	if err := os.WriteFile(settings, []byte(`{"insecure-registries": ["images.example"]}`+"\n"), 0o600); err != nil {
		return err
	}
	return syscall.Exec(path, []string{path, "--config-file", settings, "--host", engineSocket(dir), "--data-root", filepath.Join(dir, "data"),
		"--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"}, os.Environ())
}

func engineSocket(dir string) string { return "unix://" + filepath.Join(dir, "docker.sock") }

// engine is a Docker engine for one test.
type engine struct{ dir string }

// newEngine starts an engine, or skips the test where none can run. CI has one and fails on skips.
// Its containers may use the host's network. It knows no other registry than images.
func newEngine(t *testing.T, images *registry) engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIP: a private Docker engine needs root")
	}
	for _, program := range []string{"dockerd", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: no Docker engine: %v. On Debian and Ubuntu: apt-get install docker.io", err)
		}
	}
	dir, err := os.MkdirTemp("", "keelson-image") // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("Remove the files of the engine: %v", err)
		}
	})
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), engineDir+"="+dir, "HTTP_PROXY="+images.url, "HTTPS_PROXY="+images.url, "NO_PROXY=")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if output, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("engine log:\n%s", output[max(0, len(output)-5000):])
		}
	})
	e := engine{dir}
	transcript.Eventually(t, "the engine responds", func() bool { return e.command(t, "docker", "version").Run() == nil })
	return e
}

// command prepares a command that uses the engine.
func (e engine) command(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), e.variables()...)
	return cmd
}

// variables are the environment variables for docker to connect to the engine.
func (e engine) variables() []string {
	return []string{"DOCKER_HOST=" + engineSocket(e.dir), "DOCKER_BUILDKIT=0", "HOME=" + e.dir}
}

// socketInside is the address of the engine in a container with its socket.
const socketInside = "unix:///run/docker.sock"

// socket returns the docker flags that give a container access to the engine's socket.
func (e engine) socket(t *testing.T) []string {
	t.Helper()
	path := filepath.Join(e.dir, "docker.sock")
	about, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--volume", path + ":" + strings.TrimPrefix(socketInside, "unix://"), "--group-add", strconv.Itoa(int(about.Sys().(*syscall.Stat_t).Gid))}
}

// run runs a command that must succeed and returns its output.
func (e engine) run(t *testing.T, words ...string) string {
	t.Helper()
	out, err := e.command(t, words...).CombinedOutput()
	t.Logf("$ %v\n%s", words, out)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return string(out)
}

package docker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// testEngine is a Docker engine of the tests' own: with its own directories and network,
// beside whatever engine the host has. It and all that it starts are in a process
// namespace, whose first process is this test binary once more, see runInit: when that
// ends, because it is told to or because the tests have died, nothing is left.
type testEngine struct {
	dir     string
	init    *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
}

// shared is the engine that all tests use, started by the first one that needs it; err is
// why that has failed, for all of them.
var shared struct {
	sync.Mutex
	*testEngine
	err error
}

// needEngine returns an engine, or skips the test where there can be none. CI has one, and
// takes no skips.
func needEngine(t *testing.T) *testEngine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIP: a Docker engine of its own needs root")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skipf("SKIP: there is no Docker engine: %v. On Debian and Ubuntu: apt-get install docker.io", err)
	}
	if _, err := os.Stat(filepath.Join(guestDir, "rootfs.tar")); err != nil {
		t.Skip("SKIP: there is no default guest: run make guest")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.testEngine == nil && shared.err == nil {
		if shared.testEngine, shared.err = newTestEngine(); shared.err == nil {
			shared.err = shared.order(orderStart)
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.await(t)
	return shared.testEngine
}

func newTestEngine() (*testEngine, error) {
	// Not that of a test: names of sockets must be short, and it lives longer.
	dir, err := os.MkdirTemp("", "keelson-docker")
	if err != nil {
		return nil, err
	}
	e := &testEngine{dir: dir, init: exec.Command("/proc/self/exe")}
	e.init.Env = append(os.Environ(), initDir+"="+dir)
	e.init.SysProcAttr = initAttributes()
	e.init.Stderr = os.Stderr
	if e.orders, err = e.init.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := e.init.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.answers = bufio.NewReader(output)
	return e, e.init.Start()
}

func (e *testEngine) host() string { return "unix://" + filepath.Join(e.dir, "docker.sock") }

// order has the first process do something, and returns when it is done.
func (e *testEngine) order(what string) error {
	if _, err := io.WriteString(e.orders, what+"\n"); err != nil {
		return err
	}
	answer, err := e.answers.ReadString('\n')
	if err == nil && answer != "done\n" {
		err = errors.New(strings.TrimSpace(answer))
	}
	if err != nil {
		return fmt.Errorf("%s the Docker engine: %w", what, err)
	}
	return nil
}

func (e *testEngine) must(t *testing.T, what string) {
	t.Helper()
	if err := e.order(what); err != nil {
		t.Fatal(err)
	}
}

// start starts the engine, and waits until it answers.
func (e *testEngine) start(t *testing.T) {
	t.Helper()
	e.must(t, orderStart)
	e.await(t)
}

// await waits until the engine answers. If the test fails, it logs what the engine has said
// in the end.
func (e *testEngine) await(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if log, err := os.ReadFile(e.log()); t.Failed() && err == nil {
			t.Logf("the engine says:\n%s", log[max(0, len(log)-5000):])
		}
	})
	api := e.client(t)
	harness.Eventually(t, "the Docker engine answers", func() bool {
		_, err := api.Ping(t.Context(), client.PingOptions{})
		return err == nil
	})
}

func (e *testEngine) log() string { return filepath.Join(e.dir, "log") }

// kill kills the engine; what it has started goes on.
func (e *testEngine) kill(t *testing.T) {
	t.Helper()
	e.must(t, orderKill)
}

// freeze makes the engine not answer, until the test ends or it is thawed.
func (e *testEngine) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	e.must(t, orderFreeze)
	thaw = sync.OnceFunc(func() { e.must(t, orderThaw) })
	t.Cleanup(thaw)
	return thaw
}

// client returns a client of the engine.
func (e *testEngine) client(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost(e.host()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // nothing is open
	return api
}

// stop stops the engine and removes all that it has left.
func (e *testEngine) stop() error {
	return errors.Join(e.order(orderStop), e.orders.Close(), e.init.Wait(), os.RemoveAll(e.dir))
}

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(initDir) != "":
		if err = runInit(os.Getenv(initDir)); err != nil {
			fmt.Println(err) // the answer to the first order
		}
	case drivertest.IsManager():
		err = runHelper()
	default:
		os.Exit(runTests(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runTests(m *testing.M) int {
	status := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.testEngine != nil {
		if err := shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}

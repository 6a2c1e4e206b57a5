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

// testEngine is a Docker engine for the tests, with its own directories and network. It and all its
// children are in a PID namespace whose init is this test binary, see runInit. When init ends, on
// request or because the tests died, the kernel ends the rest.
type testEngine struct {
	dir      string
	init     *exec.Cmd
	requests io.WriteCloser
	answers  *bufio.Reader
}

// shared is the engine of all tests. The first test that needs it starts it; err is the failure of
// that start.
var shared struct {
	sync.Mutex
	*testEngine
	err error
}

// needEngine returns the engine, or skips the test where none can run. CI has one and fails on
// skips.
func needEngine(t *testing.T) *testEngine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIP: a private Docker engine needs root")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skipf("SKIP: no Docker engine: %v. On Debian and Ubuntu: apt-get install docker.io", err)
	}
	if _, err := os.Stat(filepath.Join(guestDir, "rootfs.tar")); err != nil {
		t.Skip("SKIP: no default guest: run make guest")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.testEngine == nil && shared.err == nil {
		if shared.testEngine, shared.err = newTestEngine(); shared.err == nil {
			shared.err = shared.request(requestStart)
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.await(t)
	return shared.testEngine
}

func newTestEngine() (*testEngine, error) {
	// Not t.TempDir: socket paths must be short, and the engine outlives the test.
	dir, err := os.MkdirTemp("", "keelson-docker")
	if err != nil {
		return nil, err
	}
	e := &testEngine{dir: dir, init: exec.Command("/proc/self/exe")}
	e.init.Env = append(os.Environ(), initDir+"="+dir)
	e.init.SysProcAttr = initAttributes()
	e.init.Stderr = os.Stderr
	if e.requests, err = e.init.StdinPipe(); err != nil {
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

// request makes init carry out a request, and returns when it is done.
func (e *testEngine) request(what string) error {
	if _, err := io.WriteString(e.requests, what+"\n"); err != nil {
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
	if err := e.request(what); err != nil {
		t.Fatal(err)
	}
}

// start starts the engine and waits until it responds.
func (e *testEngine) start(t *testing.T) {
	t.Helper()
	e.must(t, requestStart)
	e.await(t)
}

// await waits until the engine responds. If the test fails, it logs the end of the engine's log.
func (e *testEngine) await(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if log, err := os.ReadFile(e.log()); t.Failed() && err == nil {
			t.Logf("engine log:\n%s", log[max(0, len(log)-5000):])
		}
	})
	api := e.client(t)
	harness.Eventually(t, "the Docker engine responds", func() bool {
		_, err := api.Ping(t.Context(), client.PingOptions{})
		return err == nil
	})
}

func (e *testEngine) log() string { return filepath.Join(e.dir, "log") }

// kill kills the engine; its children keep running.
func (e *testEngine) kill(t *testing.T) {
	t.Helper()
	e.must(t, requestKill)
}

// freeze suspends the engine until the test ends or calls thaw.
func (e *testEngine) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	e.must(t, requestFreeze)
	thaw = sync.OnceFunc(func() { e.must(t, requestThaw) })
	t.Cleanup(thaw)
	return thaw
}

func (e *testEngine) client(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.New(client.WithHost(e.host()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // no connection is open
	return api
}

// stop stops the engine and removes its files.
func (e *testEngine) stop() error {
	return errors.Join(e.request(requestStop), e.requests.Close(), e.init.Wait(), os.RemoveAll(e.dir))
}

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(initDir) != "":
		if err = runInit(os.Getenv(initDir)); err != nil {
			fmt.Println(err) // the response to the first request
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

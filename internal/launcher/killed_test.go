package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/roles"
)

// helperVariable has the machine of a launcher that is killed: it runs this test binary.
const helperVariable = "KEELSON_TEST_LAUNCHER"

// helper is that machine, or a job, and the step at which its launcher and its QEMU are killed. Without a step, it prints all steps.
type helper struct {
	Definition Definition
	Dirs       Dirs
	Step       string
	Job        *Job
}

func TestMain(m *testing.M) {
	if raw := os.Getenv(helperVariable); raw != "" {
		roles.Inherit()
		runHelper(raw)
	}
	step = func(name string) {
		if do := atSteps.Load(); do != nil {
			(*do)(name)
		}
	}
	savedmemory.Step, diskbackup.Step, owner.Step = step, step, step
	os.Exit(roles.Run(m.Run))
}

// atSteps is called at each step, unless it is nil.
var atSteps atomic.Pointer[func(string)]

// atStep calls do at a step of launchers and jobs in this process, until the end of the test or the next call.
func atStep(t *testing.T, at string, do func()) {
	t.Helper()
	t.Cleanup(func() { atSteps.Store(nil) })
	hook := func(name string) {
		if name == at {
			do()
		}
	}
	atSteps.Store(&hook)
}

// runHelper runs a launcher, and prints how the machine ended.
func runHelper(raw string) {
	var h helper
	if err := json.Unmarshal([]byte(raw), &h); err != nil {
		panic(err)
	}
	step = func(name string) {
		switch h.Step {
		case "":
			fmt.Println(name)
		case name:
			_ = syscall.Kill(0, syscall.SIGKILL) //nolint:forbidigo // its own group, as a container ends
		}
	}
	savedmemory.Step, diskbackup.Step, owner.Step = step, step, step
	if h.Job != nil {
		if result := RunJob(context.Background(), *h.Job, h.Dirs, os.Stderr); result.Error != "" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	ended := Run(context.Background(), h.Definition, h.Dirs, null, os.Stderr)
	fmt.Println("ended: " + string(ended.Cause))
	os.Exit(0)
}

// runKilled runs a launcher that is killed at a step, with its QEMU, and returns the steps of one that is not.
func (m *machine) runKilled(at string, sleep bool) (steps []string) {
	m.Helper()
	p := m.begin(helper{Definition: m.definition, Dirs: m.dirs, Step: at})
	p.awaitReady()
	if sleep {
		m.asks(SleepPath)
	} else {
		p.kill() // it has woken
	}
	return p.steps()
}

// process is a helper that runs.
type process struct {
	m      *machine
	cmd    *exec.Cmd
	output strings.Builder
	exited chan struct{}
}

// begin begins to run a helper, in a process group of its own.
func (m *machine) begin(h helper) *process {
	m.Helper()
	raw, err := json.Marshal(h)
	if err != nil {
		m.Fatal(err)
	}
	p := &process{m: m, cmd: exec.CommandContext(m.Context(), "/proc/self/exe"), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), helperVariable+"="+string(raw))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stdout = &p.output
	if err := p.cmd.Start(); err != nil {
		m.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	m.Cleanup(p.kill)
	return p
}

func (p *process) isOver() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// awaitReady waits until the machine in the process is ready, or was killed.
func (p *process) awaitReady() {
	p.m.Helper()
	harness.Eventually(p.m, "its launcher runs, or was killed", func() bool {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s?wait=1s", p.m.definition.ReadyPort, ReadyPath))
		if err == nil {
			_ = response.Body.Close()
		}
		return p.isOver() || err == nil && response.StatusCode == http.StatusOK
	})
}

// kill ends the process and its children.
func (p *process) kill() {
	if !p.isOver() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) //nolint:forbidigo // its group, which runs
	}
	<-p.exited
}

// steps returns the steps that it has printed, when it has ended.
func (p *process) steps() []string {
	<-p.exited
	return strings.Fields(strings.ReplaceAll(p.output.String(), " ", "-"))
}

// A launcher that is killed with its QEMU at any step is followed by one that goes on with the whole memory, or boots; the memory is never
// used twice.
func TestLauncherKilledAtEveryStep(t *testing.T) {
	fakeqemu.Install(t)
	testLauncherKilledAtEveryStep(t)
}

func TestLongLauncherKilledAtEveryStep(t *testing.T) { testLauncherKilledAtEveryStep(t) }

func testLauncherKilledAtEveryStep(t *testing.T) {
	isAsleepAfter := []string{"sleep-recorded"}
	for _, sleep := range []bool{true, false} {
		m := newMachine(t)
		m.firmware()
		prepare := func() {
			t.Helper()
			m.definition.Epoch += "next"
			if !sleep {
				m.runKilled("", true)
			}
		}
		prepare()
		steps := slices.DeleteFunc(slices.Compact(m.runKilled("", sleep)), func(at string) bool { return strings.HasPrefix(at, "ended") })
		t.Logf("steps are %q", steps)
		if len(steps) < 4 {
			t.Fatal("too few")
		}
		isUsed := false
		for _, at := range steps {
			isUsed = isUsed || at == "memory-used"
			prepare()
			m.runKilled(strings.ReplaceAll(at, "-", " "), sleep)
			m.run()
			m.awaitReady()
			if got, want := m.wasWoken(), sleep && slices.Contains(isAsleepAfter, at) || !sleep && !isUsed; got != want {
				t.Errorf("killed at %q, it goes on with its memory: %t, want %t", at, got, want)
			}
			if m.hasMemory() {
				t.Errorf("killed at %q, memory is left over", at)
			}
			m.kill()
		}
	}
}

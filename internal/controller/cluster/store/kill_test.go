package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/objectstore"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// helperVariable makes the test binary a manager that kills itself. It holds helperArgs as JSON.
const helperVariable = "KEELSON_TEST_HELPER"

type helperArgs struct {
	Host, BearerToken string
	TLS               rest.TLSClientConfig
	Name, Dir         string
	Store             objectstore.Options
	// At is the step after which the helper kills itself; halfway is in the middle of writing or reading the data.
	At string
}

const halfway = "halfway"

func TestMain(m *testing.M) {
	if encoded := os.Getenv(helperVariable); encoded != "" {
		fmt.Println(runHelper(encoded))
		os.Exit(1)
	}
	env.Main(m)
}

// runHelper reconciles until it kills this process.
func runHelper(encoded string) error {
	var args helperArgs
	if err := json.Unmarshal([]byte(encoded), &args); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(&rest.Config{Host: args.Host, BearerToken: args.BearerToken, TLSClientConfig: args.TLS}, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	opened, err := args.Store.Open()
	if err != nil {
		return err
	}
	step = func(name string) {
		if name == args.At {
			killItself()
		}
	}
	if args.At == halfway {
		opened = halfStore{opened}
	}
	r := &Reconciler{kube.NewBase(kind, c, c, events.NewFakeRecorder(100), clock.RealClock{}), host{args.Dir}, opened}
	for range 5 {
		var s v1alpha1.ClusterSnapshot
		if err := c.Get(context.Background(), client.ObjectKey{Name: args.Name}, &s); err != nil {
			return err
		}
		if _, err := r.Reconcile(context.Background(), &s); err != nil {
			return err
		}
	}
	return fmt.Errorf("the step %q was not reached", args.At)
}

func killItself() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:forbidigo // this process
	select {}
}

// halfStore kills this process when most of the data is read, from this host or from the store.
type halfStore struct{ objectstore.Store }

func (s halfStore) Put(ctx context.Context, name string, content io.Reader, size int64) error {
	return s.Store.Put(ctx, name, &halfReader{content, size * 9 / 10}, size)
}

func (s halfStore) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	object, err := s.Store.Get(ctx, name)
	if err != nil || !strings.HasSuffix(name, dataObject) {
		return object, err
	}
	return struct {
		io.Reader
		io.Closer
	}{&halfReader{object, size / 2}, object}, nil
}

type halfReader struct {
	io.Reader
	left int64
}

func (r *halfReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.left -= int64(n); r.left < 0 {
		killItself()
	}
	return n, err
}

// size is that of data that a bucket gets in two parts.
const size = 18 << 20

// kill runs a manager on the first snapshot, which must kill itself.
func (f *fixture) kill(at string) {
	f.Helper()
	config := env.Config(f)
	encoded, err := json.Marshal(helperArgs{
		Host: config.Host, BearerToken: config.BearerToken, TLS: config.TLSClientConfig, Name: f.name, Dir: f.host.dir, Store: f.options, At: at,
	})
	f.do(err)
	self, err := os.Executable()
	f.do(err)
	cmd := exec.CommandContext(f.Context(), self)
	cmd.Env = append(os.Environ(), helperVariable+"="+string(encoded))
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		f.Fatalf("%s: the helper has ended by itself: %v: %s", at, err, output)
	}
}

// A manager is killed at each step of a copy, of reading it, and of its deletion. The next one completes what it began, and nothing is
// left over in the store.
func TestLongKilledDuringCopy(t *testing.T) { onEach(t, killedDuringCopy) }

func killedDuringCopy(f *fixture) {
	f.content = strings.Repeat("0123456789abcdef", size/16)
	isClean := func(after string, copies ...string) {
		f.Helper()
		if got := f.copies(); !slices.Equal(got, copies) || f.left() != 0 {
			f.Errorf("after %s: the store has %v and %d incomplete writes", after, got, f.left())
		}
	}
	s := f.create(f.name, "")
	f.kill(halfway)
	if f.left() != 1 {
		f.Errorf("a write that was interrupted has left %d, want 1", f.left())
	}
	f.kill("data")
	f.kill("record")
	f.expect(f.name, v1alpha1.ReasonStored)
	isClean("the copy", dataObject, recordObject)

	f.do(f.host.RemoveSnapshot(s.UID))
	f.kill(halfway)
	f.kill("received")
	f.expect(f.name, v1alpha1.ReasonStored)
	if f.saved(s.UID) != f.content {
		f.Error("another content was read from the store")
	}
	isClean("reading it", dataObject, recordObject)

	f.do(f.client.Delete(f.Context(), f.get(f.name)))
	f.kill("deleted " + recordObject)
	isClean("half of a deletion", dataObject)
	f.kill("deleted " + dataObject)
	f.expect(f.name, "gone")
	isClean("the deletion")

	f.create(f.name, "")
	f.kill(halfway)
	f.do(f.client.Delete(f.Context(), f.get(f.name)))
	f.expect(f.name, "gone")
	isClean("the deletion of a snapshot that was not copied")
}

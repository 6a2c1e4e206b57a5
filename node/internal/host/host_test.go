package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/node/internal/handover"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// TestMain makes this program the part inside, too, when it is started as that: one that hands nothing over.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "inside" {
		os.Exit(neverAnswer())
	}
	os.Exit(m.Run())
}

// neverAnswer waits until the part on the machine has gone.
func neverAnswer() int {
	outside, err := handover.Open(handover.InsideFD)
	for err == nil {
		err = handover.Await(outside)
	}
	return 1
}

// TestRunEndsBeforeItIsUp has a node of its own namespaces whose part inside never answers.
func TestRunEndsBeforeItIsUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("Only root can make namespaces and links.")
	}
	alone(t)
	s := settings.Settings{
		ID: fmt.Sprintf("%08x", os.Getpid()), Name: "keelson-node", Dir: t.TempDir(), Programs: "/nowhere", Kube: "/nowhere", Runtime: "/nowhere",
		APIPort: 1, ProxyMode: "iptables",
		// What RFC 2544 keeps free for tests: nobody has a route there.
		Network: netip.MustParsePrefix("198.18.0.0/16"), Services: netip.MustParsePrefix("198.19.0.0/16"),
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir, "settings.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, isMoment := range map[string]func() bool{
		"at once":          func() bool { return true },
		"when it is there": func() bool { return len(insides(t, path)) > 0 },
		"when it is linked": func() bool {
			_, err := os.Stat("/sys/class/net/" + s.Link())
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, path) }()
			until(t, "the moment is there", isMoment)
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("it has ended with %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it does not end") // the end of this process will end it
			}
			if left := insides(t, path); len(left) > 0 {
				t.Errorf("the part inside is left: %q", left)
			}
			until(t, "its link is gone", func() bool { // with the namespace, which the kernel takes away later
				_, err := os.Stat("/sys/class/net/" + s.Link())
				return errors.Is(err, fs.ErrNotExist)
			})
		})
	}
}

// alone waits for other runs of this test on this machine, which has one network for it.
func alone(t *testing.T) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "keelson-host-test.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() }) // gives it up
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// insides returns the processes that were started as the part inside with these settings.
func insides(t *testing.T, path string) (found []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		line, err := os.ReadFile(name)
		if err == nil && strings.HasSuffix(string(line), "\x00inside\x00"+path+"\x00") {
			found = append(found, name)
		}
	}
	return found
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); !is(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not true within 20 s: %s", what)
		}
	}
}

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ableUser is a user that can run a node without root.
func ableUser() Rootless {
	return Rootless{
		User: "ada", UID: 1000, UIDs: IDs{100000, 65536}, GIDs: IDs{100000, 65536}, FreeUID: 165536, FreeGID: 165536, Manager: true,
		NewUIDMap: "/usr/bin/newuidmap", NewGIDMap: "/usr/bin/newgidmap", SystemdRun: "/usr/bin/systemd-run",
	}
}

func TestMissingWithoutRoot(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(m *Machine)
		want   []string
	}{
		{"nothing", func(*Machine) {}, nil},
		{"capabilities of root do not matter", func(m *Machine) { m.NoControllers = []string{"memory"} }, nil},
		{
			"cgroups of version 1", func(m *Machine) { m.Cgroups, m.Rootless.NoControllers = 1, []string{"cpu"} },
			[]string{"cgroups of version 2 (boot with the kernel parameter systemd.unified_cgroup_hierarchy=1)"},
		},
		{
			"no systemd", func(m *Machine) { m.Rootless.SystemdRun, m.Rootless.Manager = "", false },
			[]string{"systemd, which delegates cgroups to users (systemd-run is not installed)"},
		},
		{
			"no session", func(m *Machine) { m.Rootless.Manager = false },
			[]string{"the systemd manager of ada (`sudo loginctl enable-linger ada`)"},
		},
		{
			"the controllers that systemd delegates by default", func(m *Machine) { m.Rootless.NoControllers = []string{"cpuset"} },
			[]string{"delegated cgroup controllers cpuset (`printf '[Service]\\nDelegate=cpu cpuset memory pids\\n' | " +
				"sudo install -D -m 644 /dev/stdin /etc/systemd/system/user@.service.d/delegate.conf`, and reboot)"},
		},
		{
			"no program for IDs", func(m *Machine) { m.Rootless.NewGIDMap = "" },
			[]string{"newuidmap and newgidmap (`sudo apt-get install uidmap`, or `sudo dnf install shadow-utils`)"},
		},
		{
			"no IDs", func(m *Machine) { m.Rootless.UIDs, m.Rootless.GIDs = IDs{}, IDs{100000, 1000} },
			[]string{
				"65536 subordinate IDs of ada in /etc/subuid (`sudo usermod --add-subuids 165536-231071 ada`)",
				"65536 subordinate IDs of ada in /etc/subgid (`sudo usermod --add-subgids 165536-231071 ada`)",
			},
		},
		{
			"a setting forbids user namespaces", func(m *Machine) { m.Rootless.Sysctl = "kernel.unprivileged_userns_clone=1" },
			[]string{"user namespaces (`sudo sysctl -w kernel.unprivileged_userns_clone=1`)"},
		},
		{
			"a container forbids user namespaces", func(m *Machine) { m.Rootless.NoNamespaces = errors.New("unshare failed: Operation not permitted") },
			[]string{"user namespaces (unshare failed: Operation not permitted; in a container, its runtime must allow them)"},
		},
		{
			"no module", func(m *Machine) { m.Rootless.NoTun = fs.ErrNotExist },
			[]string{"/dev/net/tun (`sudo modprobe tun`)"},
		},
		{
			"a device of root", func(m *Machine) { m.Rootless.NoTun = fmt.Errorf("open: %w", fs.ErrPermission) },
			[]string{"access to /dev/net/tun (`sudo chmod 666 /dev/net/tun`)"},
		},
		{"programs", func(m *Machine) { m.Runtime = "" }, []string{"runc or crun (a package of that name)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := able()
			m.Root, m.Capabilities, m.Rootless = false, 0, ableUser()
			test.change(&m)
			if diff := cmp.Diff(test.want, m.Missing()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadIDs(t *testing.T) {
	type result struct {
		Largest IDs
		Free    int
	}
	for _, test := range []struct {
		name, text string
		want       result
	}{
		{"by name", "ada:100000:65536\n", result{IDs{100000, 65536}, 165536}},
		{"by ID", "1000:200000:65536\n", result{IDs{200000, 65536}, 265536}},
		{"the largest", "ada:100000:1000\nada:300000:65536\nada:200000:10\n", result{IDs{300000, 65536}, 365536}},
		{"others", "bob:100000:65536\nadam:165536:65536\n", result{Free: 231072}},
		{"low ones", "bob:1000:1\n", result{Free: 100000}},
		{"damaged", "ada:100000\nada:x:1\nada\n\n", result{Free: 100000}},
		{"empty", "", result{Free: 100000}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "subuid")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var got result
			got.Largest, got.Free = readIDs(path, "ada", 1000)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if got, free := readIDs(filepath.Join(t.TempDir(), "none"), "ada", 1000); got != (IDs{}) || free != 100000 {
		t.Errorf("without a file: %v, %d", got, free)
	}
}

func TestForbids(t *testing.T) {
	for _, test := range []struct{ name, path, value, want string }{
		{"nothing", "", "", ""},
		{"none at all", "user/max_user_namespaces", "0", "user.max_user_namespaces=15000"},
		{"Debian", "kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
		{"Debian, allowed", "kernel/unprivileged_userns_clone", "1", ""},
		{"Ubuntu", "kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
		{"Ubuntu, allowed", "kernel/apparmor_restrict_unprivileged_userns", "0", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			proc := t.TempDir()
			if test.path != "" {
				path := filepath.Join(proc, test.path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(test.value+"\n"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if got := forbids(proc); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLookRootless(t *testing.T) {
	root := t.TempDir()
	uid := os.Getuid()
	manager := filepath.Join(cgroupRoot, fmt.Sprintf("user.slice/user-%[1]d.slice/user@%[1]d.service", uid))
	for path, text := range map[string]string{
		"etc/subuid": fmt.Sprintf("%d:100000:65536\n", uid),
		"etc/subgid": fmt.Sprintf("%d:200000:65536\n", uid),
		fmt.Sprintf("run/user/%d/systemd/private", uid): "",
		manager + "/cgroup.controllers":                 "cpu memory pids\n",
		"dev/net/tun":                                   "",
	} {
		path := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got := lookRootless(root)
	want := Rootless{
		User: got.User, UID: uid, UIDs: IDs{100000, 65536}, GIDs: IDs{200000, 65536}, FreeUID: 165536, FreeGID: 265536, Manager: true,
		NoControllers: []string{"cpuset"},
		NewUIDMap:     got.NewUIDMap, NewGIDMap: got.NewGIDMap, SystemdRun: got.SystemdRun, NoNamespaces: got.NoNamespaces, // as this machine has them
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := lookRootless(t.TempDir()); got.Manager || !errors.Is(got.NoTun, fs.ErrNotExist) || len(got.NoControllers) != 4 {
		t.Errorf("an empty machine: %+v", got)
	}
}

package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/sandbox"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// needUsers skips a test where machines cannot have their own users.
func (w *fixture) needUsers() {
	w.Helper()
	if w.driver.users.limits == (UserRange{}) {
		w.Skip("SKIP: machines get their own users only if the manager runs as root with all capabilities")
	}
}

func (w *fixture) needLandlock() {
	w.Helper()
	if sandbox.Landlock() < fullLandlock {
		w.Skipf("SKIP: the kernel has Landlock %d, the test needs %d", sandbox.Landlock(), fullLandlock)
	}
}

// owner returns the owner of a file.
func (w *fixture) owner(path string) int {
	w.Helper()
	info, err := os.Lstat(path)
	w.do(err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// user returns the recorded user of a machine.
func (w *fixture) user(uid types.UID) int {
	w.Helper()
	def, err := readDefinition(filepath.Join(w.driver.machinesDir(), string(uid)))
	w.do(err)
	return def.User
}

// The process of a machine has no privileges, according to /proc.
func TestPrivilegesOfARunningMachine(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	w.run(machine)
	id, groups := os.Geteuid(), harness.ProcessStatus(w, os.Getpid(), "Groups")["Groups"]
	if w.driver.users.limits != (UserRange{}) {
		if id = w.user(uid); !testUsers.has(id) || id == testUsers.First {
			t.Errorf("the user of the machine is %d", id)
		}
		groups = ""
	}
	want := map[string]string{
		"Uid": fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", id), "Gid": fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", id),
		"Groups": groups, "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
	}
	if os.Geteuid() != 0 {
		delete(want, "Gid") // the test's group
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	if diff := cmp.Diff(want, harness.ProcessStatus(w, w.pid(t, uid), names...)); diff != "" {
		t.Errorf("privileges of QEMU (-want +got):\n%s", diff)
	}
	w.remove()
}

// An attacker who has taken over a QEMU can use its monitor to open files. It opens none that it
// was not given, whatever their modes.
func TestARunningMachineOpensNothingElse(t *testing.T) {
	w := newFixture(t)
	w.needLandlock()
	other := w.firmware()
	other.Identity = backend.Identity{UID: uuid.NewUUID(), Namespace: "default", Name: "other"}
	w.create(other)
	w.run(w.firmware())
	inMachine := func(uid types.UID, name string) string {
		return filepath.Join(w.driver.machinesDir(), string(uid), name)
	}
	public := filepath.Join(t.TempDir(), "public")
	w.do(os.WriteFile(public, []byte("secret"), 0o666))
	conn, err := w.driver.machines[uid].monitor()
	w.do(err)
	for _, path := range []string{
		"/etc/shadow", "/etc/passwd", "/proc/self/environ", public, "/root", os.Args[0],
		inMachine(uid, definitionFile), inMachine(other.UID, diskFile), inMachine(other.UID, definitionFile),
		w.driver.options.StateDir + "/processes/" + string(uid) + "/record.json",
	} {
		err := conn.Run(t.Context(), "blockdev-add", map[string]any{"driver": "file", "node-name": "theirs", "filename": path, "read-only": true}, nil)
		var refused *qmp.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "Permission denied") {
			t.Errorf("QEMU opens %s: %v", path, err)
		}
	}
	// It opens what it was given.
	spec := (&qemu.Config{Log: serialLog, Root: &qemu.Disk{Path: diskFile, Base: &qemu.Image{Path: "base"}}}).Confinement()
	base := sandbox.FirstFD + slices.Index(spec.Files, sandbox.File{Path: "base", Access: sandbox.ReadOnly})
	w.ask("blockdev-add", map[string]any{"driver": "file", "node-name": "ours", "filename": qemu.FDSetPath(base), "read-only": true}, nil)
	for _, backendType := range []map[string]any{
		{"type": "file", "data": map[string]any{"out": filepath.Join(t.TempDir(), "new")}},
		{"type": "socket", "data": map[string]any{"server": false, "addr": map[string]any{"type": "unix", "data": map[string]any{"path": inMachine(uid, qemu.MonitorSocket)}}}},
		{"type": "socket", "data": map[string]any{"server": true, "wait": false, "addr": map[string]any{"type": "inet", "data": map[string]any{"host": "127.0.0.1", "port": "0"}}}},
	} {
		if err := conn.Run(t.Context(), "chardev-add", map[string]any{"id": "theirs", "backend": backendType}, nil); err == nil {
			t.Errorf("QEMU makes %v", backendType)
		}
	}
	w.delete(other)
	w.eventually("the other machine is deleted", func(*backend.Server) bool {
		_, err := w.driver.Observe(t.Context(), other.Identity)
		return errors.Is(err, backend.ErrNotFound)
	})
	w.remove()
}

// The guest tampered with its disk, which now names a file of the host as its backing file. Neither
// qemu-img nor the next QEMU exposes that file to the guest.
func TestDiskWithAHostFileAsBackingFile(t *testing.T) {
	w := newFixture(t)
	secret := filepath.Join(t.TempDir(), "secret")
	w.do(os.WriteFile(secret, []byte("hunter2"+strings.Repeat(" ", 2<<20)), 0o644))
	machine := w.firmware()
	w.run(machine)
	w.stops()
	disk := filepath.Join(w.driver.machinesDir(), string(uid), diskFile)
	owner := w.owner(disk)
	w.makeImage("-f", "qcow2", "-b", secret, "-F", "raw", disk)
	w.do(os.Chown(disk, owner, -1))
	machine.DiskBytes = 4 << 20 // so that qemu-img has to grow it
	w.starts(machine)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pid(t, uid)))
	w.do(err)
	for _, fd := range open {
		if target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", w.pid(t, uid), fd.Name())); target == secret {
			t.Errorf("QEMU has opened %s", secret)
		}
	}
	w.remove()
}

// Machines have different users, keep them, and release them.
func TestUsersOfMachines(t *testing.T) {
	w := newFixture(t)
	w.needUsers()
	machine := w.firmware()
	w.run(machine)
	first := w.user(uid)
	disk := filepath.Join(w.driver.machinesDir(), string(uid), diskFile)
	if w.owner(disk) != first {
		t.Errorf("the disk belongs to %d, want %d", w.owner(disk), first)
	}
	for _, name := range []string{"", definitionFile, seedFile, serialLog, qemu.MonitorSocket, qemu.ConsoleSocket} {
		if owner := w.owner(filepath.Join(filepath.Dir(disk), name)); owner != 0 {
			t.Errorf("%q belongs to %d, want the manager's user", name, owner)
		}
	}
	w.open()
	w.stops()
	w.run(machine)
	if again := w.user(uid); again != first {
		t.Errorf("after a restart of the manager and the machine the user is %d, want %d", again, first)
	}
	w.stops()

	// With a range without its user, the machine gets a new one, and so does its disk.
	w.options.Users = UserRange{2110000000, 2110000009}
	w.open()
	w.run(machine)
	if moved := w.user(uid); !w.options.Users.has(moved) || w.owner(disk) != moved {
		t.Errorf("in another range the user is %d, and the owner of the disk %d", moved, w.owner(disk))
	}
	w.stops()

	// Without a range, machines run as the manager's user.
	w.options.Users = UserRange{}
	w.open()
	w.run(machine)
	if w.user(uid) != 0 || w.owner(disk) != 0 {
		t.Errorf("without a range the user is %d, and the owner of the disk %d", w.user(uid), w.owner(disk))
	}
	w.remove()
}

// A machine that was started before the manager had users for machines gets one at the next start, and the manager's user gets
// its retained disk.
func TestAMachineWithoutAUserGetsOne(t *testing.T) {
	w := newFixture(t)
	w.needUsers()
	w.options.Users = UserRange{}
	w.open()
	machine := w.firmware()
	run := w.run(machine).Run
	w.options.Users = testUsers
	w.open()
	if server := w.eventually("it runs", is(backend.StateRunning)); server.Run != run || w.user(uid) != 0 {
		t.Errorf("the running machine is in run %s, want %s; its user is %d", server.Run, run, w.user(uid))
	}
	w.stops()
	w.run(machine)
	if user := w.user(uid); user == 0 || !strings.HasPrefix(harness.ProcessStatus(w, w.pid(t, uid), "Uid")["Uid"], fmt.Sprint(user)) {
		t.Errorf("it runs as %v, but its user is %d", harness.ProcessStatus(w, w.pid(t, uid), "Uid"), user)
	}
	w.deleteKeepingDisk(machine.Identity)
	kept, err := filepath.Glob(filepath.Join(w.driver.retainedDir(), "*", "*", "*"))
	if err != nil || len(kept) != 1 || w.owner(kept[0]) != 0 {
		t.Errorf("retained disks are %v, %v; the owner must be the manager's user", kept, err)
	}
	if len(w.driver.users.taken) > 0 {
		t.Errorf("leaked users: %v", w.driver.users.taken)
	}
}

// Kernels and images that only root can read work, too.
func TestLongFilesReadableByRootOnly(t *testing.T) {
	w := newFixture(t)
	w.needUsers()
	needGuest(t)
	dir := t.TempDir()
	guest, err := guestimage.Read(w.options.GuestDir)
	w.do(err)
	image := &v1alpha1.Image{Kernel: filepath.Join(dir, "kernel"), Initrd: filepath.Join(dir, "initrd"), Cmdline: guest.Cmdline}
	for from, to := range map[string]string{guest.Kernel: image.Kernel, guest.Initramfs: image.Initrd} {
		content, err := os.ReadFile(from)
		w.do(err)
		w.do(os.WriteFile(to, content, 0o600))
	}
	w.run(booted(func(m *backend.Machine) { m.Image, m.DiskBytes = image, 64<<20 }))
	w.eventually("the guest answers", answers)
	w.remove()
}

// A manager that does not run as root rejects a state directory of root.
func TestStateDirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: only root can create files of other users")
	}
	dir := t.TempDir()
	if err := checkOwner(dir); err != nil {
		t.Errorf("root is rejected: %v", err)
	}
	if err := checkOwnerAs(dir, 65534); err == nil || !strings.Contains(err.Error(), "chown -R 65534 "+dir) {
		t.Errorf("another user gets %v", err)
	}
	if err := os.Chown(dir, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if err := checkOwnerAs(dir, 65534); err != nil {
		t.Errorf("the owner gets %v", err)
	}
}

func TestParseUserRange(t *testing.T) {
	for text, want := range map[string]UserRange{"": {}, "200000-265535": {200000, 265535}} {
		if got, err := ParseUserRange(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"-", "1-", "0-5", "500-2000", "3000-2000", "2000-2000", "a-b", "2000", "2000-9999999999", "-5-2000"} {
		if got, err := ParseUserRange(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestClaim(t *testing.T) {
	const a, b, c = types.UID("a"), types.UID("b"), types.UID("c")
	u := &users{limits: UserRange{2120000000, 2120000002}, taken: map[int]types.UID{}}
	claim := func(uid types.UID, before int) int {
		t.Helper()
		id, err := u.claim(uid, before)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := claim(a, 0)
	second := claim(b, 0)
	if first == second || first == u.limits.First || second == u.limits.First {
		t.Errorf("two machines got the users %d and %d", first, second)
	}
	if again := claim(a, first); again != first {
		t.Errorf("the user changed from %d to %d", first, again)
	}
	if id, err := u.claim(c, 0); err == nil || !strings.Contains(err.Error(), "virtualMachines.uidRange: 2120000000-2120000002") {
		t.Errorf("a third machine got %d, %v", id, err)
	}
	u.release(a)
	if freed := claim(c, second); freed != first {
		t.Errorf("it got %d, but %d is free", freed, first)
	}
	own := &users{limits: UserRange{os.Getuid(), os.Getuid() + 1}, taken: map[int]types.UID{}}
	if os.Getuid() > 0 {
		own.limits = UserRange{os.Getuid() - 1, os.Getuid()}
		if id, err := own.claim(a, os.Getuid()); err == nil {
			t.Errorf("it got the user %d, which has processes", id)
		}
	}
}

func TestUserIsolationRequirements(t *testing.T) {
	r := UserRange{2100000000, 2100065535}
	for lines, want := range map[string]bool{
		"         0          0 4294967295\n": true, "0 0 65536\n": false, "0 1000 1\n1 100000 65536\n": false, "0 0 1\n2100000000 5 65536\n": true, "": false,
	} {
		if got := isMapped(lines, r); got != want {
			t.Errorf("%q contains the range: %t", lines, got)
		}
	}
	for status, want := range map[string]string{
		"Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n": "", "Name:\tx\nCapEff:\t00000000a80425fb\n": "CAP_SYS_PTRACE", "": "CAP_CHOWN",
	} {
		if got := missingCapability(status); got != want {
			t.Errorf("%q lacks %q, want %q", status, got, want)
		}
	}
	for _, test := range []struct {
		mode   fs.FileMode
		group  int
		groups []int
		usable bool
	}{{0o666, 0, nil, true}, {0o660, 104, []int{104}, true}, {0o660, 0, nil, false}, {0o600, 104, nil, false}} {
		if groups, usable := kvmGroups(test.mode, test.group); usable != test.usable || cmp.Diff(test.groups, groups) != "" {
			t.Errorf("a device with mode %o and group %d: %v, %t", test.mode, test.group, groups, usable)
		}
	}
	file := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(file, []byte("# none\nmary:x:2100000005:1::/:/bin/sh\nsub:2099999999:2\nlow:100000:65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		number, count int
		r             UserRange
		says          string
	}{
		{2, 0, r, `"mary"`}, {2, 0, UserRange{2100000006, 2100000009}, ""}, {1, 2, r, `"sub"`}, {1, 2, UserRange{2100000001, 2100000009}, ""},
		{1, 2, UserRange{165535, 165539}, `"low"`},
	} {
		err := checkList(file, test.number, test.count, test.r)
		if (err == nil) != (test.says == "") || err != nil && (!strings.Contains(err.Error(), test.says) || !errors.Is(err, backend.ErrMissing)) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

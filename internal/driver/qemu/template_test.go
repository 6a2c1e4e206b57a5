package qemu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// testTemplates names a directory with templates in the environment. Machines with the default guest start from them, unless a
// test is about booting: emulated, it takes several times as long.
const testTemplates = "KEELSON_TEST_TEMPLATES"

// boots makes the machines of a test boot.
func boots(t *testing.T) {
	t.Helper()
	t.Setenv(testTemplates, "")
}

// haveTemplate makes the template for a machine that was created, if it may have one and has none.
func (w *fixture) haveTemplate(machine backend.Machine) {
	w.Helper()
	if noTemplate(&machine) != "" {
		return
	}
	m, err := w.driver.find(machine.Identity)
	w.do(err)
	l := m.wakingLaunch()
	if l.machine = machine; machine.DiskBytes > 0 {
		l.Root = &qemu.Disk{}
	}
	bare, err := w.driver.templateLaunch(l)
	w.do(err)
	build, key, err := w.driver.templates.key(bare)
	w.do(err)
	harness.Eventually(w, "no template is being made", func() bool { return !w.driver.templates.work.Busy() })
	if _, err := os.Stat(w.driver.templates.path(key)); err == nil {
		return
	}
	w.do(w.driver.templates.make(w.Context(), bare, &template{Key: key, Build: build}))
}

// wasInstant reports whether the QEMU of a machine was started from a template.
func (w *fixture) wasInstant(machine backend.Machine) bool {
	w.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.pid(w.T, machine.UID)))
	w.do(err)
	return strings.Contains(string(raw), "\x00-incoming\x00")
}

// instantly returns a fixture whose machines start from templates of its own.
func instantly(t *testing.T) *fixture {
	t.Helper()
	needGuest(t)
	boots(t)
	w := newFixture(t)
	w.options.InstantStart, w.options.Accelerator = InstantAuto, AccelTCG
	w.open()
	return w
}

// The first machine of a shape boots, and the next one starts from the template that is made meanwhile, also with another manager.
func TestSecondMachineStartsFromTheTemplateOfTheFirst(t *testing.T) {
	w := instantly(t)
	w.options.Users = UserRange{} // one test with each
	w.open()
	first := booted()
	w.create(first)
	began := time.Now()
	w.do(w.driver.Start(t.Context(), first))
	w.eventually("the guest answers", answers)
	t.Logf("a machine that boots answers after %v", time.Since(began))
	harness.Eventually(t, "the template is made", func() bool {
		w.driver.templates.mu.Lock()
		defer w.driver.templates.mu.Unlock()
		return len(w.driver.templates.all) == 1
	})
	w.stops()
	w.open()
	began = time.Now()
	w.do(w.driver.Start(t.Context(), first))
	w.eventually("the agent answers", func(s *backend.Server) bool { return s.Agent == backend.AgentConnected })
	t.Logf("the agent of a machine from a template answers after %v", time.Since(began))
	w.eventually("the guest answers", answers)
	t.Logf("a machine from a template has its address after %v", time.Since(began))
	if !w.wasInstant(first) {
		t.Error("the second start was no start from the template")
	}
	first.Hash, first.MemoryBytes = "2", 112<<20
	w.do(w.driver.Reconfigure(t.Context(), first))
	if pending := w.server().Pending; !slices.Equal(pending, []string{"resource.memory"}) {
		t.Errorf("with memory that is shared and should shrink, pending are %v", pending)
	}
	first.Hash, first.MemoryBytes = "3", 2*booted().MemoryBytes
	w.do(w.driver.Reconfigure(t.Context(), first))
	if pending := w.server().Pending; len(pending) > 0 {
		t.Errorf("with memory that is shared and should grow, pending are %v", pending)
	}
	w.remove()
}

// Machines from one template share nothing by which they could be told to be the same, or could guess what another one keeps
// secret, and the time of each is right.
func TestLongMachinesFromOneTemplateHaveTheirOwnIdentities(t *testing.T) {
	const number = 3
	w := instantly(t)
	script := `#cloud-config
ssh_authorized_keys: [` + testKey + `]
bootcmd:
- "echo is: name=$(hostname) boot=$(cat /proc/sys/kernel/random/boot_id) uuid=$(cat /proc/sys/kernel/random/uuid) random=$(head -c 16 /dev/urandom | md5sum | cut -c -32) mac=$(cat /sys/class/net/eth0/address) product=$(cat /sys/class/dmi/id/product_uuid 2>/dev/null) time=$(date +%s). >/dev/console"
`
	var machines []backend.Machine
	for i := range number {
		machine := booted(func(m *backend.Machine) {
			m.UID, m.Name, m.Seed = uuid.NewUUID(), fmt.Sprintf("vm-%d", i), &backend.Seed{UserData: script}
		})
		w.create(machine)
		machines = append(machines, machine)
	}
	w.haveTemplate(machines[0])
	began := time.Now()
	for _, machine := range machines {
		w.do(w.driver.Start(t.Context(), machine))
	}
	said := regexp.MustCompile(`is: name=(\S+) boot=(\S+) uuid=(\S+) random=(\S+) mac=(\S+) product=(\S*) time=(\d+)\.`)
	key := regexp.MustCompile(`the host key is (\S+)`)
	seen := map[string]string{}
	for i, machine := range machines {
		var values []string
		harness.Eventually(t, "the guest says who it is", func() bool {
			log, _ := os.ReadFile(filepath.Join(w.driver.machinesDir(), string(machine.UID), serialLog)) // it may not have begun
			found, keys := said.FindStringSubmatch(string(log)), key.FindStringSubmatch(string(log))
			if found == nil || keys == nil {
				return false
			}
			values = append(found[1:], keys[1])
			return true
		})
		if !w.wasInstant(machine) {
			t.Errorf("machine %d was not started from the template", i)
		}
		if want := fmt.Sprintf("vm-%d", i); values[0] != want {
			t.Errorf("machine %d is %q, want %q", i, values[0], want)
		}
		if values[5] != "" {
			t.Errorf("machine %d has the product UUID %q, which is that of the template", i, values[5])
		}
		seconds, err := strconv.ParseInt(values[6], 10, 64)
		w.do(err)
		if clock := time.Unix(seconds, 0); clock.Before(began.Add(-time.Second)) || clock.After(time.Now().Add(time.Second)) {
			t.Errorf("the clock of machine %d says %v between %v and %v", i, clock, began, time.Now())
		}
		for _, value := range append(values[:5:5], values[7]) {
			if other, found := seen[value]; found {
				t.Errorf("machines %s and %s both have %s", other, machine.Name, value)
			}
			seen[value] = machine.Name
		}
	}
	for _, machine := range machines {
		harness.Eventually(t, "it is deleted", func() bool {
			err := w.driver.Delete(t.Context(), machine.Identity, backend.DeleteOptions{})
			w.do(err)
			return err == nil
		})
	}
}

// A machine that cannot be started from a template boots, and so does one whose template is damaged, which is removed.
func TestLongMachineBootsWithoutATemplate(t *testing.T) {
	w := instantly(t)
	machine := booted()
	for _, damage := range []struct {
		name string
		do   func(memory string) error
	}{
		{"changed", func(memory string) error {
			file, err := os.OpenFile(memory, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = file.WriteAt([]byte("damage"), 1<<20)
			return errors.Join(err, file.Close())
		}},
		{"with devices of no QEMU", func(memory string) error { return replaceTemplate(memory, "not what QEMU writes", 128<<20) }},
		{"with too little memory for QEMU to start", func(memory string) error { return replaceTemplate(memory, "", 64<<20) }},
	} {
		w.create(machine)
		w.haveTemplate(machine)
		memories, err := filepath.Glob(filepath.Join(w.driver.templatesDir(), "*", templateMemory))
		if err != nil || len(memories) != 1 {
			t.Fatalf("%s: templates are %v, %v", damage.name, memories, err)
		}
		if info, err := os.Stat(memories[0]); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the memory of the template has the mode %v, %v", info.Mode(), err)
		}
		w.do(damage.do(memories[0]))
		w.open()
		w.do(w.driver.Start(t.Context(), machine))
		w.eventually("the guest answers", answers)
		if w.wasInstant(machine) {
			t.Errorf("%s: it was started from the damaged template", damage.name)
		}
		if _, err := os.Stat(memories[0]); err == nil && damage.name != "changed" {
			t.Errorf("%s: the template is still there", damage.name)
		}
		w.stops()
	}
	w.remove()
}

// replaceTemplate gives a template other devices and another size of the memory, with the digest of these.
func replaceTemplate(memory, devices string, size int64) error {
	dir := filepath.Dir(memory)
	found, err := readTemplate(dir)
	if err != nil {
		return err
	}
	from, err := os.OpenFile(memory, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := from.Truncate(size); err != nil {
		return err
	}
	if found.Size, found.SHA256, err = copyMemory(from, from, []byte(devices)); err != nil {
		return err
	}
	raw, err := json.Marshal(found)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, templateDevices), []byte(devices), 0o600),
		os.WriteFile(filepath.Join(dir, templateFile), raw, 0o600))
}

func TestNoTemplate(t *testing.T) {
	for want, change := range map[string]func(*backend.Machine){
		"": func(*backend.Machine) {},
		"it has an image": func(m *backend.Machine) {
			m.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{URL: "https://example.com"}}
		},
		"it has UEFI firmware":  func(m *backend.Machine) { m.Firmware = v1alpha1.FirmwareUEFI },
		"it has a CD-ROM drive": func(m *backend.Machine) { m.CDROM = &v1alpha1.Image{} },
		"it has a display":      func(m *backend.Machine) { m.Display = v1alpha1.DisplayVGA },
	} {
		machine := booted(change)
		if got := noTemplate(&machine); got != want {
			t.Errorf("noTemplate is %q, want %q", got, want)
		}
	}
}

// What is read from the disk is what was written, without room for what is zero, and nobody can change it.
func TestSharedMemory(t *testing.T) {
	const size = 64 << 20
	dir := t.TempDir()
	guest, err := newMemory(size)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	last := bytes.Repeat([]byte("last"), memoryPage/4)
	for place, page := range map[int64][]byte{3<<20 + 5: []byte("first"), size - memoryPage: last, 9 << 20: make([]byte, 1<<20)} {
		if _, err := guest.WriteAt(page, place); err != nil {
			t.Fatal(err)
		}
	}
	made := &template{}
	if err := os.WriteFile(filepath.Join(dir, templateDevices), []byte("devices"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := made.write(dir, guest); err != nil || made.Size != 2*memoryPage+int64(len("devices")) {
		t.Fatalf("a template of %d bytes, %v", made.Size, err)
	}
	read := func() (*sharedMemory, error) {
		return readShared(filepath.Join(dir, templateMemory), filepath.Join(dir, templateDevices), made.SHA256)
	}
	first, err := read()
	if err != nil {
		t.Fatal(err)
	}
	shared, err := first.open()
	first.close()
	if err != nil {
		t.Fatal(err)
	}
	defer shared.close()
	want, got := make([]byte, size), make([]byte, size)
	if _, err := guest.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := shared.memory.ReadAt(got, 0); n != size || !bytes.Equal(want, got) {
		t.Errorf("other memory was read: %d bytes, %v", n, err)
	}
	if state, err := io.ReadAll(shared.devices); string(state) != "devices" {
		t.Errorf("the state of the devices is %q, %v", state, err)
	}
	if _, err := shared.memory.WriteAt(last, 0); err == nil {
		t.Error("it can be written")
	}
	if err := unix.Fallocate(int(shared.memory.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, size-memoryPage, memoryPage); err == nil {
		t.Error("memory of all machines can be discarded")
	}
	if err := os.Truncate(filepath.Join(dir, templateMemory), size-1); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); err == nil {
		t.Error("a damaged template can be read")
	}
}

func TestTemplatesAreBounded(t *testing.T) {
	now := time.Now()
	all := []*template{
		{Key: "a", Size: maxTemplateBytes / 2, used: now},
		{Key: "b", Size: maxTemplateBytes/2 + 1, used: now.Add(-time.Minute)},
		{Key: "c", Size: 1, used: now.Add(-templateKeep + time.Minute)},
		{Key: "d", Size: 1, used: now.Add(-templateKeep - time.Minute)},
	}
	for i := range maxTemplates {
		all = append(all, &template{Key: fmt.Sprint("e", i), Size: 1, used: now.Add(-templateKeep + time.Second)})
	}
	var got []string
	for _, each := range excess(all, now) {
		got = append(got, each.Key)
	}
	if diff := cmp.Diff([]string{"b", "d", "e6", "e7"}, got); diff != "" {
		t.Error(diff)
	}
}

// testKey is a public key that nobody has the private one of.
const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP5Gbp+5sY0pmpvVdyvCwbJtNWnFEmlZRVoytWRqkQdK test"

package system

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/guest/internal/agent"
)

// files writes files below a folder and returns that.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range content {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestParseUevent(t *testing.T) {
	tests := []struct {
		name, message string
		want          Uevent
		ok            bool
	}{
		{"a device", "add@/devices/pci0/virtio1\x00ACTION=add\x00SUBSYSTEM=virtio\x00MODALIAS=virtio:d1v2\x00",
			Uevent{"add", "/devices/pci0/virtio1", "virtio", "virtio:d1v2"}, true},
		{"without an alias", "remove@/devices/x\x00SUBSYSTEM=net\x00", Uevent{"remove", "/devices/x", "net", ""}, true},
		{"of another sender", "libudev\x00\xfe\xed\xca\xfe", Uevent{}, false},
		{"nothing", "", Uevent{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseUevent([]byte(tt.message))
			if ok != tt.ok {
				t.Errorf("understood: %v, want %v", ok, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPresent(t *testing.T) {
	root := files(t, map[string]string{
		"devices/pci0/modalias":               "pci:v1\n",
		"devices/pci0/virtio0/modalias":       "virtio:d1\n",
		"devices/pci0/virtio0/net/eth0/x":     "",
		"devices/system/cpu/cpu0/x":           "",
		"devices/system/cpu/cpufreq/x":        "",
		"devices/system/memory/memory3/state": "",
	})
	for name, target := range map[string]string{
		"bus/pci/devices/0000":       "devices/pci0",
		"bus/virtio/devices/virtio0": "devices/pci0/virtio0",
		"class/net/eth0":             "devices/pci0/virtio0/net/eth0",
	} {
		link := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, target), link); err != nil {
			t.Fatal(err)
		}
	}
	var got []Uevent
	present(root, func(e Uevent) { got = append(got, e) })
	want := []Uevent{
		{"add", "/devices/pci0", "pci", "pci:v1"},
		{"add", "/devices/pci0/virtio0", "virtio", "virtio:d1"},
		{"add", "/devices/pci0/virtio0/net/eth0", "net", ""},
		{"add", "/devices/system/cpu/cpu0", "cpu", ""},
		{"add", "/devices/system/memory/memory3", "memory", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSetOnline(t *testing.T) {
	tests := []struct {
		name, file, was string
		done            bool
		want            string
	}{
		{"a processor that has come", "cpu1/online", "0\n", true, "1"},
		{"a processor in use", "cpu1/online", "1\n", false, "1\n"},
		{"the first processor", "cpu0/other", "", false, ""},
		{"memory that has come", "memory9/state", "offline\n", true, "online_movable"},
		{"memory in use", "memory9/state", "online\n", false, "online\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(files(t, map[string]string{tt.file: tt.was}), tt.file)
			done, err := SetOnline(filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			if done != tt.done {
				t.Errorf("there was something to do: %v, want %v", done, tt.done)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPowerPressed(t *testing.T) {
	event := func(kind, code uint16, value uint32) []byte {
		e := make([]byte, inputEvent)
		binary.NativeEndian.PutUint16(e[16:], kind)
		binary.NativeEndian.PutUint16(e[18:], code)
		binary.NativeEndian.PutUint32(e[20:], value)
		return e
	}
	tests := []struct {
		name   string
		events []byte
		want   bool
	}{
		{"pressed", event(eventKey, keyPower, 1), true},
		{"pressed, after something else", append(event(0, 0, 0), event(eventKey, keyPower, 1)...), true},
		{"let go", event(eventKey, keyPower, 0), false},
		{"another key", event(eventKey, 30, 1), false},
		{"half an event", event(eventKey, keyPower, 1)[:20], false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := powerPressed(tt.events); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, line string
		want       process
	}{
		{"a program", "12 (sh) S 1 12 12 0 -1 4194560 1 2", process{pid: 12, parent: 1, state: 'S'}},
		{"a strange name", "13 (a) Z 9 (b)) Z 1 12 12 0 -1 4194560", process{pid: 13, parent: 1, state: 'Z'}},
		{"a thread of the kernel", "2 (kthreadd) S 0 0 0 0 -1 2129984", process{pid: 2, state: 'S', kernel: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(process{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, line := range []string{"", "x (y) S 1 2 3 4 5 6", "1 (y) S"} {
		if got, err := parseStat(line); err == nil {
			t.Errorf("%q was read as %+v", line, got)
		}
	}
}

func TestRunLeavesNothingBehind(t *testing.T) {
	processes := NewProcesses()
	if err := processes.Run(exec.Command("true")); err != nil {
		t.Fatal(err)
	}
	if len(processes.own) != 0 {
		t.Errorf("the program that has ended still counts: %v", processes.own)
	}
}

func TestDiskMounts(t *testing.T) {
	root := files(t, map[string]string{"mounts": "proc /proc proc rw 0 0\n/dev/vda /data ext4 rw 0 0\n/dev/vdb /data/with\\040space vfat rw 0 0\n"})
	want := []string{"/data/with space", "/data"}
	if diff := cmp.Diff(want, diskMounts(filepath.Join(root, "mounts"))); diff != "" {
		t.Error(diff)
	}
}

func TestParseOSRelease(t *testing.T) {
	got := parseOSRelease([]byte("ID=keelson\nNAME=\"Keelson guest\"\n# a comment\nPRETTY_NAME=plain\nVERSION_ID=\"1\"\n"))
	want := agent.OSInfo{ID: "keelson", Name: "Keelson guest", PrettyName: "plain", VersionID: "1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

package qemu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/seed"
)

func TestKVMIsOnlyTrustedWithTheFlag(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	device := file("kvm", "")
	intel, amd := file("intel", "processor\t: 0\nflags\t\t: fpu vmx sse\n"), file("amd", "flags : svm\n")
	plain := file("plain", "flags\t\t: fpu vmx_like hypervisor\n")
	none := filepath.Join(dir, "none")
	defer func(device, info string) { kvmDevice, cpuInfo = device, info }(kvmDevice, cpuInfo)
	for _, test := range []struct {
		name         string
		device, info string
		accelerator  Accelerator
		want         bool
		err          error
	}{
		{"Intel", device, intel, AccelAuto, true, nil},
		{"AMD", device, amd, "", true, nil},
		{"a device, but no processor support", device, plain, AccelAuto, false, nil},
		{"no device", none, intel, AccelAuto, false, nil},
		{"requested emulation", device, intel, AccelTCG, false, nil},
		{"requested KVM", device, plain, AccelKVM, true, nil},
		{"requested KVM without a device", none, intel, AccelKVM, false, backend.ErrMissing},
		{"something else", device, intel, "hvf", false, backend.ErrMissing},
	} {
		t.Run(test.name, func(t *testing.T) {
			kvmDevice, cpuInfo = test.device, test.info
			got, err := useKVM(test.accelerator)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("useKVM: %t, %v; want %t, %v", got, err, test.want, test.err)
			}
		})
	}
}

// A machine with several emulated processors, and its template, have the threads for the QEMU of this host.
func TestThreadsOfThisQEMU(t *testing.T) {
	w := newFixture(t)
	if w.driver.kvm {
		t.Skip("SKIP: processors are not emulated here")
	}
	machine := firmware(uid)
	machine.MilliCPU, machine.Image = 2000, nil
	want := "tcg,thread=" + guestboot.Threads(guestboot.Version(t.Context(), w.driver.binary), 2) + ",tb-size=64"
	l := newMachine(w.driver, definition{Machine: machine}).wakingLaunch()
	bare, err := w.driver.templateLaunch(l)
	w.do(err)
	for _, l := range []*launch{l, bare} {
		if l.Version == "" {
			t.Error("the version is not known")
		}
		l.Kernel = os.DevNull
		if arguments := l.Arguments(); !slices.Contains(arguments, want) {
			t.Errorf("no %s in %q", want, arguments)
		}
	}
}

// The version of QEMU is a shortcoming where it emulates processors, and only there.
func TestLimitsOfVersion(t *testing.T) {
	defer func(device, info string) { kvmDevice, cpuInfo = device, info }(kvmDevice, cpuInfo)
	dir := t.TempDir()
	flags := filepath.Join(dir, "cpuinfo")
	if err := os.WriteFile(flags, []byte("flags : svm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, device, version string
		want                  bool
	}{
		{"emulated by an old version", filepath.Join(dir, "none"), "QEMU emulator version 7.2.22", true},
		{"emulated by a new version", filepath.Join(dir, "none"), fixedQEMU, false},
		{"an old version with KVM", flags, "QEMU emulator version 7.2.22", false},
		{"no QEMU", filepath.Join(dir, "none"), "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			kvmDevice, cpuInfo = test.device, flags
			found := slices.ContainsFunc(Limits(UserRange{}, test.version), func(s Shortcoming) bool { return s.What == "QEMU" })
			if found != test.want {
				t.Errorf("it is one: %t, want %t", found, test.want)
			}
		})
	}
}

func TestMissingQEMU(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := Open(Options{StateDir: t.TempDir()})
	if !errors.Is(err, backend.ErrMissing) || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("Open: %v", err)
	}
}

// readFAT reads the output of seed.FAT with an independent implementation.
func readFAT(t *testing.T, image []byte) (label string, files map[string]string) {
	t.Helper()
	const sectorSize, entrySize = 512, 32
	le := binary.LittleEndian
	cluster := int(image[13]) * int(le.Uint16(image[11:]))
	fatSectors := int(le.Uint16(image[22:]))
	root := (int(le.Uint16(image[14:])) + int(image[16])*fatSectors) * sectorSize
	data := root + int(le.Uint16(image[17:]))*entrySize
	table := image[sectorSize : sectorSize+fatSectors*sectorSize]
	if !bytes.Equal(table, image[sectorSize+fatSectors*sectorSize:root]) {
		t.Error("the two tables differ")
	}
	follow := func(n int) int {
		pair := int(le.Uint16(table[n*3/2:]))
		if n%2 == 1 {
			return pair >> 4
		}
		return pair & 0xfff
	}
	files = map[string]string{}
	var name []uint16
	for at := root; at < data && image[at] != 0; at += entrySize {
		entry := image[at : at+entrySize]
		switch entry[11] {
		case 0x0f:
			var piece []uint16
			for _, place := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
				if unit := le.Uint16(entry[place:]); unit != 0 && unit != 0xffff {
					piece = append(piece, unit)
				}
			}
			name = append(piece, name...)
		case 0x08:
			label = strings.TrimSpace(string(entry[:11]))
			if time, date := le.Uint16(entry[22:]), le.Uint16(entry[24:]); time != 0 || date != 40<<9|1<<5|1 {
				t.Errorf("the label has the time %#x of the day %#x, want the start of 2020", time, date)
			}
		default:
			size := int(le.Uint32(entry[28:]))
			var content []byte
			for n := int(le.Uint16(entry[26:])); n >= 2 && n < 0xff8; n = follow(n) {
				content = append(content, image[data+(n-2)*cluster:data+(n-1)*cluster]...)
			}
			files[string(utf16.Decode(name))] = string(content[:size])
			name = nil
		}
	}
	return label, files
}

func TestSeedIsAFileSystem(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "small": 100, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "2 MiB": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{
				"meta-data": "instance-id: a\n", "user-data": strings.Repeat("x", size),
				"a file with quite a long name, for which one entry has no room": "content",
			}
			contents := []seed.File{
				{Name: "meta-data", Content: []byte(want["meta-data"])}, {Name: "user-data", Content: []byte(want["user-data"])},
				{Name: "a file with quite a long name, for which one entry has no room", Content: []byte("content")},
			}
			image, err := seed.FAT("CIDATA", contents)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := seed.FAT("CIDATA", contents); err != nil || !bytes.Equal(image, again) {
				t.Error("equal files gave different bytes:", err)
			}
			label, files := readFAT(t, image)
			if diff := cmp.Diff(want, files); diff != "" || label != "CIDATA" {
				t.Errorf("label %q, files (-want +got):\n%.500s", label, diff)
			}
		})
	}
	if _, err := seed.FAT("CIDATA", []seed.File{{Name: "user-data", Content: make([]byte, 64<<20)}}); err == nil {
		t.Error("64 MiB fit into a seed")
	}
}

func TestMemoryArgument(t *testing.T) {
	for _, test := range []struct {
		name   string
		image  *v1alpha1.Image
		memory int64
		want   string
	}{
		{"the default guest", nil, 128 << 20, "size=131072k,slots=8,maxmem=1281M"},
		{"another small guest reserves nothing for plugging", &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/image"}}, 512 << 20, "size=524288k"},
		{"another guest", &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/image"}}, 4e9, "size=3906250k,slots=8,maxmem=8654M"},
	} {
		t.Run(test.name, func(t *testing.T) {
			arguments := newLaunch(backend.Machine{Image: test.image, MemoryBytes: test.memory}, false, false).Arguments()
			if got := arguments[slices.Index(arguments, "-m")+1]; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestRoomForProcessors(t *testing.T) {
	for _, test := range []struct {
		name  string
		plugs bool
		cpu   int64
		want  string
	}{
		{"twice as many", true, 3000, "cpus=3,maxcpus=6"},
		{"the driver's maximum", true, 200000, "cpus=200,maxcpus=255"},
		{"none if they cannot be added", false, 3000, "cpus=3,maxcpus=3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			arguments := newLaunch(backend.Machine{MilliCPU: test.cpu}, true, test.plugs).Arguments()
			if got := arguments[slices.Index(arguments, "-smp")+1]; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// fixedQEMU is the version of a QEMU whose processors do not race.
const fixedQEMU = "QEMU emulator version " + guestboot.Fixed + ".0"

package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// filled is a machine with two disks, and a snapshot that has both.
type filled struct {
	*testing.T
	dirs Dirs
	fill Fill
}

const (
	filledRoot = 8 << 20
	filledData = 4 << 20
)

func newFilled(t *testing.T, token string) *filled {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed: apt-get install qemu-utils")
	}
	dir := t.TempDir()
	f := &filled{T: t, dirs: Dirs{Disk: filepath.Join(dir, "disk"), Disks: filepath.Join(dir, "disks"), Snapshot: filepath.Join(dir, "snapshot")}}
	f.fill = Fill{Disks: []Disk{{qemu.RootDisk, 16 << 20}, {"data", filledData}, {"other", 1 << 20}}, From: []string{qemu.RootDisk, "data"}, Token: token}
	for _, folder := range []string{f.dirs.Disk, filepath.Join(f.dirs.Disks, "data"), filepath.Join(f.dirs.Disks, "other"), f.dirs.Snapshot} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f.write(f.taken(qemu.RootDisk), 1, filledRoot)
	f.write(f.taken("data"), 2, filledData)
	return f
}

// path returns the file of a disk of the machine.
func (f *filled) path(disk string) string {
	return f.dirs.diskPath(disk)
}

// taken returns the file of a disk in the snapshot.
func (f *filled) taken(disk string) string { return filepath.Join(f.dirs.Snapshot, SnapshotFile(disk)) }

// write makes a disk of a size with a byte in the middle.
func (f *filled) write(path string, content byte, size int64) {
	f.Helper()
	raw := filepath.Join(f.TempDir(), "raw")
	file, err := os.Create(raw)
	if err == nil {
		err = errors.Join(file.Truncate(size), writeAt(file, content, size/2), file.Close())
	}
	if err == nil {
		err = qemuImg(f.Context(), "convert", "-f", "raw", "-O", "qcow2", raw, path)
	}
	if err != nil {
		f.Fatal(err)
	}
}

func writeAt(file *os.File, content byte, at int64) error {
	_, err := file.WriteAt([]byte{content}, at)
	return err
}

// content returns the byte in the middle of a disk that was written with a size; 0 if there is no disk.
func (f *filled) content(path string, size int64) byte {
	f.Helper()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return 0
	}
	raw := filepath.Join(f.TempDir(), "raw")
	if err := qemuImg(f.Context(), "convert", "-f", "qcow2", "-O", "raw", path, raw); err != nil {
		f.Fatal(err)
	}
	content, err := os.ReadFile(raw)
	if err != nil || int64(len(content)) != size {
		f.Fatalf("%s has %d bytes, want %d; %v", path, len(content), size, err)
	}
	return content[size/2]
}

// present gives the machine disks with the content 3 and 4, and the memory of a machine that is asleep.
func (f *filled) present(root, data byte) {
	f.Helper()
	f.write(f.path(qemu.RootDisk), root, filledRoot)
	f.write(f.path("data"), data, filledData)
	f.write(f.path("other"), 9, 1<<20)
	if err := os.WriteFile(filepath.Join(f.dirs.Disk, memoryRecord), []byte("{}"), 0o600); err != nil {
		f.Fatal(err)
	}
}

// has checks the content of the disks, and that nothing of an attempt is left over.
func (f *filled) has(root, data byte) {
	f.Helper()
	if got := []byte{f.content(f.path(qemu.RootDisk), filledRoot), f.content(f.path("data"), filledData)}; !slices.Equal(got, []byte{root, data}) {
		f.Errorf("the disks have %v, want %v", got, []byte{root, data})
	}
	for _, pattern := range []string{"*.restore", "*.part", "*.tmp"} {
		for _, dir := range []string{f.dirs.Disk, filepath.Join(f.dirs.Disks, "data")} {
			if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
				f.Errorf("left over: %v", left)
			}
		}
	}
}

func (f *filled) hasMemory() bool {
	_, err := os.Stat(filepath.Join(f.dirs.Disk, memoryRecord))
	return err == nil
}

// runKilled runs the fill in a process that is killed at a step, and returns the steps.
func (f *filled) runKilled(at string) []string {
	f.Helper()
	raw, err := json.Marshal(helper{Dirs: f.dirs, Job: &Job{Fill: &f.fill}, Step: at})
	if err != nil {
		f.Fatal(err)
	}
	program := exec.CommandContext(f.Context(), os.Args[0])
	program.Env = append(os.Environ(), helperVariable+"="+string(raw))
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := program.Output()
	if (err == nil) != (at == "") {
		f.Fatalf("killed at %q: %v: %s", at, err, out)
	}
	return slices.Compact(strings.Split(strings.TrimSpace(string(out)), "\n"))
}

// A fill that is killed at any step leaves either all disks of before or all of the snapshot, and the next one completes it.
func TestFillKilledAtEveryStep(t *testing.T) {
	for _, token := range []string{"", "once"} {
		first := newFilled(t, token)
		if token != "" {
			first.present(3, 4)
		}
		steps := first.runKilled("")
		first.has(1, 2)
		t.Logf("steps are %q", steps)
		isDecided := false
		for _, at := range steps {
			t.Run(token+" "+at, func(t *testing.T) {
				f := newFilled(t, token)
				isDecided = isDecided || at == "restore decided"
				if token != "" {
					f.present(3, 4)
				}
				f.runKilled(at)
				if token != "" {
					// The next launcher does this before anything else.
					err := checkRestored(f.dirs, []string{qemu.RootDisk, "data"})
					if isHalf := isDecided && at != "restore done"; (err != nil) != isHalf {
						t.Errorf("a snapshot of the machine: %v", err)
					}
					if err := (&launcher{dirs: f.dirs}).finishRestore(f.fill.Disks); err != nil {
						t.Fatal(err)
					}
					if isDecided {
						f.has(1, 2)
					} else {
						f.has(3, 4)
					}
					if f.hasMemory() == isDecided {
						t.Errorf("the memory is there: %t", f.hasMemory())
					}
				}
				f.do()
				f.has(1, 2)
				if token != "" {
					f.present(5, 6)
				}
				f.do() // it was done
				if token != "" {
					f.has(5, 6)
					f.fill.Token = "again"
					f.do()
				}
				f.has(1, 2)
				if token != "" && f.content(f.path("other"), 1<<20) != 9 {
					t.Error("the disk that is not in the snapshot has changed")
				}
			})
		}
	}
}

func (f *filled) do() {
	f.Helper()
	if err := f.fill.run(f.Context(), f.dirs, io.Discard); err != nil {
		f.Fatal(err)
	}
}

// A fill that fails says why, and a restore that does has changed nothing.
func TestFillThatFails(t *testing.T) {
	t.Cleanup(func() { atomicfile.Fault = func(string, string) error { return nil } })
	for _, test := range []struct {
		name, token, want string
		prepare           func(*filled) error
	}{
		{"too large", "", "spec.resource.rootDisk with 1048576", func(f *filled) error { f.fill.Disks[0].Bytes = 1 << 20; return nil }},
		{"another disk too large", "", "spec.disks[].size with 1048576", func(f *filled) error { f.fill.Disks[1].Bytes = 1 << 20; return nil }},
		{"larger than the present one", "once", "spec.disks[].size with 1048576", func(f *filled) error {
			f.write(f.path("data"), 4, 1<<20)
			return nil
		}},
		{"missing", "", "the data disk of the snapshot", func(f *filled) error { return os.Remove(f.taken("data")) }},
		{"no disks", "once", "none of the disks", func(f *filled) error { f.fill.Disks = nil; return nil }},
		{"no decision", "once", "record the restore", func(*filled) error {
			atomicfile.Fault = func(operation, path string) error {
				if operation == "sync" && filepath.Base(path) == restoreFile+atomicfile.Suffix {
					return syscall.EIO
				}
				return nil
			}
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			atomicfile.Fault = func(string, string) error { return nil }
			f := newFilled(t, test.token)
			if test.token != "" {
				f.present(3, 4)
			}
			if err := test.prepare(f); err != nil {
				t.Fatal(err)
			}
			before := map[string][]byte{}
			for _, disk := range []string{qemu.RootDisk, "data"} {
				before[disk], _ = os.ReadFile(f.path(disk)) // there may be none
			}
			err := f.fill.run(f.Context(), f.dirs, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			for disk, content := range before {
				now, _ := os.ReadFile(f.path(disk))
				if test.token != "" && !bytes.Equal(now, content) {
					t.Errorf("the disk %s has changed", disk)
				}
			}
		})
	}
	t.Run("full", func(t *testing.T) {
		f := newFilled(t, "once")
		err := (&filler{fill: &f.fill}).explain(Disk{Name: qemu.RootDisk}, fmt.Errorf("write: %w", syscall.ENOSPC))
		for _, want := range []string{"no room", "spec.resource.rootDisk", "beside"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	})
}

// A fill waits for the end of a run that uses the disks.
func TestFillWaitsForTheMachine(t *testing.T) {
	f := newFilled(t, "")
	run := &launcher{dirs: f.dirs, messages: io.Discard}
	if err := run.lockVolume(t.Context(), f.dirs.Disk); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	if err := f.fill.run(ctx, f.dirs, waits); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.has(0, 0)
	if err := run.locks[0].Close(); err != nil {
		t.Fatal(err)
	}
	f.do()
	f.has(1, 2)
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

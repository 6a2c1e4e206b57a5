package image

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/u-root/u-root/pkg/cpio"
	"github.com/ulikunitz/xz"

	"github.com/keelson-dev/keelson/guest/internal/modules"
)

// elfFile returns an ELF file for x86-64 with one segment of notes and one section,
// of which either may be empty.
func elfFile(notes []byte, section string, content []byte) []byte {
	const header, segment, sectionHeader = 64, 56, 64
	names := "\x00" + section + "\x00.shstrtab\x00"
	at := uint64(header + segment)
	var data []byte
	place := func(p []byte) (offset uint64) {
		offset = at + uint64(len(data))
		data = append(data, p...)
		return offset
	}
	notesAt, contentAt, namesAt := place(notes), place(content), place([]byte(names))
	var out bytes.Buffer
	write := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&out, binary.LittleEndian, v) // a buffer takes everything
		}
	}
	write([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), uint16(1), uint16(62), uint32(1),
		uint64(0), uint64(header), at+uint64(len(data)), uint32(0), uint16(header),
		uint16(segment), uint16(1), uint16(sectionHeader), uint16(3), uint16(2))
	write(uint32(4), uint32(0), notesAt, uint64(0), uint64(0), uint64(len(notes)), uint64(len(notes)), uint64(4))
	out.Write(data)
	write(make([]byte, sectionHeader))
	for _, s := range []struct {
		name       uint32
		kind       uint32
		at, length uint64
	}{{1, 1, contentAt, uint64(len(content))}, {uint32(2 + len(section)), 3, namesAt, uint64(len(names))}} {
		write(s.name, s.kind, uint64(0), uint64(0), s.at, s.length, uint32(0), uint32(0), uint64(1), uint64(0))
	}
	return out.Bytes()
}

// xenNote is an ELF note of a kernel; of the kind 18 it says where to start it.
func xenNote(kind uint32) []byte {
	note := binary.LittleEndian.AppendUint32(nil, 4)
	note = binary.LittleEndian.AppendUint32(note, 4)
	note = binary.LittleEndian.AppendUint32(note, kind)
	return append(note, "Xen\x00\x00\x00\x00\x01"...)
}

// bzImage wraps a compressed kernel.
func bzImage(packed []byte) []byte {
	const setup = 2 * 512
	image := make([]byte, setup)
	image[0x1f1] = 1 // sectors of setup code after the first
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(image[0x206:], 0x020f)
	binary.LittleEndian.PutUint16(image[0x20e:], 0x100)
	copy(image[0x300:], "6.1.0-1-cloud-amd64 (somebody) #1\x00")
	binary.LittleEndian.PutUint32(image[0x24c:], uint32(len(packed)))
	return append(image, packed...)
}

// pack compresses with one of the ways that kernels know.
func pack(t *testing.T, content []byte, open func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := open(&out)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func asGzip(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func asXZ(w io.Writer) (io.WriteCloser, error)   { return xz.NewWriter(w) }
func asZstd(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }

func asLZ4(w io.Writer) (io.WriteCloser, error) {
	encoder := lz4.NewWriter(w)
	return encoder, encoder.Apply(lz4.LegacyOption(true))
}

func TestUnpack(t *testing.T) {
	direct := elfFile(append(xenNote(5), xenNote(18)...), ".text", nil)
	indirect := elfFile(xenNote(5), ".text", nil)
	sized := func(packed []byte) []byte { return append(packed, 1, 2, 3, 4) }
	asItIs := []byte(nil)
	tests := []struct {
		name   string
		kernel []byte
		want   []byte
	}{
		{"LZ4, as Debian has it", bzImage(sized(pack(t, direct, asLZ4))), direct},
		{"zstd, as others do", bzImage(sized(pack(t, direct, asZstd))), direct},
		{"gzip", bzImage(pack(t, direct, asGzip)), direct},
		{"no way to start it directly", bzImage(pack(t, indirect, asGzip)), asItIs},
		{"something unknown", bzImage([]byte("unknown compression")), asItIs},
		{"damaged", bzImage([]byte{0x1f, 0x8b, 0, 0, 0, 0}), asItIs},
		{"no payload", bzImage(nil), asItIs},
		{"no kernel", []byte("hello"), asItIs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if want == nil {
				want = tt.kernel
			}
			if got := Unpack(tt.kernel); !bytes.Equal(got, want) {
				t.Errorf("got %d bytes that differ from the %d wanted", len(got), len(want))
			}
		})
	}
}

func TestKernelRelease(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(file, bzImage(nil), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := KernelRelease(file)
	if err != nil || got != "6.1.0-1-cloud-amd64" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := KernelRelease(file); err == nil {
		t.Errorf("a file that is no kernel has the release %q", got)
	}
}

func TestCollectModules(t *testing.T) {
	module := func(info string) []byte { return elfFile(nil, ".modinfo", []byte(info)) }
	directory := t.TempDir()
	pci := module("alias=pci:v00001AF4d*\x00depends=virtio,virtio-ring\x00license=GPL\x00")
	ring := module("depends=\x00")
	virtio := module("depends=virtio_ring\x00")
	for name, content := range map[string][]byte{
		"drivers/virtio/virtio_pci.ko.xz":  pack(t, pci, asXZ),
		"drivers/virtio/virtio-ring.ko.gz": pack(t, ring, asGzip),
		"drivers/virtio/virtio.ko.zst":     pack(t, virtio, asZstd),
		"drivers/virtio/virtio_blk.ko":     module("depends=virtio\x00alias=virtio:d2v*\x00alias=virtio:d1v*\x00"),
		"drivers/unwanted.ko":              module("depends=\x00"),
		"modules.order":                    []byte("nothing\n"),
	} {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := CollectModules(directory)
	if err != nil {
		t.Fatal(err)
	}
	want := modules.Table{
		{Name: "virtio_ring"},
		{Name: "virtio", Depends: []string{"virtio_ring"}},
		{Name: "virtio_pci", Depends: []string{"virtio", "virtio_ring"}, Aliases: []string{"pci:v00001AF4d*"}},
		{Name: "virtio_blk", Depends: []string{"virtio"}, Aliases: []string{"virtio:d1v*", "virtio:d2v*"}},
	}
	if diff := cmp.Diff(want, got.Table); diff != "" {
		t.Error(diff)
	}
	for name, content := range map[string][]byte{"virtio_pci": pci, "virtio_ring": ring, "virtio": virtio} {
		if !bytes.Equal(got.Content[name], content) {
			t.Errorf("%s is not what was compressed", name)
		}
	}
	if _, err := CollectModules(t.TempDir()); err == nil {
		t.Error("a folder without modules was taken")
	}
}

// The kernel must be able to read what Pack and Compress write, and the same input has
// to give the same bytes.
func TestTree(t *testing.T) {
	build := func() []byte {
		tree := NewTree()
		tree.File("bin/program", []byte("run"), 0o755)
		tree.Link("bin/name", "program")
		tree.Directory("tmp", 0o777)
		archive, err := tree.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return archive
	}
	archive := build()
	if !bytes.Equal(archive, build()) {
		t.Error("two runs gave different bytes")
	}
	var packed bytes.Buffer
	if err := Compress(&packed, archive); err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(lz4.NewReader(&packed))
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Name, Content string
		Mode          uint64
	}
	var got []entry
	err = cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(unpacked)), func(r cpio.Record) error {
		content, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
		got = append(got, entry{r.Name, string(content), r.Mode})
		if r.MTime != 0 || r.UID != 0 || r.GID != 0 {
			t.Errorf("%s has a date or an owner", r.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{"bin", "", cpio.S_IFDIR | 0o755},
		{"bin/name", "program", cpio.S_IFLNK | 0o777},
		{"bin/program", "run", cpio.S_IFREG | 0o755},
		{"tmp", "", cpio.S_IFDIR | 0o777},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWrite(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "guest")
	for range 2 { // the second time over the first
		if err := Write(directory, "6.1.0", []byte("kernel"), []byte("initramfs")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(directory, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	var got Manifest
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	sum := func(content string) string {
		s := sha256.Sum256([]byte(content))
		return hex.EncodeToString(s[:])
	}
	want := Manifest{
		Version: 1, Architecture: "amd64", KernelRelease: "6.1.0",
		Kernel: File{"kernel", sum("kernel")}, Initramfs: File{"initramfs", sum("initramfs")},
		Cmdline: Cmdline, MinimumMemoryMiB: minimumMemory,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, file := range []File{got.Kernel, got.Initramfs} {
		content, err := os.ReadFile(filepath.Join(directory, file.Name))
		if err != nil || sum(string(content)) != file.SHA256 {
			t.Errorf("%s is not what the manifest says: %v", file.Name, err)
		}
	}
}

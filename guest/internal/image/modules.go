package image

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/keelson-dev/keelson/guest/internal/modules"
)

// wanted are the modules that the guest may need. Those that the kernel has built in
// are not found, which is no error; required lists those it cannot do without.
var wanted = []string{
	"virtio_pci", "virtio_mmio", "virtio_console", // the agent's channel
	"virtio_net", "virtio_blk", "virtio_rng", "virtio_balloon", "virtio_mem",
	"button", "evdev", // power-off
	"pvpanic_mmio", "pvpanic_pci", // a crash is reported
	"overlay",                                             // the root disk, which is ext4
	"isofs", "vfat", "nls_cp437", "nls_ascii", "nls_utf8", // the seed
	"virtiofs", "9pnet_virtio", "9p", // shared folders, where the kernel has them
}

// Modules is what goes into the image: the table, and the content of each module by
// name.
type Modules struct {
	Table   modules.Table
	Content map[string][]byte
}

// CollectModules takes the wanted modules, and those that they depend on, out of
// directory, which is /lib/modules/RELEASE or a copy of it. The modules come out
// uncompressed.
func CollectModules(directory string) (*Modules, error) {
	files, err := findModules(directory)
	if err != nil {
		return nil, err
	}
	all := &Modules{Content: map[string][]byte{}}
	var add func(string) error
	add = func(name string) error {
		file, there := files[name]
		if _, done := all.Content[name]; done || !there {
			return nil
		}
		content, err := readModule(file)
		if err != nil {
			return err
		}
		m, err := describe(name, content)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all.Content[name] = content
		for _, depends := range m.Depends {
			if err := add(depends); err != nil {
				return err
			}
		}
		all.Table = append(all.Table, m)
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// findModules returns the file of each module below directory, by the kernel's name.
func findModules(directory string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base, _, isModule := strings.Cut(entry.Name(), ".ko")
		if isModule && entry.Type().IsRegular() {
			files[strings.ReplaceAll(base, "-", "_")] = path
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for kernel modules: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no kernel modules in %s: name the folder of the kernel's modules with KEELSON_GUEST_MODULES", directory)
	}
	return files, nil
}

// readModule reads a module, decompressed: not every kernel can do that by itself,
// and the initramfs is compressed as a whole anyway.
func readModule(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r io.Reader = bytes.NewReader(content)
	switch filepath.Ext(file) {
	case ".ko":
		return content, nil
	case ".gz":
		r, err = gzip.NewReader(r)
	case ".xz":
		r, err = xz.NewReader(r)
	case ".zst":
		r, err = zstd.NewReader(r)
	default:
		err = errors.New("unknown compression")
	}
	if err == nil {
		content, err = io.ReadAll(r)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return content, nil
}

// describe reads what the module says of itself: words like depends=a,b and alias=x
// in the section .modinfo, each ended by a zero byte.
func describe(name string, content []byte) (modules.Module, error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return modules.Module{}, fmt.Errorf("this is no kernel module: %w", err)
	}
	section := file.Section(".modinfo")
	if section == nil {
		return modules.Module{}, errors.New("this is no kernel module: it has no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return modules.Module{}, err
	}
	m := modules.Module{Name: name}
	for word := range strings.SplitSeq(string(info), "\x00") {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "depends" && value != "":
			for depends := range strings.SplitSeq(value, ",") {
				m.Depends = append(m.Depends, strings.ReplaceAll(depends, "-", "_"))
			}
		case key == "alias":
			m.Aliases = append(m.Aliases, value)
		}
	}
	slices.Sort(m.Aliases)
	return m, nil
}

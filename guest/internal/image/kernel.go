package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// KernelRelease reads the release (what uname -r will say) from a kernel for x86, a
// bzImage. The format is in Documentation/arch/x86/boot.rst of the kernel.
func KernelRelease(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	release, err := release(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return release, nil
}

// release finds the version string, which begins with the release.
func release(kernel []byte) (string, error) {
	const magic, pointer, base = 0x202, 0x20e, 0x200
	if len(kernel) < 0x210 || string(kernel[magic:magic+4]) != "HdrS" {
		return "", errors.New("this is no x86 kernel (bzImage)")
	}
	start := int(binary.LittleEndian.Uint16(kernel[pointer:])) + base
	if start == base || start >= len(kernel) {
		return "", errors.New("the kernel does not say its version")
	}
	text, _, _ := bytes.Cut(kernel[start:min(start+256, len(kernel))], []byte{0})
	name, _, _ := bytes.Cut(text, []byte{' '})
	return string(name), nil
}

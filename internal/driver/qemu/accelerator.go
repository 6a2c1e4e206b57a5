package qemu

import (
	"fmt"
	"os"
	"strings"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// Files that show support for hardware virtualization. Tests replace them.
var (
	kvmDevice = qemu.KVMDevice
	cpuInfo   = "/proc/cpuinfo"
)

// useKVM reports whether to use hardware virtualization. The device alone is not enough: on
// some hosts it can be opened although the processors do not support virtualization, and
// guests hang.
func useKVM(accelerator Accelerator) (bool, error) {
	usable := canOpen(kvmDevice) && hasFlag(cpuInfo)
	switch accelerator {
	case "", AccelAuto:
		return usable, nil
	case AccelTCG:
		return false, nil
	case AccelKVM:
		if !canOpen(kvmDevice) {
			return false, fmt.Errorf("%w: KVM was requested, but %s cannot be opened; enable virtualization, or choose another accelerator",
				backend.ErrMissing, kvmDevice)
		}
		return true, nil
	}
	return false, fmt.Errorf("%w: unknown accelerator %q", backend.ErrMissing, accelerator)
}

func canOpen(device string) bool {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	file.Close()
	return true
}

// hasFlag reports whether the processors support virtualization.
func hasFlag(path string) bool {
	raw, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		name, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		for flag := range strings.FieldsSeq(flags) {
			if flag == "vmx" || flag == "svm" {
				return true
			}
		}
		return false // all processors are alike
	}
	return false
}

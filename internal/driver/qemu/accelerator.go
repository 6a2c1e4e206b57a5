package qemu

import (
	"fmt"
	"os"
	"strings"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// The files that tell about hardware virtualization; tests have others.
var (
	kvmDevice = "/dev/kvm"
	cpuInfo   = "/proc/cpuinfo"
)

// useKVM decides about hardware virtualization. A device alone is not enough: on some
// hosts it can be opened, and then guests hang in it, because the processors offer
// nothing.
func useKVM(accelerator Accelerator) (bool, error) {
	usable := canOpen(kvmDevice) && hasFlag(cpuInfo)
	switch accelerator {
	case "", AccelAuto:
		return usable, nil
	case AccelTCG:
		return false, nil
	case AccelKVM:
		if !canOpen(kvmDevice) {
			return false, fmt.Errorf("%w: KVM was asked for, and %s cannot be opened; enable virtualization, or take another accelerator",
				backend.ErrMissing, kvmDevice)
		}
		return true, nil
	}
	return false, fmt.Errorf("%w: there is no accelerator %q", backend.ErrMissing, accelerator)
}

func canOpen(device string) bool {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	file.Close()
	return true
}

// hasFlag reports whether the processors say that they can run guests.
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

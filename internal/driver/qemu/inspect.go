package qemu

import (
	"fmt"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// Shortcoming is something that this host lacks for machines.
type Shortcoming struct {
	// What is missing, such as KVM.
	What string
	// Detail says what follows from it, and how to get it.
	Detail string
}

// Limits returns what this host lacks for fast and well confined machines; nothing that machines
// need in order to run. users is as in Options, and version is what QEMU prints about its version; empty if there is none.
func Limits(users UserRange, version string) []Shortcoming {
	var all []Shortcoming
	switch {
	case !canOpen(kvmDevice):
		all = append(all, Shortcoming{"KVM", fmt.Sprintf("%s cannot be opened: machines are emulated, many times slower. Enable hardware "+
			"virtualization in the firmware or hypervisor, and add this user to the group kvm", kvmDevice)})
	case !hasFlag(cpuInfo):
		all = append(all, Shortcoming{"KVM", "the processors have neither vmx nor svm: machines are emulated, many times slower. " +
			"Enable nested virtualization in the hypervisor of this host"})
	}
	if len(all) > 0 && version != "" && guestboot.CanHang(version) {
		all = append(all, Shortcoming{"QEMU", "an emulated machine uses at most one processor of this host, however many it has: the processors of " +
			"this version can hang the guest when they run at once. Use QEMU " + guestboot.Fixed + " or later"})
	}
	if _, why, err := newUsers(users); err != nil {
		all = append(all, Shortcoming{"users", err.Error()})
	} else if why != "" {
		all = append(all, Shortcoming{"users", "machines run as the user of Keelson: " + why})
	}
	if why := landlockLimit(); why != "" {
		all = append(all, Shortcoming{"Landlock", why})
	}
	return all
}

// landlockLimit says why Landlock does not confine machines fully; "" if it does.
func landlockLimit() string {
	switch version := sandbox.Landlock(); {
	case version == 0:
		return "QEMU is confined by its user and by system calls only. Use Linux 5.13 or later with Landlock enabled"
	case version < fullLandlock:
		return fmt.Sprintf("version %d restricts QEMU less than version %d, of Linux 6.12", version, fullLandlock)
	}
	return ""
}

// CheckGuest returns an error with the remedy if there is no default guest in a folder.
func CheckGuest(dir string) error {
	_, err := guestimage.Read(dir)
	return err
}

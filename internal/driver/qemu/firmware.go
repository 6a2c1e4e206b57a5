package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// uefiFiles are the places of UEFI firmware without Secure Boot: its code, and a template of its variables.
var uefiFiles = []struct{ code, vars string }{
	{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"}, // Debian, Ubuntu
	{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},       // their older releases
	{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},
	{"/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"},
}

// findUEFI returns the files of the UEFI firmware of the host.
func findUEFI() (code, vars string, err error) {
	for _, files := range uefiFiles {
		_, codeErr := os.Stat(files.code)
		_, varsErr := os.Stat(files.vars)
		if codeErr == nil && varsErr == nil {
			return files.code, files.vars, nil
		}
	}
	return "", "", errors.New("spec.firmware is UEFI, but no UEFI firmware is installed on the host of the driver qemu. On Debian and Ubuntu: apt-get install ovmf")
}

// checkFirmware fails if the host does not have the firmware of a machine.
func checkFirmware(firmware v1alpha1.Firmware) error {
	if firmware != v1alpha1.FirmwareUEFI {
		return nil
	}
	_, _, err := findUEFI()
	return err
}

// prepareFirmware fills in the firmware, and creates the variables of a machine that has none. They stay with the machine:
// an installer records in them what to boot.
func (m *machine) prepareFirmware(l *launch) error {
	if l.machine.Firmware != v1alpha1.FirmwareUEFI {
		return nil
	}
	code, template, err := findUEFI()
	if err != nil {
		return err
	}
	l.Firmware, l.Vars = code, varsFile
	path := m.path(varsFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		content, err := os.ReadFile(template)
		if err == nil {
			err = atomicfile.Write(path, content, atomicfile.Durable)
		}
		if err != nil {
			return fmt.Errorf("create the variables of the firmware: %w", err)
		}
	}
	if err := giveFile(path, l.User); err != nil {
		return fmt.Errorf("change the owner of the firmware's variables to the user of the machine: %w", err)
	}
	return nil
}

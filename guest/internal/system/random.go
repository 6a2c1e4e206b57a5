package system

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reseed adds entropy to the kernel's random number generator, which uses it from now on: random(4).
func Reseed(entropy []byte) error {
	if len(entropy) == 0 {
		return errors.New("reseed the random number generator: there is no entropy")
	}
	device, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("reseed the random number generator: %w", err)
	}
	defer device.Close()
	// struct rand_pool_info: the entropy in bits, the size in bytes, and the bytes.
	info := binary.NativeEndian.AppendUint32(nil, uint32(8*len(entropy))) //nolint:gosec // a few bytes
	info = binary.NativeEndian.AppendUint32(info, uint32(len(entropy)))   //nolint:gosec // a few bytes
	info = append(info, entropy...)
	if err := ioctl(device, unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0]))); err != nil {
		return fmt.Errorf("add entropy to the random number generator: %w", err)
	}
	if err := ioctl(device, unix.RNDRESEEDCRNG, 0); err != nil {
		return fmt.Errorf("reseed the random number generator: %w", err)
	}
	return nil
}

func ioctl(file *os.File, request, argument uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), request, argument); errno != 0 {
		return errno
	}
	return nil
}

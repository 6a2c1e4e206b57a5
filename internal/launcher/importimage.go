package launcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
)

const (
	// importTimeout limits the download of an image in one run: 10 GiB at 4 Mbit/s. The next run resumes it.
	importTimeout = 6 * time.Hour
	// importSteps is the number of steps in which its progress is reported.
	importSteps = 20
	// partSuffix is the suffix of a disk that is being made.
	partSuffix = ".part"
	// tableParts is the part of a disk, 1/16, that a file with all of its content may have in addition.
	tableParts = 16
)

// downloadOf returns the file for the download of the image of a disk.
func downloadOf(disk string) string { return disk + ".download" }

var errTooLarge = errors.New("the image is larger than the disk")

// importImage makes the root disk of the image at an address. A crash leaves either no disk, and a part of the download that the next
// run resumes, or a complete disk. The size of the disk limits the download.
func (l *launcher) importImage(ctx context.Context, path string) error {
	file, err := os.OpenFile(downloadOf(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	err = l.download(ctx, file)
	if err == nil {
		l.tell("the image is being converted")
		err = l.convert(ctx, file.Name(), path)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("import the image %s: %w", diskimage.WithoutPassword(l.definition.ImageURL), err)
	}
	switch {
	case diskimage.IsWrong(err), errors.Is(err, errTooLarge):
		return errors.Join(err, os.Remove(file.Name())) // its content is useless
	case isFull(err):
		return fmt.Errorf("%w. The volume of the disk needs room for the download and for the disk that is created from it; set a larger spec.resource.rootDisk", err)
	case err != nil:
		return err
	}
	return os.Remove(file.Name())
}

// download downloads and verifies the image.
func (l *launcher) download(ctx context.Context, file *os.File) error {
	l.tell("the image is being downloaded")
	disk := l.definition.DiskBytes
	download := diskimage.Download{
		Client: &http.Client{}, Address: l.definition.ImageURL, Timeout: importTimeout,
		TimedOut: fmt.Errorf("it is not complete after %v; the next attempt resumes the download", importTimeout),
		MaxBytes: disk + disk/tableParts, TooLarge: l.tooLarge, Steps: importSteps, Progress: l.tell,
	}
	if err := download.Fetch(ctx, file); err != nil {
		return err
	}
	l.tell("the image is being verified")
	return diskimage.Verify(ctx, file, l.definition.ImageSHA256)
}

func (l *launcher) tooLarge(size int64) error {
	return fmt.Errorf("%w: it has %d MiB, and the disk %d MiB; set a larger spec.resource.rootDisk", errTooLarge, size>>20, l.definition.DiskBytes>>20)
}

// convert makes a disk of a verified image. The result depends on no other file, whatever the image names.
func (l *launcher) convert(ctx context.Context, image, path string) error {
	format, err := diskimage.Examine(image, l.definition.ImageFormat)
	if err != nil {
		return err
	}
	size, err := sizeIn(image, format)
	if err != nil {
		return err
	}
	if size > l.definition.DiskBytes {
		return l.tooLarge(size)
	}
	part := path + partSuffix
	if err := qemuImg(ctx, "convert", "-q", "-f", format, "-O", diskimage.Qcow2, image, part); err != nil {
		return err
	}
	if err := qemuImg(ctx, "resize", "-q", "-f", diskimage.Qcow2, part, strconv.FormatInt(l.definition.DiskBytes, 10)); err != nil {
		return err
	}
	return atomicfile.Place(part, path)
}

// isFull reports whether an error, of this program or of qemu-img, means that a volume is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		err != nil && (strings.Contains(err.Error(), "No space left on device") || strings.Contains(err.Error(), "Disk quota exceeded"))
}

// sizeIn returns the size that a guest sees of an image.
func sizeIn(image, format string) (int64, error) {
	if format == diskimage.Qcow2 {
		return virtualSize(image)
	}
	info, err := os.Stat(image)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// tell reports the progress to the manager and in the log.
func (l *launcher) tell(progress string) {
	l.ready.setProgress(progress)
	_, _ = fmt.Fprintln(l.messages, progress) // a message only
}

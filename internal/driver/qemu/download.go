package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
)

// source is the address and the expected digest of an image.
type source struct{ address, digest string }

// part returns the name of the file for a partial download. Sources do not share it: a server that sends wrong data
// spoils only its own file.
func (s source) part() string {
	sum := sha256.Sum256([]byte(s.address))
	return s.digest + "." + hex.EncodeToString(sum[:16]) + partSuffix
}

// download fetches the missing part of a file, verifies all of it, and only then publishes it.
func (i *images) download(ctx context.Context, from source, progress func(string)) error {
	part, err := os.OpenFile(filepath.Join(i.dir, from.part()), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer part.Close()
	progress("the image is being downloaded")
	err = i.makeRoom()
	if err == nil {
		err = i.fetch(ctx, from.address, part, progress)
	}
	switch {
	case errors.Is(err, errArrived), errors.Is(err, errTooLarge):
		return errors.Join(err, os.Remove(part.Name())) // its content is useless
	case err != nil:
		return err // the partial download stays; the next attempt resumes it
	}
	step("image downloaded")
	progress("the image is being verified")
	if err := diskimage.Verify(ctx, part, from.digest); diskimage.IsWrong(err) {
		return errors.Join(err, os.Remove(part.Name()))
	} else if err != nil {
		return err
	}
	if err := i.publish(part.Name(), from.digest); err != nil {
		return err
	}
	step("image published")
	return nil
}

// publish renames a verified file to its digest.
func (i *images) publish(part, digest string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	path := filepath.Join(i.dir, digest)
	if _, err := os.Stat(path); err == nil {
		// Machines may already use the file.
		return errors.Join(errArrived, os.Remove(part))
	}
	return atomicfile.Place(part, path)
}

// fetch downloads the missing part of a file. A server does not have to announce the size of its response: a file that becomes too
// large ends its download, and so does the size of all partial downloads together.
func (i *images) fetch(ctx context.Context, address string, part *os.File, progress func(string)) error {
	download := diskimage.Download{
		Client: i.client, Address: address, Timeout: i.timeout, TimedOut: fmt.Errorf(
			"it is not complete after %v, the limit of virtualMachines.imageTimeout; the next attempt resumes the download", i.timeout),
		MaxBytes: i.limit, TooLarge: i.tooLarge, Steps: progressSteps, Progress: progress,
	}
	if i.limit > 0 {
		download.Check = i.makeRoom
	}
	return download.Fetch(ctx, part)
}

var errTooLarge = errors.New("the image is too large")

func (i *images) tooLarge(size int64) error {
	return fmt.Errorf("%w: %d MiB or more, and virtualMachines.imageMaxSize allows %d MiB", errTooLarge, size>>20, i.limit>>20)
}

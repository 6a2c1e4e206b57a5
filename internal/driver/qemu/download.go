package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
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
	if _, err := part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, part); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != from.digest {
		return errors.Join(fmt.Errorf("its digest is %s, but sha256 is %s", got, from.digest), os.Remove(part.Name()))
	}
	if err := part.Sync(); err != nil {
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
	if err := os.Rename(part, path); err != nil {
		return err
	}
	return atomicfile.SyncDir(i.dir)
}

// fetch downloads the missing part of a file.
func (i *images) fetch(ctx context.Context, address string, part *os.File, progress func(string)) (err error) {
	ctx, stop := context.WithTimeoutCause(ctx, i.timeout, fmt.Errorf(
		"it is not complete after %v, the limit of --vm-image-timeout; the next attempt resumes the download", i.timeout))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	have, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	response, err := i.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // read as far as needed
	switch response.StatusCode {
	case http.StatusPartialContent:
	case http.StatusRequestedRangeNotSatisfiable:
		return nil // nothing is missing; the digest verifies that
	case http.StatusOK:
		// The server sends the whole file: start over.
		if have > 0 {
			err = restart(part)
		}
		if have = 0; err != nil {
			return err
		}
	default:
		return fmt.Errorf("the server responded with %s", response.Status)
	}
	stalled := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no data received for %v", stallTimeout)) })
	defer stalled.Stop()
	total := response.ContentLength + have
	if i.limit > 0 && total > i.limit {
		return i.tooLarge(total)
	}
	_, err = io.Copy(part, &meter{from: i.limited(response.Body, have), read: have, total: total, progress: progress, alive: func() { stalled.Reset(stallTimeout) }})
	return err
}

// restart truncates a file.
func restart(file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return file.Truncate(0)
}

var errTooLarge = errors.New("the image is too large")

func (i *images) tooLarge(size int64) error {
	return fmt.Errorf("%w: %d MiB or more, and --vm-image-max-size allows %d MiB", errTooLarge, size>>20, i.limit>>20)
}

// limited returns a reader that fails when a file of have bytes, or all partial downloads together, become too large. A
// server does not have to announce the size of its response.
func (i *images) limited(from io.Reader, have int64) io.Reader {
	if i.limit == 0 {
		return from
	}
	return &limitedReader{from: from, read: have, looked: have, images: i}
}

type limitedReader struct {
	from   io.Reader
	read   int64
	looked int64 // number of bytes read at the last check of all partial downloads
	images *images
}

// Read implements io.Reader.
func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if l.read += int64(n); l.read > l.images.limit {
		return 0, l.images.tooLarge(l.read)
	}
	if l.read-l.looked >= sizeCheckInterval {
		l.looked = l.read
		if err := l.images.makeRoom(); err != nil {
			return 0, err
		}
	}
	return n, err
}

// meter reports the progress of a download.
type meter struct {
	from     io.Reader
	read     int64
	total    int64 // less than read if unknown
	reported int64
	progress func(string)
	alive    func()
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if n > 0 {
		m.alive()
	}
	m.read += int64(n)
	if m.total >= m.read && m.total > 0 {
		if part := m.read * progressSteps / m.total; part > m.reported {
			m.reported = part
			m.progress(fmt.Sprintf("the image is being downloaded, %d %% of %d MiB", part*100/progressSteps, m.total>>20))
		}
	}
	return n, err
}

package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

const (
	// stallTimeout is how long a download may give nothing.
	stallTimeout = 30 * time.Second
	// progressSteps is into how many parts the progress of a download is told.
	progressSteps = 4
)

// images are the disk images that were downloaded, each once, by its digest.
type images struct {
	dir    string
	tool   string
	client *http.Client
	// limit is how many bytes an image may have; 0 is no limit.
	limit int64

	mu   sync.Mutex
	busy map[string]chan struct{}
}

func newImages(dir, tool string, from guard, limit int64) *images {
	return &images{dir: dir, tool: tool, client: from.newClient(), limit: limit, busy: map[string]chan struct{}{}}
}

// resolveImage returns the disk image of a machine, downloaded if need be; nil if it boots
// a kernel.
func (d *Driver) resolveImage(ctx context.Context, image *v1alpha1.Image, progress func(string)) (*baseImage, error) {
	switch {
	case image == nil:
		_, err := readGuest(d.options.GuestDir)
		return nil, err
	case image.Kernel != "":
		return nil, nil
	}
	var path string
	if image.URL == "" {
		var err error
		if path, err = d.file("path", image.Path); err != nil {
			return nil, err
		}
	} else {
		var err error
		if path, err = d.images.get(ctx, image.URL, image.Sha256, progress); err != nil {
			return nil, err
		}
	}
	format, err := examine(path, image.Format)
	if err != nil {
		return nil, fmt.Errorf("read the image %s: %w", path, err)
	}
	info, err := inspect(ctx, d.imageTool, path, format)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the image: %w", err)
	case info.Backing != "" || info.Specific.Data.DataFile != "":
		// Whoever may name an image could read any file of the host that way.
		return nil, fmt.Errorf("read the image %s: %w", path, errOtherFile)
	}
	return &baseImage{Path: path, Format: format}, nil
}

// withoutPassword returns an address as others may read it.
func withoutPassword(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "" // what is no address cannot be shown without what is in it
	}
	return parsed.Redacted()
}

// get returns the file with that digest, from the address if it is not here yet. Several
// callers download it once.
func (i *images) get(ctx context.Context, address, digest string, progress func(string)) (string, error) {
	path := filepath.Join(i.dir, digest)
	for {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		i.mu.Lock()
		other, busy := i.busy[digest]
		if !busy {
			i.busy[digest] = make(chan struct{})
		}
		i.mu.Unlock()
		if !busy {
			break
		}
		progress("the image is being downloaded for another machine")
		select {
		case <-other:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		close(i.busy[digest])
		delete(i.busy, digest)
	}()
	if err := i.download(ctx, address, digest, path, progress); err != nil {
		return "", fmt.Errorf("download the image %s: %w", withoutPassword(address), err)
	}
	return path, nil
}

// download fetches what is missing of a file, verifies the whole, and gives it its name
// only then.
func (i *images) download(ctx context.Context, address, digest, path string, progress func(string)) error {
	part, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer part.Close()
	progress("the image is being downloaded")
	if err := i.fetch(ctx, address, part, progress); err != nil {
		return err // what is there stays, and the next attempt goes on
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
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return errors.Join(fmt.Errorf("its digest is %s, and spec.image.sha256 says %s", got, digest), os.Remove(part.Name()))
	}
	if err := part.Sync(); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return err
	}
	return syncDir(i.dir)
}

// fetch appends to a file what it lacks of what the address gives.
func (i *images) fetch(ctx context.Context, address string, part *os.File, progress func(string)) error {
	have, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
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
	defer func() { _ = response.Body.Close() }() // it was read as far as it is wanted
	switch response.StatusCode {
	case http.StatusPartialContent:
	case http.StatusRequestedRangeNotSatisfiable:
		return nil // there is no more; the digest tells whether that is all
	case http.StatusOK:
		if have == 0 {
			break
		}
		// The server sends the whole: what we have is of no use.
		if have, err = 0, part.Truncate(0); err != nil {
			return err
		}
		if _, err := part.Seek(0, io.SeekStart); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the server answers %s", response.Status)
	}
	stalled := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("nothing came for %v", stallTimeout)) })
	defer stalled.Stop()
	total := response.ContentLength + have
	if i.limit > 0 && total > i.limit {
		return i.tooLarge(total)
	}
	_, err = io.Copy(part, &meter{from: i.limited(response.Body, have), read: have, total: total, progress: progress, alive: func() { stalled.Reset(stallTimeout) }})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if errors.Is(err, errTooLarge) {
		// What is there is of no use, and there is a lot of it.
		err = errors.Join(err, part.Truncate(0))
	}
	return err
}

var errTooLarge = errors.New("the image is too large")

func (i *images) tooLarge(size int64) error {
	return fmt.Errorf("%w: %d MiB or more, and --vm-image-max-size allows %d MiB", errTooLarge, size>>20, i.limit>>20)
}

// limited returns a reader that fails when a file that has so many bytes gets too large. A server need not say before how
// much it will send.
func (i *images) limited(from io.Reader, have int64) io.Reader {
	if i.limit == 0 {
		return from
	}
	return &limitedReader{from: from, read: have, images: i}
}

type limitedReader struct {
	from   io.Reader
	read   int64
	images *images
}

// Read implements io.Reader.
func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if l.read += int64(n); l.read > l.images.limit {
		return 0, l.images.tooLarge(l.read)
	}
	return n, err
}

// meter tells how far a download is.
type meter struct {
	from     io.Reader
	read     int64
	total    int64 // less than read if it is not known
	told     int64
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
		if part := m.read * progressSteps / m.total; part > m.told {
			m.told = part
			m.progress(fmt.Sprintf("the image is being downloaded, %d %% of %d MiB", part*100/progressSteps, m.total>>20))
		}
	}
	return n, err
}

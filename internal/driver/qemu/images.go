package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/egress"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

const (
	// stallTimeout limits the time until a server responds.
	stallTimeout = 30 * time.Second
	// downloadTimeout is the default of Options.ImageTimeout: 10 GiB at 4 Mbit/s.
	downloadTimeout = 6 * time.Hour
	// maxDownloads and maxDownloadsOfNamespace limit concurrent downloads. A slow server delays the
	// namespace that uses it, not the others.
	maxDownloads            = 16
	maxDownloadsOfNamespace = 2
	// progressSteps is the number of steps in which the progress of a download is reported.
	progressSteps = 4
)

// images are the downloaded disk images, by digest.
type images struct {
	dir    string
	client *http.Client
	// limit is the largest size of an image in bytes; 0 is no limit.
	limit   int64
	timeout time.Duration
	// keep is the time that an unused image is kept; 0 means indefinitely.
	keep time.Duration

	mu        sync.Mutex
	downloads map[source]*download
	// changed is closed and replaced whenever a download ends.
	changed chan struct{}
}

// download is a download in progress.
type download struct {
	namespace string
	cancel    context.CancelCauseFunc
	// done is closed at the end. err is set before, unless the caller was cancelled or the image
	// came from another source.
	done chan struct{}
	err  error
}

func newImages(dir string, options Options) *images {
	return &images{
		dir: dir, client: egress.Filter{Networks: options.ImageNetworks}.NewClient("virtualMachines.imageNetworks", stallTimeout),
		limit: options.MaxImageBytes, timeout: cmp.Or(options.ImageTimeout, downloadTimeout), keep: options.ImageKeep,
		downloads: map[source]*download{}, changed: make(chan struct{}),
	}
}

// resolveImage returns the disk image of a machine, downloaded if necessary; nil if it boots a
// kernel.
func (d *Driver) resolveImage(ctx context.Context, namespace string, image *v1alpha1.Image, progress func(string)) (*qemu.Image, error) {
	switch {
	case image == nil:
		_, err := guestimage.Read(d.options.GuestDir)
		return nil, err
	case image.Kernel != "", image.Empty:
		return nil, nil
	}
	var path string
	if image.URL == "" {
		var err error
		if path, err = d.file(fieldOf(image, "path"), image.Path); err != nil {
			return nil, err
		}
	} else {
		var err error
		if path, err = d.images.get(ctx, namespace, image.URL, image.Sha256, progress); err != nil {
			return nil, err
		}
		if err := d.users.share(path); err != nil {
			return nil, err
		}
	}
	format, err := diskimage.Examine(path, image.Format)
	if err != nil {
		return nil, fmt.Errorf("read the image %s: %w", path, err)
	}
	info, err := d.inspect(ctx, path, format)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the image: %w", err)
	case info.Backing != "" || info.Specific.Data.DataFile != "":
		// Otherwise an image could expose any file of the host.
		return nil, fmt.Errorf("read the image %s: %w", path, diskimage.ErrOtherFile)
	}
	return &qemu.Image{Path: path, Format: format}, nil
}

// errArrived cancels a download whose image has arrived from another source.
var errArrived = errors.New("the image has arrived from another source")

// get returns the file with that digest, downloaded from the address if necessary. Callers with the
// same source share one download. Callers with other sources download in parallel; the first
// verified image serves all.
func (i *images) get(ctx context.Context, namespace, address, digest string, progress func(string)) (string, error) {
	from, path := source{address, digest}, filepath.Join(i.dir, digest)
	for {
		i.mu.Lock()
		_, err := os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) {
			_ = os.Chtimes(path, time.Now(), time.Now()) // collect repeats it and reports an error
			i.mu.Unlock()
			return path, err
		}
		d, changed := i.downloads[from], i.changed
		begins := d == nil && i.canStart(namespace)
		downloading := ctx
		if begins {
			d = &download{namespace: namespace, done: make(chan struct{})}
			downloading, d.cancel = context.WithCancelCause(ctx)
			i.downloads[from] = d
		}
		i.mu.Unlock()
		switch {
		case begins:
			err = i.download(downloading, from, progress)
			i.finish(ctx, d, from, err)
			if err != nil && !errors.Is(err, errArrived) {
				return "", failedDownload(address, err)
			}
			continue
		case d != nil:
			progress("the image is being downloaded for another machine")
			changed = d.done
		default:
			progress("the image download is waiting for others")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if d != nil && d.err != nil {
			return "", failedDownload(address, d.err)
		}
	}
}

func failedDownload(address string, err error) error {
	return fmt.Errorf("download the image %s: %w", diskimage.WithoutPassword(address), err)
}

// canStart reports whether a download for a namespace may start; i.mu is held.
func (i *images) canStart(namespace string) bool {
	own := 0
	for _, d := range i.downloads {
		if d.namespace == namespace {
			own++
		}
	}
	return own < maxDownloadsOfNamespace && len(i.downloads) < maxDownloads
}

// finish records the result of a download. ctx is the context of the caller that ran it.
func (i *images) finish(ctx context.Context, d *download, from source, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if ctx.Err() == nil && !errors.Is(err, errArrived) {
		d.err = err
	}
	d.cancel(nil)
	delete(i.downloads, from)
	if err == nil {
		for other, running := range i.downloads {
			if other.digest == from.digest {
				running.cancel(errArrived)
			}
		}
	}
	close(d.done)
	close(i.changed)
	i.changed = make(chan struct{})
}

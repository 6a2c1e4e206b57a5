package diskimage

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
	"time"
)

const (
	// stallTimeout limits the time without data from a server.
	stallTimeout = 30 * time.Second
	// CheckInterval is the number of bytes that a download reads between two calls of Download.Check.
	CheckInterval = 16 << 20
)

// Download is a download into a file.
type Download struct {
	Client  *http.Client
	Address string
	// Timeout limits the download. TimedOut is the error then.
	Timeout  time.Duration
	TimedOut error
	// MaxBytes limits the file; 0 is no limit. TooLarge returns the error for a file of size bytes or more.
	MaxBytes int64
	TooLarge func(size int64) error
	// Check is called from time to time, if it is set. Its error ends the download.
	Check func() error
	// Steps is the number of steps in which Progress is told of the progress.
	Steps    int64
	Progress func(string)
}

// Fetch downloads the missing part of a file. After an error, the file has what has arrived, and the next Fetch resumes it.
func (d *Download) Fetch(ctx context.Context, part *os.File) (err error) {
	ctx, stop := context.WithTimeoutCause(ctx, d.Timeout, d.TimedOut)
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.Address, nil)
	if err != nil {
		return err
	}
	if have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	response, err := d.Client.Do(request)
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
	if d.MaxBytes > 0 && total > d.MaxBytes {
		return d.TooLarge(total)
	}
	_, err = io.Copy(part, &meter{Download: d, from: response.Body, read: have, checked: have, total: total, alive: func() { stalled.Reset(stallTimeout) }})
	return err
}

// restart truncates a file.
func restart(file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return file.Truncate(0)
}

// meter reads a response: it limits its size, which a server does not have to announce, and reports the progress.
type meter struct {
	*Download
	from     io.Reader
	read     int64
	checked  int64 // number of bytes read at the last Check
	total    int64 // less than read if unknown
	reported int64
	alive    func()
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if n > 0 {
		m.alive()
	}
	if m.read += int64(n); m.MaxBytes > 0 && m.read > m.MaxBytes {
		return 0, m.TooLarge(m.read)
	}
	if m.Check != nil && m.read-m.checked >= CheckInterval {
		m.checked = m.read
		if err := m.Check(); err != nil {
			return 0, err
		}
	}
	if m.total >= m.read && m.total > 0 {
		if part := m.read * m.Steps / m.total; part > m.reported {
			m.reported = part
			m.Progress(fmt.Sprintf("the image is being downloaded, %d %% of %d MiB", part*100/m.Steps, m.total>>20))
		}
	}
	return n, err
}

// WrongDigest is the digest of a file that should have another one.
type WrongDigest struct{ Got, Want string }

// Error implements error.
func (e WrongDigest) Error() string {
	return fmt.Sprintf("its digest is %s, but sha256 is %s", e.Got, e.Want)
}

// Verify reads a file whole, and compares its SHA-256 digest. The error is a WrongDigest if it differs.
func Verify(ctx context.Context, file *os.File, digest string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, readerUntil{ctx, file}); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return WrongDigest{got, digest}
	}
	return nil
}

// readerUntil reads until the end of a context.
type readerUntil struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (r readerUntil) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// IsWrong reports whether an error means that what was downloaded is useless, so that the next attempt must not resume it.
func IsWrong(err error) bool { return errors.As(err, new(WrongDigest)) }

// WithoutPassword returns an address without its password.
func WithoutPassword(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "" // an unparsable address could contain a password anywhere
	}
	return parsed.Redacted()
}

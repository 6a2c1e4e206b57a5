package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// rotatedLogs is the number of rotated logs that package process keeps.
	rotatedLogs = 2
	// followInterval is how often a follower looks for new output.
	followInterval = 200 * time.Millisecond
	// tailBlock is how much of a log is searched for lines at a time.
	tailBlock = 32 << 10
)

// logReader reads a log with its rotated predecessors. A rotation copies the log to the first of them and truncates it.
type logReader struct {
	ctx    context.Context
	path   string
	follow bool
	// parts are what is still to be read of older files, oldest first.
	parts []logPart
	// current is the log, nil if there is none yet; offset is what was read of it, and limit its end unless it is
	// followed.
	current *os.File
	offset  int64
	limit   int64
}

// logPart is a range of a file.
type logPart struct {
	file *os.File
	from int64
	to   int64
}

// openLog opens the log at path.
func openLog(ctx context.Context, path string, options backend.LogOptions) (*logReader, error) {
	r := &logReader{ctx: ctx, path: path, follow: options.Follow}
	for i := rotatedLogs; i >= 0; i-- {
		name := path
		if i > 0 {
			name = rotated(path, i)
		}
		p, err := openPart(name)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		if p.file != nil {
			r.parts = append(r.parts, p)
		}
	}
	if options.Tail >= 0 {
		if err := r.skipTo(options.Tail); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if last := len(r.parts) - 1; last >= 0 && r.parts[last].file.Name() == path {
		r.current, r.offset, r.limit = r.parts[last].file, r.parts[last].from, r.parts[last].to
		r.parts = r.parts[:last]
	}
	return r, nil
}

func rotated(path string, i int) string { return fmt.Sprintf("%s.%d", path, i) }

// openPart opens a whole file; one that does not exist is the zero value.
func openPart(name string) (logPart, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return logPart{}, nil
	}
	if err != nil {
		return logPart{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return logPart{}, errors.Join(err, file.Close())
	}
	return logPart{file: file, to: info.Size()}, nil
}

// skipTo skips all but the last lines.
func (r *logReader) skipTo(lines int) error {
	for i := len(r.parts) - 1; i >= 0; i-- {
		p := &r.parts[i]
		if p.to == 0 {
			continue
		}
		if i == len(r.parts)-1 || r.parts[i+1].to == 0 {
			// The newline at the end does not begin another line.
			last := make([]byte, 1)
			if _, err := p.file.ReadAt(last, p.to-1); err != nil {
				return err
			}
			if last[0] == '\n' {
				lines++
			}
		}
		var err error
		if p.from, lines, err = findLine(p.file, p.to, lines); err != nil {
			return err
		}
		if lines == 0 {
			for j := range r.parts[:i] {
				r.parts[j].from = r.parts[j].to
			}
			return nil
		}
	}
	return nil
}

// findLine returns the offset after that many newlines, from the end; with fewer, 0 and how many are missing.
func findLine(file io.ReaderAt, end int64, newlines int) (int64, int, error) {
	block := make([]byte, tailBlock)
	for newlines > 0 && end > 0 {
		begin := max(0, end-tailBlock)
		got := block[:end-begin]
		if _, err := file.ReadAt(got, begin); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		at := bytes.LastIndexByte(got, '\n')
		if at < 0 {
			end = begin
			continue
		}
		newlines--
		if newlines == 0 {
			return begin + int64(at) + 1, 0, nil
		}
		end = begin + int64(at)
	}
	return end, newlines, nil
}

// Read implements io.Reader.
func (r *logReader) Read(into []byte) (int, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		if n, err := r.readNow(into); n > 0 || err != nil {
			return n, err
		}
		if !r.follow {
			return 0, io.EOF
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(followInterval):
		}
	}
}

// readNow reads what there is; nothing if that was read already.
func (r *logReader) readNow(into []byte) (int, error) {
	for len(r.parts) > 0 {
		p := &r.parts[0]
		if n, err := p.file.ReadAt(into[:min(int64(len(into)), p.to-p.from)], p.from); n > 0 {
			p.from += int64(n)
			return n, nil
		} else if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		_ = p.file.Close() // it was only read
		r.parts = r.parts[1:]
	}
	if r.current == nil {
		if !r.follow {
			return 0, nil
		}
		p, err := openPart(r.path)
		if err != nil || p.file == nil {
			return 0, err
		}
		r.current = p.file
	}
	if r.follow {
		if err := r.afterRotation(); err != nil {
			return 0, err
		}
		if len(r.parts) > 0 {
			return r.readNow(into)
		}
	} else {
		into = into[:min(int64(len(into)), max(0, r.limit-r.offset))]
	}
	n, err := r.current.ReadAt(into, r.offset)
	r.offset += int64(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// afterRotation continues with the copy of a log that was truncated, and then at its new beginning.
func (r *logReader) afterRotation() error {
	info, err := r.current.Stat()
	if err != nil || info.Size() >= r.offset {
		return err
	}
	p, err := openPart(rotated(r.path, 1))
	if err != nil {
		return err
	}
	if p.file != nil {
		p.from = min(r.offset, p.to)
		r.parts = append(r.parts, p)
	}
	r.offset = 0
	return nil
}

// Close implements io.Closer.
func (r *logReader) Close() error {
	for _, p := range r.parts {
		_ = p.file.Close() // it was only read
	}
	r.parts = nil
	if r.current != nil {
		_ = r.current.Close() // it was only read
	}
	return nil
}

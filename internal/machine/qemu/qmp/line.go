package qmp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// readLine returns a line of at most limit bytes. A short line is valid only until the next read;
// callers that keep it copy it, as json does.
func readLine(reader *bufio.Reader, limit int) ([]byte, error) {
	line, err := reader.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return unexpected(line, err)
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = reader.ReadSlice('\n')
		if len(long)+len(line) > limit {
			return nil, fmt.Errorf("message of more than %d bytes", limit)
		}
		long = append(long, line...)
	}
	return unexpected(long, err)
}

// unexpected turns an end in the middle of a line into io.ErrUnexpectedEOF.
func unexpected(line []byte, err error) ([]byte, error) {
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return line, err
}

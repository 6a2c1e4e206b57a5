package qmp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// readLine returns a line of at most so many bytes. It is valid until the next one is read
// only if it is short; what keeps it, copies it, as json does.
func readLine(reader *bufio.Reader, limit int) ([]byte, error) {
	line, err := reader.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return unexpected(line, err)
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = reader.ReadSlice('\n')
		if len(long)+len(line) > limit {
			return nil, fmt.Errorf("a message of more than %d bytes", limit)
		}
		long = append(long, line...)
	}
	return unexpected(long, err)
}

// unexpected makes the end in the middle of a line an error of its own.
func unexpected(line []byte, err error) ([]byte, error) {
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return line, err
}

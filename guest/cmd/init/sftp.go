package main

import (
	"errors"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// serveFiles serves SFTP on standard input and output. It is a program of its own, so that a mistake in it does not end
// the first process.
func serveFiles() error {
	server, err := sftp.NewServer(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout})
	if err != nil {
		return err
	}
	if err := server.Serve(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Package snapshotfile reads snapshots of etcd. Who administers a cluster can write anything into its etcd, also what bbolt cannot read, so a
// process of this program with few rights reads the database.
package snapshotfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/sandbox"
)

// Inspect verifies the SHA-256 sum that etcd has appended to the database in a snapshot, and returns the revision of its last write.
func Inspect(ctx context.Context, path string) (revision int64, err error) {
	if err := verifySum(path); err != nil {
		return 0, fmt.Errorf("verify the snapshot: %w", err)
	}
	var output bytes.Buffer
	if err := run(ctx, verbRevision, path, &output); err != nil {
		return 0, err
	}
	return strconv.ParseInt(output.String(), 10, 64)
}

// ReadObjects calls a function with a stream of all objects in a snapshot, as keelson-kube etcd-load reads them, and returns why one of both
// has failed. What has a lease, such as events, would have expired soon, and is left out.
func ReadObjects(ctx context.Context, path string, read func(io.Reader) error) error {
	objects, send := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := run(ctx, verbObjects, path, send)
		send.CloseWithError(err)
		sent <- err
	}()
	err := read(objects)
	_ = objects.Close() // which ends the function above
	if cause := <-sent; cause != nil && !errors.Is(cause, io.ErrClosedPipe) {
		return cause
	}
	return err
}

// Limits of the process that reads a database.
const (
	maxMemory  = 2 << 30 // bytes, apart from the database itself
	maxSeconds = 600     // of processor time
)

// run runs this program in its role.
func run(ctx context.Context, verb, path string, stdout io.Writer) error {
	spec := &sandbox.Spec{
		NoConnect: true, Argv0: Name, Read: []string{"/proc/self"},
		Limits: []sandbox.Limit{{Resource: unix.RLIMIT_CORE}, {Resource: unix.RLIMIT_DATA, Value: maxMemory}, {Resource: unix.RLIMIT_CPU, Value: maxSeconds}},
	}
	file := spec.Open(path, sandbox.ReadOnly)
	program, argv := spec.Command("/proc/self/exe", verb, sandbox.FDPath(file))
	var stderr bytes.Buffer
	reader := exec.CommandContext(ctx, program)
	reader.Args, reader.Env, reader.Stdout, reader.Stderr = argv, []string{}, stdout, &stderr
	err := reader.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &exit) && exit.ExitCode() == exitUnreadable:
		return errors.New(strings.TrimSpace(stderr.String()))
	case err != nil:
		return fmt.Errorf("the snapshot cannot be read: %w: %s", err, firstLine(stderr.String()))
	}
	return nil
}

// firstLine returns the first line of what a process has said before it ended by a fault.
func firstLine(said string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return line
}

// verifySum compares the content of a snapshot with the sum at its end.
func verifySum(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - sha256.Size
	if size <= 0 || size%512 != 0 { // as etcd checks it
		return fmt.Errorf("it is cut off after %d bytes", info.Size())
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, file, size); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(file, want); err != nil {
		return err
	}
	if !bytes.Equal(want, sum.Sum(nil)) {
		return errors.New("its content does not have the sum that etcd has written")
	}
	return nil
}

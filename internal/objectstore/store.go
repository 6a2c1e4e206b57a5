// Package objectstore keeps objects off this host, in a directory such as a mounted file system, or in a bucket of a server of the S3
// protocol. An object appears as a whole or not at all.
package objectstore

import (
	"context"
	"errors"
	"io"
)

// ErrNotFound means that the store does not have the object.
var ErrNotFound = errors.New("the store does not have it")

// Store keeps objects by their names, which are paths with slashes. Its methods are for several goroutines. They may be repeated after
// a crash, and several programs may write an object at the same time: one of them wins.
type Store interface {
	// Location returns where an object or several with a common path are, for people. It contains no credentials.
	Location(name string) string
	// Put writes an object of the size in bytes, and replaces the one before. It returns when the object is durable.
	Put(ctx context.Context, name string, content io.Reader, size int64) error
	// Get opens an object. It returns ErrNotFound if there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete deletes an object and what is left of a Put that was interrupted. It is not an error if there is neither.
	Delete(ctx context.Context, name string) error
}

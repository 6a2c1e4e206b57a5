// Package etcdfile makes snapshots of etcd for tests, without etcd.
package etcdfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
)

// Write is a write in the database.
type Write struct {
	Revision   uint64
	Key, Value string
	// Lease is true for a key that expires, Deleted for the deletion of a key.
	Lease, Deleted bool
}

// New returns a snapshot whose database has writes in a bucket: "key" in that of etcd.
func New(t *testing.T, bucket string, writes ...Write) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(bucket))
		for _, w := range writes {
			name := append(binary.BigEndian.AppendUint64(nil, w.Revision), "_\x00\x00\x00\x00\x00\x00\x00\x00"...)
			if w.Deleted {
				name = append(name, 't')
			}
			err = errors.Join(err, b.Put(name, w.message()))
		}
		return err
	})
	content, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr, db.Close()); err != nil {
		t.Fatal(err)
	}
	return WithSum(content)
}

// message returns the write as a message mvccpb.KeyValue.
func (w Write) message() []byte {
	message := protowire.AppendTag(nil, 1, protowire.BytesType)
	message = protowire.AppendString(message, w.Key)
	message = protowire.AppendTag(message, 3, protowire.VarintType)
	message = protowire.AppendVarint(message, w.Revision)
	message = protowire.AppendTag(message, 5, protowire.BytesType)
	message = protowire.AppendString(message, w.Value)
	if w.Lease {
		message = protowire.AppendTag(message, 6, protowire.VarintType)
		message = protowire.AppendVarint(message, 1)
	}
	return message
}

// WithSum returns the content with the sum that etcd appends.
func WithSum(content []byte) []byte {
	sum := sha256.Sum256(content)
	return append(content, sum[:]...)
}

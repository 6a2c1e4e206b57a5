package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
)

// InspectSnapshot verifies the SHA-256 sum that etcd has appended to the database in a snapshot, and returns the revision of its last write.
func InspectSnapshot(path string) (revision int64, err error) {
	if err := verifySum(path); err != nil {
		return 0, fmt.Errorf("verify the snapshot: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, fmt.Errorf("open the snapshot: %w", err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		writes := tx.Bucket([]byte("key"))
		if writes == nil {
			return errors.New("it is no database of etcd: it has no bucket \"key\"")
		}
		// The name of a write begins with its revision, in 8 bytes.
		if name, _ := writes.Cursor().Last(); len(name) >= 8 {
			revision = int64(binary.BigEndian.Uint64(name))
		}
		return nil
	})
	return revision, errors.Join(err, db.Close())
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

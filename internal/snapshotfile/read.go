package snapshotfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
)

// revisionOf returns the revision of the last write in the database of a snapshot.
func revisionOf(path string) (revision int64, err error) {
	err = viewWrites(path, func(writes *bbolt.Bucket) error {
		if name, _ := writes.Cursor().Last(); len(name) >= revisionSize {
			revision = int64(binary.BigEndian.Uint64(name))
		}
		return nil
	})
	return revision, err
}

// The name of a write in the database begins with its revision, 8 bytes for that of the transaction, '_', and 8 bytes for the position in it.
// That of a deletion has a 't' at the end. The value is a message mvccpb.KeyValue with these fields.
const (
	revisionSize = 17
	fieldKey     = 1
	fieldValue   = 5
	fieldLease   = 6
)

// viewWrites calls a function with the writes in the database of a snapshot.
func viewWrites(path string, view func(*bbolt.Bucket) error) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open the snapshot: %w", err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		writes := tx.Bucket([]byte("key"))
		if writes == nil {
			return errors.New("it is no database of etcd: it has no bucket \"key\"")
		}
		return view(writes)
	})
	return errors.Join(err, db.Close())
}

// objectsPrefix begins the keys of the objects of kube-apiserver.
const objectsPrefix = "/registry/"

// writeObjects writes the objects in the database of a snapshot.
func writeObjects(path string, to io.Writer) error {
	return viewWrites(path, func(writes *bbolt.Bucket) error {
		last := map[string][]byte{} // the name of the last write of each key
		err := writes.ForEach(func(name, value []byte) error {
			write, err := parseWrite(value)
			switch {
			case err != nil:
				return err
			case len(name) > revisionSize || write.lease:
				delete(last, string(write.key))
			case bytes.HasPrefix(write.key, []byte(objectsPrefix)):
				last[string(write.key)] = name
			}
			return nil
		})
		if err != nil {
			return err
		}
		out := bufio.NewWriter(to)
		for _, key := range slices.Sorted(maps.Keys(last)) {
			write, err := parseWrite(writes.Get(last[key]))
			if err != nil {
				return err
			}
			for _, field := range [][]byte{write.key, write.value} {
				_, _ = out.Write(binary.AppendUvarint(nil, uint64(len(field)))) // Flush reports the first error
				_, _ = out.Write(field)
			}
		}
		_ = out.WriteByte(0)
		return out.Flush()
	})
}

// write is a write in the database of etcd.
type write struct {
	key, value []byte
	lease      bool
}

// parseWrite reads a message mvccpb.KeyValue.
func parseWrite(message []byte) (found write, err error) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return found, fmt.Errorf("a write in the snapshot is damaged: %w", protowire.ParseError(size))
		}
		message = message[size:]
		switch {
		case kind == protowire.BytesType && (number == fieldKey || number == fieldValue):
			var content []byte
			if content, size = protowire.ConsumeBytes(message); number == fieldKey {
				found.key = content
			} else {
				found.value = content
			}
		case kind == protowire.VarintType && number == fieldLease:
			var lease uint64
			lease, size = protowire.ConsumeVarint(message)
			found.lease = lease != 0
		default:
			size = protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 {
			return found, fmt.Errorf("a write in the snapshot is damaged: %w", protowire.ParseError(size))
		}
		message = message[size:]
	}
	return found, nil
}

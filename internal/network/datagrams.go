package network

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// maxDatagram is the largest datagram of UDP over IPv4.
const maxDatagram = 65507

// datagrams carries datagrams over a stream: each has its length before it, in two bytes.
type datagrams struct {
	net.Conn

	reading, writing sync.Mutex
	read, write      []byte
}

func newDatagrams(stream net.Conn) *datagrams { return &datagrams{Conn: stream} }

// Read returns one datagram. What does not fit is lost, as with a socket. A deadline that ends it within a datagram ends the
// connection: what followed would be out of step.
func (d *datagrams) Read(b []byte) (int, error) {
	d.reading.Lock()
	defer d.reading.Unlock()
	var length [2]byte
	if n, err := io.ReadFull(d.Conn, length[:]); n > 0 && err != nil {
		return 0, io.ErrUnexpectedEOF
	} else if err != nil {
		return 0, err
	}
	size := int(binary.BigEndian.Uint16(length[:]))
	if cap(d.read) < size {
		d.read = make([]byte, size)
	}
	if _, err := io.ReadFull(d.Conn, d.read[:size]); err != nil {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(b, d.read[:size]), nil
}

// Write sends one datagram.
func (d *datagrams) Write(b []byte) (int, error) {
	if len(b) > maxDatagram {
		return 0, fmt.Errorf("a datagram of %d bytes: the maximum is %d", len(b), maxDatagram)
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	d.write = binary.BigEndian.AppendUint16(d.write[:0], uint16(len(b)))
	d.write = append(d.write, b...)
	if _, err := d.Conn.Write(d.write); err != nil {
		return 0, err
	}
	return len(b), nil
}

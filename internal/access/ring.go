package access

import "errors"

const (
	// ringSize is how much output of a machine is kept for its viewers.
	ringSize = 1 << 20
	// replaySize is how much of the earlier output a new viewer gets.
	replaySize = 64 << 10
)

// errSlow means that a reader has missed output.
var errSlow = errors.New("the output was not read fast enough")

// ring has the last bytes of a stream. A position is the number of bytes before it.
type ring struct {
	data []byte
	end  uint64
}

func newRing() *ring { return &ring{data: make([]byte, ringSize)} }

// start is the first position that is still there.
func (r *ring) start() uint64 { return r.end - min(r.end, uint64(len(r.data))) }

// replay is the position at which a new reader begins.
func (r *ring) replay() uint64 { return r.end - min(r.end, replaySize) }

// write appends to the stream.
func (r *ring) write(data []byte) {
	if skipped := len(data) - len(r.data); skipped > 0 {
		data = data[skipped:]
		r.end += uint64(skipped)
	}
	at := int(r.end % uint64(len(r.data)))
	n := copy(r.data[at:], data)
	copy(r.data, data[n:])
	r.end += uint64(len(data))
}

// read copies from a position, and returns how much.
func (r *ring) read(into []byte, from uint64) (int, error) {
	if from < r.start() {
		return 0, errSlow
	}
	into = into[:min(uint64(len(into)), r.end-from)]
	at := int(from % uint64(len(r.data)))
	n := copy(into, r.data[at:])
	copy(into[n:], r.data)
	return len(into), nil
}

package fakeqemu

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// migration is how the memory is saved.
type migration struct {
	status, why   string
	ignoresShared bool
	stream        *os.File
}

// The stream of memory: the magic number of QEMU, a line with a header, the memory, and a digest of all that.
const (
	streamMagic = "QEVM"
	// savedBytes is the size of the memory in it. It does not fit into a pipe.
	savedBytes = 2 << 20
)

// header is the header of a stream.
type header struct {
	// Shape are the devices. A machine with others does not load it.
	Shape string
	Guest guest
	Bytes int
}

// shape describes what a machine that loads the memory of this one has to have.
func (m *machine) shape() string {
	words := []string{fmt.Sprint(m.memory, " bytes, ", m.cpus, " processors")}
	for _, d := range m.devices {
		words = append(words, fmt.Sprintf("%s %s at %d of %q", d.driver, d.id, d.slot, d.options["bus"]))
	}
	slices.Sort(words[1:]) // their order does not matter
	return strings.Join(words, ", ")
}

func (m *machine) getFD(a map[string]any, file *passed) (any, error) {
	taken, err := file.take()
	if err != nil {
		return nil, err
	}
	name := a["fdname"].(string)
	if before := m.files[name]; before != nil {
		_ = before.Close() // nobody has used it
	}
	m.files[name] = taken
	return nil, nil
}

func (m *machine) closeFD(a map[string]any, _ *passed) (any, error) {
	name := a["fdname"].(string)
	file := m.files[name]
	if file == nil {
		return nil, generic("File descriptor named '%s' not found", name)
	}
	delete(m.files, name)
	return nil, file.Close()
}

func (m *machine) setCapabilities(a map[string]any, _ *passed) (any, error) {
	for _, each := range a["capabilities"].([]any) {
		capability, _ := each.(map[string]any)
		if err := check("capability:string state:boolean", capability); err != nil {
			return nil, err
		}
		if capability["capability"] != "x-ignore-shared" {
			return nil, generic("Parameter 'capability' does not accept value '%s'", capability["capability"])
		}
		m.migration.ignoresShared = capability["state"].(bool)
	}
	return nil, nil
}

// named returns the descriptor that a URI names, and forgets it.
func (m *machine) named(uri string) (*os.File, error) {
	name, isFD := strings.CutPrefix(uri, "fd:")
	if !isFD {
		return nil, generic("Parameter 'uri' expects a valid migration protocol")
	}
	file := m.files[name]
	if file == nil {
		return nil, generic("File descriptor named '%s' has not been found", name)
	}
	delete(m.files, name)
	return file, nil
}

// migrate begins to write the memory.
func (m *machine) migrate(a map[string]any, _ *passed) (any, error) {
	switch m.status {
	case "inmigrate":
		return nil, generic("Guest is waiting for an incoming migration")
	case "postmigrate":
		return nil, generic("Can't migrate the vm that was paused due to previous migration")
	}
	if m.migration.status == "active" {
		return nil, generic("There's a migration process in progress")
	}
	stream, err := m.named(a["uri"].(string))
	if err != nil {
		m.migration.status, m.migration.why = "failed", err.Error()
		return nil, err
	}
	before := m.status
	m.migration.status, m.migration.why, m.migration.stream = "active", "", stream
	h := header{m.shape(), m.guest, savedBytes}
	if m.migration.ignoresShared && m.shares {
		h.Bytes = 0
	}
	go m.save(stream, h, before)
	return nil, nil
}

// save writes the memory. The processors, which may run until then, are halted at the end.
func (m *machine) save(stream *os.File, h header, before string) {
	raw, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	sum := sha256.New()
	to := io.MultiWriter(stream, sum)
	_, err = fmt.Fprintf(to, "%s%s\n", streamMagic, raw)
	if err == nil {
		_, err = to.Write(bytes.Repeat([]byte("a page of memory"), h.Bytes/16))
	}
	if err == nil {
		_, err = stream.Write(sum.Sum(nil))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err = errors.Join(err, stream.Close())
	m.migration.stream = nil
	switch {
	case m.migration.status == "cancelling":
		m.migration.status = "cancelled"
	case err != nil:
		m.migration.status, m.migration.why = "failed", err.Error()
	default:
		m.migration.status = "completed"
		m.halt("postmigrate")
		return
	}
	m.status = before
}

// cancel ends an attempt to save the memory.
func (m *migration) cancel() {
	if m.status == "active" {
		m.status = "cancelling"
		_ = m.stream.Close() // its writer fails
	}
}

func (m *migration) query() any {
	result := map[string]any{}
	if m.status != "" {
		result["status"] = m.status
	}
	if m.why != "" {
		result["error-desc"] = m.why
	}
	return maps.Clone(result)
}

// migrateIncoming begins to load the memory.
func (m *machine) migrateIncoming(a map[string]any, _ *passed) (any, error) {
	if !m.incoming {
		return nil, generic("'-incoming' was not specified on the command line")
	}
	if m.status != "inmigrate" || m.migration.status == "active" {
		return nil, generic("The incoming migration has already been started")
	}
	stream, err := m.named(a["uri"].(string))
	if err != nil {
		return nil, err
	}
	m.migration.status = "active"
	go m.load(stream)
	return nil, nil
}

// load loads the memory. A machine that does not accept it ends.
func (m *machine) load(stream *os.File) {
	raw, err := io.ReadAll(stream)
	m.mu.Lock()
	defer m.mu.Unlock()
	var h header
	body, digest := raw[:max(0, len(raw)-sha256.Size)], raw[max(0, len(raw)-sha256.Size):]
	first, memory, _ := bytes.Cut(body, []byte("\n"))
	text, isStream := bytes.CutPrefix(first, []byte(streamMagic))
	sum := sha256.Sum256(body)
	switch {
	case err != nil:
	case !isStream:
		err = errors.New("Not a migration stream: load of migration failed: Invalid argument") //nolint:staticcheck // QEMU says so
	case json.Unmarshal(text, &h) != nil, len(memory) != h.Bytes, !bytes.Equal(digest, sum[:]):
		err = errors.New("load of migration failed: Input/output error")
	case h.Shape != m.shape():
		err = errors.New("load of migration failed: Invalid argument")
	}
	if err != nil {
		m.exit(err)
	}
	m.migration.status = "completed"
	m.guest = h.Guest
	for _, c := range m.chardevs {
		c.open = c.open || m.isAgent(c) && m.guest.Agent
	}
	m.status = "paused"
	if !m.halts {
		m.resume()
	}
}

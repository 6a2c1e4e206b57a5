package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// hostFile contains the identity of a state directory: a UUID created with it.
const hostFile = "host-id"

// identify returns the host of a state directory that this process has locked. It identifies the
// directory, not the kernel: a directory that is moved to another host takes its machines along.
func identify(stateDir string) (backend.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return backend.Host{}, fmt.Errorf("find the name of this host: %w", err)
	}
	path := filepath.Join(stateDir, hostFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id := uuid.NewString()
		if err := atomicfile.Write(path, []byte(id+"\n"), atomicfile.Durable); err != nil {
			return backend.Host{}, fmt.Errorf("write the identity of the state directory: %w", err)
		}
		return backend.Host{ID: id, Name: name}, nil
	}
	if err != nil {
		return backend.Host{}, fmt.Errorf("read the identity of the state directory: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if err := uuid.Validate(id); err != nil {
		return backend.Host{}, fmt.Errorf("read the identity of the state directory: %s does not contain a UUID: %w; write the status.host.id of a VirtualMachine of this host to it",
			path, err)
	}
	return backend.Host{ID: id, Name: name}, nil
}

// Host implements backend.Driver.
func (d *Driver) Host() backend.Host { return d.host }

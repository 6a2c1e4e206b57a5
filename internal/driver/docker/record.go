package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const recordSuffix = ".json"

// record is what an engine cannot store with a container. If it is lost, the controller applies the
// spec again, and a requested stop looks like one from outside.
type record struct {
	// Host is the address of the engine.
	Host string `json:"host,omitempty"`
	// Machine is the last applied spec; without a hash it is unknown.
	Machine backend.Machine `json:"machine"`
	// SeedSum is the checksum of the desired seed, StartedSeedSum that of the seed in the
	// container.
	SeedSum        string `json:"seedSum,omitempty"`
	StartedSeedSum string `json:"startedSeedSum,omitempty"`
	// Stop is the run that was requested to stop.
	Stop *stopRequest `json:"stop,omitempty"`
	// Failed is the last attempt to create or start the machine, if it failed; AfterRun is the run
	// before it.
	Failed   *backend.Ended `json:"failed,omitempty"`
	AfterRun string         `json:"afterRun,omitempty"`
}

// stopRequest records the request to stop a run; Run is empty if the machine never ran.
type stopRequest struct {
	Run string `json:"run"`
}

func (m *machine) recordPath() string {
	return filepath.Join(m.d.options.StateDir, string(m.id.UID)+recordSuffix)
}

// read loads the record of an earlier manager.
func (m *machine) read() {
	raw, err := os.ReadFile(m.recordPath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(raw, &m.record)
	}
	if err != nil {
		m.record = record{}
		m.d.options.Log.Error(err, "Failed to read the record of a machine", "file", m.recordPath())
	}
}

// save writes the record; m.mu is held. On failure the record lives as long as this manager: a full
// disk must not prevent a stop.
func (m *machine) save() {
	m.record.Host = m.d.engine.DaemonHost()
	if err := atomicfile.WriteJSON(m.recordPath(), &m.record, atomicfile.Durable); err != nil {
		m.d.options.Log.Error(err, "Failed to write the record of a machine", "file", m.recordPath())
	}
}

// erase removes the record of the machine.
func (m *machine) erase() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record = record{}
	if err := os.Remove(m.recordPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of a machine: %w", err)
	}
	return nil
}

// recorded returns the machines with a record in a state directory, by engine.
func recorded(stateDir string) (map[string][]types.UID, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find machines: %w", err)
	}
	found := map[string][]types.UID{}
	for _, entry := range entries {
		name, isRecord := strings.CutSuffix(entry.Name(), recordSuffix)
		if !isRecord || checkUID(types.UID(name)) != nil {
			continue
		}
		var rec record
		raw, err := os.ReadFile(filepath.Join(stateDir, entry.Name()))
		if err == nil {
			err = json.Unmarshal(raw, &rec)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(stateDir, entry.Name()), err)
		}
		found[rec.Host] = append(found[rec.Host], types.UID(name))
	}
	return found, nil
}

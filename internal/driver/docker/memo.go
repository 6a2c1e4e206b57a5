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

const memoSuffix = ".json"

// memo is what an engine cannot remember of a container. If it is lost, the controller
// tells the machine again, and an end that somebody asked for looks like one from outside.
type memo struct {
	// Host is the engine that has the container.
	Host string `json:"host,omitempty"`
	// Machine is what the machine was last told to be; no hash, nothing is known.
	Machine backend.Machine `json:"machine"`
	// SeedSum and StartedSeedSum stand for the seed that is wanted, and the one that is
	// in the container.
	SeedSum        string `json:"seedSum,omitempty"`
	StartedSeedSum string `json:"startedSeedSum,omitempty"`
	// Stop is the run that was told to stop.
	Stop *stopNote `json:"stop,omitempty"`
	// Failed is the last attempt to create or start it, if that failed; AfterRun the
	// run before it.
	Failed   *backend.Ended `json:"failed,omitempty"`
	AfterRun string         `json:"afterRun,omitempty"`
}

// stopNote says that a run was told to stop; of a machine that has never run, "".
type stopNote struct {
	Run string `json:"run"`
}

func (m *machine) memoPath() string {
	return filepath.Join(m.d.options.StateDir, string(m.id.UID)+memoSuffix)
}

// read reads what an earlier manager has remembered.
func (m *machine) read() {
	raw, err := os.ReadFile(m.memoPath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(raw, &m.memo)
	}
	if err != nil {
		m.memo = memo{}
		m.d.options.Log.Error(err, "What was remembered of a machine cannot be read", "file", m.memoPath())
	}
}

// save writes the memo; m.mu is held. What cannot be written is remembered as long as this
// manager lives: a full disk must not keep anybody from stopping a machine.
func (m *machine) save() {
	m.memo.Host = m.d.engine.DaemonHost()
	raw, err := json.MarshalIndent(&m.memo, "", "  ")
	if err == nil {
		err = atomicfile.Write(m.memoPath(), append(raw, '\n'), atomicfile.Durable)
	}
	if err != nil {
		m.d.options.Log.Error(err, "What is to be remembered of a machine cannot be written", "file", m.memoPath())
	}
}

// erase forgets everything about the machine.
func (m *machine) erase() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memo = memo{}
	if err := os.Remove(m.memoPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was remembered of a machine: %w", err)
	}
	return nil
}

// remembered returns the machines that a state directory has a memo of, by engine.
func remembered(stateDir string) (map[string][]types.UID, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find machines: %w", err)
	}
	found := map[string][]types.UID{}
	for _, entry := range entries {
		name, isMemo := strings.CutSuffix(entry.Name(), memoSuffix)
		if !isMemo || checkUID(types.UID(name)) != nil {
			continue
		}
		var of memo
		raw, err := os.ReadFile(filepath.Join(stateDir, entry.Name()))
		if err == nil {
			err = json.Unmarshal(raw, &of)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(stateDir, entry.Name()), err)
		}
		found[of.Host] = append(found[of.Host], types.UID(name))
	}
	return found, nil
}

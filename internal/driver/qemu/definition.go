package qemu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// The files in the folder of a machine.
const (
	definitionFile = "machine.json"
	diskFile       = "disk.qcow2"
	seedFile       = "seed.img"
	serialLog      = "serial.log"
	monitorSocket  = "qmp.sock"
	humanSocket    = "monitor.sock"
	consoleSocket  = "console.sock"
	agentSocket    = "agent.sock"
	answerFile     = "guest.json"
	// Copies of what the user of the machine could not read.
	kernelFile = "kernel"
	initrdFile = "initrd"

	// trashPrefix begins the name of the folder of a machine that is being removed.
	trashPrefix = ".removed-"
)

// definition is what is remembered of a machine. It is written before anything is done
// that it tells of.
type definition struct {
	backend.Machine
	// User is the user of the host that the machine has to itself, with a group of the same number; 0 if it has none. It
	// is written before anything belongs to it.
	User int `json:"user,omitempty"`
	// Created says that the disk is complete.
	Created bool `json:"created,omitempty"`
	// Base is the image that the disk is made from, and how its format is called.
	Base *baseImage `json:"base,omitempty"`
	// Started is what the machine was last started with.
	Started *backend.Machine `json:"started,omitempty"`
	// BootMemory is the memory that it was started with. More may have been plugged in
	// since, and the balloon takes from all of it.
	BootMemory int64 `json:"bootMemory,omitempty"`
	// SeedSum and StartedSeedSum stand for the seed that is wanted, and the one that the
	// machine was started with.
	SeedSum        string `json:"seedSum,omitempty"`
	StartedSeedSum string `json:"startedSeedSum,omitempty"`
	// HostPorts are the ports of the host by the names of the machine's.
	HostPorts map[string]int `json:"hostPorts,omitempty"`
	// StopRun is the run that was told to stop; its end is as requested.
	StopRun string `json:"stopRun,omitempty"`
	// LastRun and Ended are the last run that is over, and how it ended, as far as the
	// process itself does not tell.
	LastRun string         `json:"lastRun,omitempty"`
	Ended   *backend.Ended `json:"ended,omitempty"`
}

type baseImage struct {
	Path   string `json:"path"`
	Format string `json:"format"`
}

// uidForm is what the UID of an object looks like. It becomes the name of a folder and an
// argument of QEMU.
var uidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func checkUID(uid types.UID) error {
	if !uidForm.MatchString(string(uid)) {
		return fmt.Errorf("%w: %q is no UID", backend.ErrInvalid, uid)
	}
	return nil
}

// readDefinition reads that of the machine in a folder.
func readDefinition(dir string) (definition, error) {
	var def definition
	raw, err := os.ReadFile(filepath.Join(dir, definitionFile))
	if err != nil {
		return def, err
	}
	if err := json.Unmarshal(raw, &def); err != nil {
		return def, fmt.Errorf("read %s: %w", filepath.Join(dir, definitionFile), err)
	}
	if string(def.UID) != filepath.Base(dir) {
		return def, fmt.Errorf("%s is that of the machine %q", filepath.Join(dir, definitionFile), def.UID)
	}
	return def, nil
}

// write replaces the definition in a folder, so that it is whole and survives a power cut.
func (def *definition) write(dir string) error {
	raw, err := json.MarshalIndent(def, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, definitionFile), append(raw, '\n'), atomicfile.Durable)
}

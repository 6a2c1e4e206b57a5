package qemu

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// The files in the folder of a machine.
const (
	definitionFile = "machine.json"
	diskFile       = "disk.qcow2"
	seedFile       = "seed.img"
	varsFile       = "efivars.fd"
	serialLog      = "serial.log"
	answerFile     = "guest.json"
	// Copies of files that the user of the machine cannot read.
	kernelFile = "kernel"
	initrdFile = "initrd"
)

// definition is the persistent state of a machine. It is written before the effects that it
// describes.
type definition struct {
	backend.Machine
	// User is the machine's own user on the host, with a group of the same number; 0 if it has none. It is
	// written before that user owns anything.
	User int `json:"user,omitempty"`
	// Created means that the disk is complete.
	Created bool `json:"created,omitempty"`
	// Base is the image of the disk, and its format.
	Base *qemu.Image `json:"base,omitempty"`
	// RootCreated means that the machine has a root disk, whatever the size in the spec, and that its file was complete once.
	RootCreated bool `json:"rootCreated,omitempty"`
	// DiskRecords are the disks of spec.disks, by name.
	DiskRecords map[string]diskRecord `json:"diskRecords,omitempty"`
	// Started is the machine as of its last start.
	Started *backend.Machine `json:"started,omitempty"`
	// BootMemory is the memory at the start. More may have been hot-plugged
	// since, and the balloon applies to the sum.
	BootMemory int64 `json:"bootMemory,omitempty"`
	// SeedSum and StartedSeedSum are hashes of the desired seed, and of the seed at the
	// last start.
	SeedSum        string `json:"seedSum,omitempty"`
	StartedSeedSum string `json:"startedSeedSum,omitempty"`
	// Address is the machine's address in the network of its namespace. It is the same for the life of the machine.
	Address netip.Addr `json:"address,omitzero"`
	// HostPorts are the host ports by the name of the machine's port.
	HostPorts map[string]int `json:"hostPorts,omitempty"`
	// Shape is that of the QEMU of the last start, see launch.shape.
	Shape string `json:"shape,omitempty"`
	// Owner is the record of the owner of its QEMU. Asleep is the saved memory in its phase Asleep; otherwise, it is nil.
	Owner  owner.Record `json:"owner,omitzero"`
	Asleep *savedMemory `json:"asleep,omitempty"`
	// Restoring is a restore that is decided and not done; nil if there is none. Restored is the token of the last one that is done.
	Restoring *restoring `json:"restoring,omitempty"`
	Restored  string     `json:"restored,omitempty"`
	// MemoryShared means that the memory is that of a template or of a snapshot, of which the machine has copied what it has changed. It cannot give
	// the host any back.
	MemoryShared bool `json:"memoryShared,omitempty"`
	// StopRun is the run that was requested to stop.
	StopRun string `json:"stopRun,omitempty"`
	// Unsaved is why the memory of StopRun could not be saved, if the machine should have been put to sleep instead of
	// being stopped.
	Unsaved string `json:"unsaved,omitempty"`
	// LastRun and Ended are the last completed run and its end, as far as the process record
	// does not have it.
	LastRun string         `json:"lastRun,omitempty"`
	Ended   *backend.Ended `json:"ended,omitempty"`
}

// uidForm matches the UID of an object, which becomes the name of a folder and an argument of QEMU.
var uidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func checkUID(uid types.UID) error {
	if !uidForm.MatchString(string(uid)) {
		return fmt.Errorf("%w: %q is not a UID", backend.ErrInvalid, uid)
	}
	return nil
}

// readDefinition reads the definition of the machine in a folder.
func readDefinition(dir string) (def definition, err error) {
	err = readRecord(dir, definitionFile, "machine", &def, &def.UID)
	return def, err
}

// write replaces the definition in a folder atomically and durably.
func (def *definition) write(dir string) error {
	return atomicfile.WriteJSON(filepath.Join(dir, definitionFile), def, atomicfile.Durable)
}

// hardwareAddress returns the address of the network card. It contains the IPv4 address of the machine, so that no other machine on
// this host has it.
func (def *definition) hardwareAddress() string {
	ip := def.Address.As16()
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", ip[12], ip[13], ip[14], ip[15])
}

// Package launcher is the program in the Pod of a machine: it makes the disks of the machine, runs QEMU, and reports how it ended.
// It knows neither the API server nor the driver, which is internal/driver/pod.
package launcher

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// The contract with the Pod.
const (
	// Variable is the environment variable with the Definition, as JSON.
	Variable = "KEELSON_MACHINE"
	// RunDir has the sockets and the seed of the machine. It is in memory.
	RunDir = "/run/keelson"
	// SeedDir has the files user-data and network-config, if the machine has them.
	SeedDir = "/seed"
	// GuestDir has the default guest.
	GuestDir = "/guest"
	// ImageDir has the image of another guest.
	ImageDir = "/image"
	// DiskDir is the volume of the root disk.
	DiskDir = "/disk"
	// DisksDir has a folder for each other disk, with its name, which is its volume.
	DisksDir = "/disks"
	// TerminationLog is where kubelet reads an Ended from.
	TerminationLog = "/dev/termination-log"
	// ReadyPath is the path at which HTTP requests succeed when the guest is ready. With wait, a duration, a response that it is
	// not is held back for that time.
	ReadyPath = "/readyz"
	// ConsolePath is the path at the same port at which the manager, with the token, connects to the serial console: by an HTTP/2
	// request whose bodies are the two directions.
	ConsolePath = "/console"
	// DialPath is the path at which it connects to a port of the guest in the same way.
	DialPath = "/dial"
	// SleepPath is the path at which it puts the machine to sleep. The response comes when it is asleep, which ends it, or runs on
	// because it cannot sleep.
	SleepPath = "/sleep"
	// PowerOffPath is the path at which it says that its Pod is about to be deleted to power the machine off, and not to move it.
	PowerOffPath = "/power-off"
	// GuestPath is the path at which it learns of the guest. The response is a Guest in JSON.
	GuestPath = "/guest"
	// ScreenPath is the path at which it connects to the display in the same way.
	ScreenPath = "/screen"
	// ScreenshotPath is the path at which it gets what the display shows, as PNG.
	ScreenshotPath = "/screenshot"
	// MemoryPath is the path at which it sets how much of its memory the guest has: BytesParameter.
	MemoryPath = "/memory"
	// GrowPath is the path at which it grows the disk DiskParameter to BytesParameter. A volume without the room for that is no refusal.
	GrowPath = "/grow"
	// PortsPath is the path at which it sets the ports of the guest that are reached at the address of the Pod: PortParameter for each, as
	// in Port.String.
	PortsPath = "/ports"
	// DiskParameter is the parameter of GrowPath with the name of the disk.
	DiskParameter = "disk"
	// BytesParameter is the parameter of MemoryPath and GrowPath with the number of bytes.
	BytesParameter = "bytes"
	// PortParameter is the parameter of DialPath with that port, and of PortsPath.
	PortParameter = "port"
	// PausePath is the path at which it halts the processors of the guest.
	PausePath = "/pause"
	// ResumePath is the path at which it lets them run again.
	ResumePath = "/resume"
	// TokenFile is the file in SeedDir with the token of the manager.
	TokenFile = "access-token"
	// UserDataFile is the file in SeedDir with the user data.
	UserDataFile = "user-data"
	// NetworkDataFile is the file in SeedDir with the configuration of the network.
	NetworkDataFile = "network-config"
)

// Definition is the machine to run.
type Definition struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// CPUs is the number of processors, CPUModel their model; empty means the default.
	CPUs     int64  `json:"cpus"`
	CPUModel string `json:"cpuModel,omitempty"`
	// MemoryBytes is the memory of the guest.
	MemoryBytes int64 `json:"memoryBytes"`
	// KVM means hardware virtualization, with the device qemu.KVMDevice; otherwise, the processors are emulated.
	KVM bool `json:"kvm,omitempty"`
	// CodeMiB is the buffer for translated code of each emulated processor.
	CodeMiB int64 `json:"codeMiB"`
	// Display means that it has a display.
	Display bool `json:"display,omitempty"`
	// Image means that the root disk begins as the disk in ImageDir; otherwise, the default guest runs.
	Image bool `json:"image,omitempty"`
	// ImageURL is the address of an image that the root disk begins as, ImageSHA256 its digest, and ImageFormat its format; an empty
	// format means that the file shows it.
	ImageURL    string `json:"imageURL,omitempty"`
	ImageSHA256 string `json:"imageSHA256,omitempty"`
	ImageFormat string `json:"imageFormat,omitempty"`
	// NoAgent means that the guest has no agent, so that it is ready when it runs.
	NoAgent bool `json:"noAgent,omitempty"`
	// DiskBytes is the size of the root disk; 0 means that of the image, or that there is no disk.
	DiskBytes int64 `json:"diskBytes,omitempty"`
	// Ephemeral means that the volumes of the disks end with the Pod.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Disks are the other disks.
	Disks []Disk `json:"disks,omitempty"`
	// Ports are the ports of the guest that are reached at the address of the Pod.
	Ports []Port `json:"ports,omitempty"`
	// Asleep means that the machine is asleep: without its memory, which is on the volume of the root disk, it ends with
	// CauseMemoryLost. Otherwise, it goes on with such memory if there is one.
	Asleep bool `json:"asleep,omitempty"`
	// SleepWhenEvicted means that the machine is put to sleep when its Pod is deleted, unless PowerOffPath was called before.
	SleepWhenEvicted bool `json:"sleepWhenEvicted,omitempty"`
	// Epoch changes when saved memory becomes void: that of another epoch is discarded.
	Epoch string `json:"epoch,omitempty"`
	// ReadyPort is the port of ReadyPath.
	ReadyPort int32 `json:"readyPort"`
}

// Disk is a disk besides the root disk.
type Disk struct {
	// Name is its serial number in the guest.
	Name string `json:"name"`
	// Bytes is its size.
	Bytes int64 `json:"bytes"`
}

// Port is a port of the guest.
type Port struct {
	Port int32 `json:"port"`
	// UDP means that it is a UDP port; otherwise, it is a TCP port.
	UDP bool `json:"udp,omitempty"`
}

// String returns a port as parameter: tcp/22.
func (p Port) String() string {
	if p.UDP {
		return "udp/" + strconv.Itoa(int(p.Port))
	}
	return "tcp/" + strconv.Itoa(int(p.Port))
}

// parsePort is the inverse of String.
func parsePort(text string) (p Port, err error) {
	protocol, number, _ := strings.Cut(text, "/")
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || protocol != "tcp" && protocol != "udp" {
		return p, fmt.Errorf("%q is no port", text)
	}
	return Port{Port: int32(port), UDP: protocol == "udp"}, nil
}

// HasDisk reports whether the machine has a root disk.
func (d *Definition) HasDisk() bool { return d.Image || d.DiskBytes > 0 }

// CanSleep reports whether the machine has a volume for its memory that the next Pod has, too.
func (d *Definition) CanSleep() bool { return d.HasDisk() && !d.Ephemeral }

// OwnSystem reports whether the machine runs something else than the default guest.
func (d *Definition) OwnSystem() bool { return d.Image || d.ImageURL != "" }

// AllDisks returns the disks of the machine, the root disk first.
func (d *Definition) AllDisks() (disks []Disk) {
	if d.HasDisk() {
		disks = append(disks, Disk{Name: qemu.RootDisk, Bytes: d.DiskBytes})
	}
	return append(disks, d.Disks...)
}

// Cause is why a machine ended. The values are those of the driver contract, backend.Cause, and CauseAsleep.
type Cause string

// The causes.
const (
	CauseGuestShutdown Cause = "guest-shutdown"
	CauseGuestPanic    Cause = "guest-panic"
	CauseHost          Cause = "host"
	CauseError         Cause = "error"
	CauseStartFailed   Cause = "start-failed"
	CauseMemoryLost    Cause = "memory-lost"
	// CauseAsleep: its memory is saved, and the next launcher goes on with it.
	CauseAsleep Cause = "asleep"
)

// Guest is what the launcher knows of the guest.
type Guest struct {
	// Progress is how far the import of its image is; empty without one.
	Progress string `json:"progress,omitempty"`
	// MinimumMemory is the memory that it needs to boot, in bytes; 0 if that is not known.
	MinimumMemory int64 `json:"minimumMemory,omitempty"`
	// Halted is why it does not run although the manager has not halted it, and what to do.
	Halted string `json:"halted,omitempty"`
	// Silence describes it if it was reset because it had said nothing, and has said nothing since.
	Silence *owner.Silence `json:"silence,omitempty"`
}

// Ended is how a machine ended.
type Ended struct {
	Cause   Cause  `json:"cause"`
	Message string `json:"message,omitempty"`
	// SavedBytes is the size of its saved memory, if it is asleep.
	SavedBytes int64 `json:"savedBytes,omitempty"`
}

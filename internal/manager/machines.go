package manager

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	virtualmachinev1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine"
	"github.com/keelson-dev/keelson/internal/driver/docker"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/driver/pod"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/network"
)

// Machines configure the drivers of VirtualMachines.
type Machines struct {
	// Drivers are the enabled drivers; the first is the default.
	Drivers []string
	// Accelerator is QEMU's accelerator: auto, kvm or tcg.
	Accelerator string
	// DockerHost is the address of the Docker engine. Empty: $DOCKER_HOST, otherwise the default socket.
	DockerHost string
	// GuestDir is the folder with the default guest, for machines without an image.
	GuestDir string
	// ImageDirs are the directories from which spec.image may name files, for the driver qemu.
	ImageDirs confine.Dirs
	// Users is the range of user IDs, as FIRST-LAST, from which each machine of the driver qemu gets its own.
	// Empty: all run as the user of the manager.
	Users string
	// ImageNetworks are networks, such as 10.0.0.0/8, from which images may be downloaded in addition to the
	// public Internet.
	ImageNetworks []string
	// Egress is public or none: what machines of the driver qemu reach outside of their networks.
	Egress string
	// EgressNetworks are networks, such as 10.0.0.0/8, that they reach in addition to the public Internet.
	EgressNetworks []string
	// NetworkRange are the networks from which each namespace gets one for its machines of the driver qemu.
	NetworkRange []string
	// PublishAddress is the address of the host at which ports of machines of the driver qemu are forwarded.
	PublishAddress string
	// ServiceAddress is the IPv4 address of the host at which nodes reach machines of the driver qemu with a Service; empty:
	// they do not.
	ServiceAddress string
	// MaxImageSize is the maximum size of a downloaded image.
	MaxImageSize resource.Quantity
	// MaxRootDisk is the maximum virtual size of an image for machines that request no disk size.
	MaxRootDisk resource.Quantity
	// MaxSaved is the maximum size of the saved memory of all machines that are asleep; 0: no limit.
	MaxSaved resource.Quantity
	// InstantStart is when machines with the default guest start from templates: auto, true or false.
	InstantStart string
	// ImageTimeout limits one download.
	ImageTimeout time.Duration
	// LauncherImage and GuestImage are the images of the driver pod: of the launcher, and of the default guest.
	LauncherImage, GuestImage string
	// KVMResource is the resource of the device plugin that provides /dev/kvm to the Pods of machines, and KVMGroup the group that may open it;
	// 0 means none.
	KVMResource string
	KVMGroup    int64
	// CPUAllocationRatio is how many processors of guests of the driver pod share one of a node.
	CPUAllocationRatio int64
	// ImageKeep is the time that a downloaded image is kept after its last use; 0: forever.
	ImageKeep time.Duration
}

// NewMachines returns the defaults.
func NewMachines() Machines {
	return Machines{
		Drivers: []string{qemu.Name}, Accelerator: string(qemu.AccelAuto), InstantStart: string(qemu.InstantAuto), GuestDir: defaultGuestDir(),
		// Above the IDs that useradd and sssd assign, and below those of systemd.
		Users:  "2100000000-2100065535",
		Egress: string(network.EgressPublic), NetworkRange: texts(qemu.DefaultNetworkRanges), PublishAddress: "127.0.0.1",
		ImageDirs: confine.Dirs{"/var/lib/keelson/images"}, MaxImageSize: resource.MustParse("64Gi"), MaxRootDisk: resource.MustParse("64Gi"), ImageTimeout: 6 * time.Hour, ImageKeep: 7 * 24 * time.Hour, CPUAllocationRatio: 10,
	}
}

// TrustUsers allows all files of the host and all reachable addresses in the API. It is for a manager whose only user also runs
// it.
func (m *Machines) TrustUsers() {
	m.ImageDirs, m.ImageNetworks = confine.Anywhere, []string{"0.0.0.0/0", "::/0"}
}

// MachinesDir returns the directory of the virtual machines in a state directory.
func MachinesDir(stateDir string) string { return filepath.Join(stateDir, "machines") }

// ContainersDir returns the directory for the records of the driver docker.
func ContainersDir(stateDir string) string { return filepath.Join(stateDir, "containers") }

// defaultGuestDir returns the folder next to this program into which make guest writes the guest.
func defaultGuestDir() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return filepath.Join(filepath.Dir(self), "guest")
}

// AddFlags adds the flags of the drivers to fs, with the present values as defaults.
func (m *Machines) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&m.Drivers, "vm-driver", m.Drivers,
		"`drivers` of VirtualMachines: qemu, docker, pod, fake; the first is the default. fake only simulates machines")
	fs.StringVar(&m.LauncherImage, "vm-launcher-image", m.LauncherImage,
		"`image` of the launcher, which runs machines of the driver pod in their Pods; see docs/drivers.md")
	fs.StringVar(&m.GuestImage, "vm-guest-image", m.GuestImage, "`image` with the default guest, for machines of the driver pod without spec.image")
}

// Missing returns one line that names the missing prerequisites of the default driver and how to get them; ""
// if nothing is missing.
func (m *Machines) Missing() string {
	var err error
	switch {
	case len(m.Drivers) == 0:
	case m.Drivers[0] == qemu.Name:
		err = qemu.Missing()
	case m.Drivers[0] == docker.Name:
		err = docker.Missing(m.DockerHost)
	case m.Drivers[0] == pod.Name:
		err = pod.Missing(m.LauncherImage, m.GuestImage)
	}
	if err != nil {
		return "VirtualMachines have no driver: " + err.Error()
	}
	return ""
}

func (m *Machines) validate(wrong func(flag string, value any, why string, args ...any)) {
	if err := m.ImageDirs.Validate(); err != nil {
		wrong("virtualMachines.imageDirs", strings.Join(m.ImageDirs, ","), "%v", err)
	}
	if _, err := parseNetworks(m.ImageNetworks); err != nil {
		wrong("virtualMachines.imageNetworks", strings.Join(m.ImageNetworks, ","), "%v", err)
	}
	m.validateNetwork(wrong)
	if _, err := qemu.ParseUserRange(m.Users); err != nil {
		wrong("virtualMachines.uidRange", m.Users, "%v", err)
	}
	if m.MaxImageSize.Sign() <= 0 {
		wrong("virtualMachines.imageMaxSize", &m.MaxImageSize, "must be more than 0")
	}
	if m.MaxSaved.Sign() < 0 {
		wrong("virtualMachines.stateMax", &m.MaxSaved, "must not be negative")
	}
	if m.MaxRootDisk.Sign() <= 0 {
		wrong("virtualMachines.maxRootDisk", &m.MaxRootDisk, "must be more than 0")
	}
	if m.ImageTimeout <= 0 {
		wrong("virtualMachines.imageTimeout", m.ImageTimeout, "must be more than 0")
	}
	if m.ImageKeep < 0 {
		wrong("virtualMachines.imageKeep", m.ImageKeep, "must not be negative")
	}
	if len(m.Drivers) == 0 {
		wrong("vm-driver", "", "must name a driver")
	}
	for i, name := range m.Drivers {
		if name == "" || slices.Contains(m.Drivers[:i], name) {
			wrong("vm-driver", strings.Join(m.Drivers, ","), "must name drivers, each once")
			break
		}
	}
	if m.KVMResource != "" {
		if errs := validation.IsQualifiedName(m.KVMResource); len(errs) > 0 || !strings.Contains(m.KVMResource, "/") {
			wrong("virtualMachines.kvmResource", m.KVMResource, "must be the resource of a device plugin, such as devices.kubevirt.io/kvm")
		}
	}
	if m.KVMGroup < 0 || m.KVMGroup > math.MaxInt32 {
		wrong("virtualMachines.kvmGroup", m.KVMGroup, "must be the ID of a group, from 0 to %d", math.MaxInt32)
	}
	if m.CPUAllocationRatio < 1 {
		wrong("virtualMachines.cpuAllocationRatio", m.CPUAllocationRatio, "must be at least 1")
	}
	switch qemu.Accelerator(m.Accelerator) {
	case qemu.AccelAuto, qemu.AccelKVM, qemu.AccelTCG:
	default:
		wrong("virtualMachines.accelerator", m.Accelerator, "must be auto, kvm or tcg")
	}
	switch qemu.InstantStart(m.InstantStart) {
	case qemu.InstantAuto, qemu.InstantAlways, qemu.InstantNever:
	default:
		wrong("virtualMachines.instantStart", m.InstantStart, "must be auto, true or false")
	}
}

// validateNetwork checks the options of the networks of machines.
func (m *Machines) validateNetwork(wrong func(flag string, value any, why string, args ...any)) {
	networks, err := parseNetworks(m.EgressNetworks)
	switch mode := network.EgressMode(m.Egress); {
	case mode != network.EgressPublic && mode != network.EgressNone:
		wrong("virtualMachines.egress", m.Egress, "must be public or none")
	case err != nil:
		wrong("virtualMachines.egressNetworks", strings.Join(m.EgressNetworks, ","), "%v", err)
	case mode == network.EgressNone && len(networks) > 0:
		wrong("virtualMachines.egressNetworks", strings.Join(m.EgressNetworks, ","), "cannot be combined with egress: none")
	}
	ranges, err := parseNetworks(m.NetworkRange)
	for _, network := range ranges {
		err = errors.Join(err, qemu.CheckNetworkRange(network))
	}
	if err == nil && len(ranges) == 0 {
		err = errors.New("must name a network")
	}
	if err != nil {
		wrong("virtualMachines.networkRange", strings.Join(m.NetworkRange, ","), "%v", err)
	}
	if address, err := netip.ParseAddr(m.PublishAddress); err != nil || address.IsUnspecified() || address.IsMulticast() || address.Zone() != "" {
		wrong("virtualMachines.publishAddress", m.PublishAddress, "must be an address of this host, such as 127.0.0.1")
	}
	if m.ServiceAddress != "" {
		// EndpointSlices refuse other addresses.
		if address, err := netip.ParseAddr(m.ServiceAddress); err != nil || !address.Is4() || !address.IsGlobalUnicast() {
			wrong("virtualMachines.serviceAddress", m.ServiceAddress, "must be an IPv4 address of this host that nodes reach, such as 192.168.1.10; not a loopback address")
		}
	}
}

// parseNetworks parses the networks of a flag.
func parseNetworks(words []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range words {
		parsed, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", text)
		}
		all = append(all, parsed)
	}
	return all, nil
}

func texts(networks []netip.Prefix) []string {
	var all []string
	for _, n := range networks {
		all = append(all, n.String())
	}
	return all
}

// qemuOptions returns the options of the driver qemu.
func (m *Machines) qemuOptions(stateDir string, log logr.Logger) (qemu.Options, error) {
	images, err := parseNetworks(m.ImageNetworks)
	if err != nil {
		return qemu.Options{}, err
	}
	egress, err := parseNetworks(m.EgressNetworks)
	if err != nil {
		return qemu.Options{}, err
	}
	ranges, err := parseNetworks(m.NetworkRange)
	if err != nil {
		return qemu.Options{}, err
	}
	publish, err := netip.ParseAddr(m.PublishAddress)
	if err != nil {
		return qemu.Options{}, err
	}
	var service netip.Addr
	if m.ServiceAddress != "" {
		if service, err = netip.ParseAddr(m.ServiceAddress); err != nil {
			return qemu.Options{}, err
		}
	}
	users, err := qemu.ParseUserRange(m.Users)
	if err != nil {
		return qemu.Options{}, err
	}
	return qemu.Options{
		StateDir: MachinesDir(stateDir), Accelerator: qemu.Accelerator(m.Accelerator), GuestDir: m.GuestDir,
		ImageDirs: m.ImageDirs, ImageNetworks: images, Users: users, MaxImageBytes: m.MaxImageSize.Value(), ImageTimeout: m.ImageTimeout,
		ImageKeep: m.ImageKeep, MaxRootDiskBytes: m.MaxRootDisk.Value(), MaxSavedBytes: m.MaxSaved.Value(), InstantStart: qemu.InstantStart(m.InstantStart),
		NetworkRanges: ranges, Egress: network.Egress{Mode: network.EgressMode(m.Egress), Networks: egress}, PublishAddress: publish,
		ServiceAddress: service,
		Log:            log.WithName("driver").WithName(qemu.Name),
	}, nil
}

func addVirtualMachine(mgr ctrl.Manager, options controller.Options, o *Options) error {
	openers := o.Machines.openers(o.StateDir, mgr.GetLogger())
	openQEMU := openers[qemu.Name]
	openers[qemu.Name] = func() (virtualmachine.Driver, error) {
		driver, err := openQEMU()
		return driver, o.onHost(err, "virtualmachine")
	}
	openers[pod.Name] = func() (virtualmachine.Driver, error) {
		return pod.Open(pod.Options{
			Config: mgr.GetConfig(), Namespaces: o.Namespaces, RecordNamespace: o.SecretNamespace, LauncherImage: o.Machines.LauncherImage, GuestImage: o.Machines.GuestImage,
			KVMResource: o.Machines.KVMResource, KVMGroup: o.Machines.KVMGroup, CPUAllocationRatio: o.Machines.CPUAllocationRatio,
		})
	}
	drivers := virtualmachine.NewDrivers(o.Machines.Drivers, openers, clock.RealClock{})
	o.drivers, o.closers = drivers, append(o.closers, drivers.Close)
	// VirtualMachineImages are cluster-scoped: a manager of some namespaces has no permission to watch them.
	return virtualmachine.Add(mgr, options, drivers, len(o.Namespaces) == 0)
}

// virtualMachineRules returns the validation of VirtualMachines, by the drivers of this program.
func virtualMachineRules(h hook) admission.Rules[*virtualmachinev1alpha1.VirtualMachine] {
	return admission.Rules[*virtualmachinev1alpha1.VirtualMachine]{
		Errors: virtualmachine.NewValidator(h.Machines.Drivers, map[string]virtualmachine.Rule{
			fake.Name: fake.Validate, docker.Name: docker.Validate, pod.Name: pod.Validate, qemu.Name: qemu.NewRule(h.Machines.ImageDirs),
		}),
	}
}

// openers are the drivers of this program.
func (m *Machines) openers(stateDir string, log logr.Logger) map[string]virtualmachine.Opener {
	return map[string]virtualmachine.Opener{
		fake.Name: func() (virtualmachine.Driver, error) { return fake.New(fake.Options{}), nil },
		docker.Name: func() (virtualmachine.Driver, error) {
			return docker.Open(docker.Options{
				StateDir: ContainersDir(stateDir), Host: m.DockerHost, GuestDir: m.GuestDir,
				Log: log.WithName("driver").WithName(docker.Name),
			})
		},
		qemu.Name: func() (virtualmachine.Driver, error) {
			options, err := m.qemuOptions(stateDir, log)
			if err != nil {
				return nil, err
			}
			return qemu.Open(options)
		},
	}
}

package docker

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Labels of a container. labelUID marks it as Keelson's.
const (
	labelUID       = "cloudnative.tw/virtualmachine-uid"
	labelNamespace = "cloudnative.tw/virtualmachine-namespace"
	labelName      = "cloudnative.tw/virtualmachine-name"
	labelCluster   = "cloudnative.tw/cluster-uid"
)

const (
	// nanosPerMilli converts thousandths of a processor to the billionths that the engine counts
	// in.
	nanosPerMilli = 1_000_000
	// logSize and logFiles limit the console log of a machine.
	logSize  = "10m"
	logFiles = "3"
	// maxProcesses limits the processes and threads of a machine: all machines share those of the
	// host.
	maxProcesses = 4096
	// hostNameLimit is the maximum length of a host name, see hostname(7).
	hostNameLimit = 63
)

// uidForm is the form of an object's UID, which becomes part of container and file names.
var uidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func checkUID(uid types.UID) error {
	if !uidForm.MatchString(string(uid)) {
		return fmt.Errorf("%w: %q is not a UID", backend.ErrInvalid, uid)
	}
	return nil
}

// containerName returns the name of a machine's container. It contains the whole UID, so that names
// are unique and none is a prefix of another.
func containerName(uid types.UID) string { return "keelson-" + string(uid) }

// ours filters for Keelson's containers.
func ours() client.Filters { return client.Filters{}.Add("label", labelUID) }

// identityOf returns the identity of the machine whose container has these labels.
func identityOf(labels map[string]string) backend.Identity {
	return backend.Identity{
		UID: types.UID(labels[labelUID]), Namespace: labels[labelNamespace], Name: labels[labelName],
		Cluster: types.UID(labels[labelCluster]),
	}
}

// Validate rejects what no Docker engine can do. The error is a *backend.FieldError.
func Validate(machine *backend.Machine) error {
	if image := machine.Image; image != nil && image.Container == "" {
		return &backend.FieldError{Field: "spec.image", Message: "the driver docker runs containers; set spec.image.container"}
	}
	if machine.Network != nil {
		return &backend.FieldError{Field: "spec.network", Message: "the driver docker has no rules for networks: the machines of a namespace reach each other"}
	}
	for _, field := range []struct {
		name    string
		isGiven bool
	}{
		{"spec.disks", len(machine.Disks) > 0},
		{"spec.cdrom", machine.CDROM != nil},
		{"spec.firmware", machine.Firmware != ""},
		{"spec.cpuModel", machine.CPUModel != ""},
		{"spec.display", machine.Display != ""},
	} {
		if field.isGiven {
			return &backend.FieldError{Field: field.name, Message: "the driver docker runs containers, which have none; remove the field"}
		}
	}
	if machine.SleepsAtShutdown {
		return &backend.FieldError{Field: "spec.onHostShutdown", Message: "the driver docker cannot put machines to sleep; remove the field"}
	}
	if machine.SleepsOnSchedule {
		return &backend.FieldError{Field: "spec.powerSchedule", Message: "the driver docker cannot put machines to sleep; remove the field"}
	}
	if machine.SleepsWhenIdle {
		return &backend.FieldError{Field: "spec.idle", Message: "the driver docker cannot put machines to sleep; remove the field"}
	}
	if machine.TakesSnapshots {
		return &backend.FieldError{Field: "spec.snapshots", Message: "the driver docker takes no snapshots; remove the field"}
	}
	if machine.IsRestored {
		return &backend.FieldError{Field: "spec.restore", Message: "the driver docker has no snapshots; remove the field"}
	}
	if machine.MilliCPU < 10 {
		return &backend.FieldError{Field: "spec.resource.cpu", Message: "the driver docker requires at least 10m"}
	}
	return machine.RejectPodFields()
}

// newContainer returns the container of a machine. The engine has the image.
func newContainer(machine *backend.Machine, image string) client.ContainerCreateOptions {
	options := client.ContainerCreateOptions{
		Name: containerName(machine.UID),
		Config: &container.Config{
			Image:    image,
			Hostname: hostName(machine.Name),
			// A machine has a console, even if nobody is attached.
			Tty: true, OpenStdin: true,
			Labels: map[string]string{
				labelUID: string(machine.UID), labelNamespace: machine.Namespace, labelName: machine.Name,
				labelCluster: string(machine.Cluster),
			},
		},
		HostConfig: &container.HostConfig{
			Resources:   newResources(machine),
			NetworkMode: container.NetworkMode(networkName(machine.Identity)),
			// Raw sockets could forge the addresses of other machines in the engine's network.
			SecurityOpt: []string{"no-new-privileges:true"},
			CapDrop:     []string{"NET_RAW"},
			// The controller decides about restarts.
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			LogConfig: container.LogConfig{
				Type: "json-file", Config: map[string]string{"max-size": logSize, "max-file": logFiles},
			},
		},
	}
	options.HostConfig.PidsLimit = ptr.To[int64](maxProcesses)
	if machine.Image == nil {
		// A shell is not an init: it does not reap orphans. An interactive one ignores SIGTERM.
		options.HostConfig.Init, options.Config.StopSignal = ptr.To(true), "SIGHUP"
	}
	return options
}

// newResources returns the limits of a machine. Its memory limit includes swap.
func newResources(machine *backend.Machine) container.Resources {
	return container.Resources{
		NanoCPUs: machine.MilliCPU * nanosPerMilli, Memory: machine.MemoryBytes, MemorySwap: machine.MemoryBytes,
	}
}

// hostName returns the host name of a machine; "" leaves it to the engine.
func hostName(name string) string {
	name, _, _ = strings.Cut(name, ".")
	if len(name) > hostNameLimit || len(validation.IsDNS1123Label(name)) > 0 {
		return ""
	}
	return name
}

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

// The labels of a container. The first one tags it as ours.
const (
	labelUID       = "cloudnative.tw/virtualmachine-uid"
	labelNamespace = "cloudnative.tw/virtualmachine-namespace"
	labelName      = "cloudnative.tw/virtualmachine-name"
	labelCluster   = "cloudnative.tw/cluster-uid"
)

const (
	// nanosPerMilli is how many billionths of a processor a thousandth has: the
	// engine counts in the former.
	nanosPerMilli = 1_000_000
	// logSize and logFiles bound the log of the console of a machine.
	logSize  = "10m"
	logFiles = "3"
	// maxProcesses is how many processes and threads a machine may have: those of the host are shared by all.
	maxProcesses = 4096
	// hostNameLimit is how long the name of a host may be: see hostname(7).
	hostNameLimit = 63
)

// uidForm is what the UID of an object looks like. It becomes the name of a container and
// of a file.
var uidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func checkUID(uid types.UID) error {
	if !uidForm.MatchString(string(uid)) {
		return fmt.Errorf("%w: %q is no UID", backend.ErrInvalid, uid)
	}
	return nil
}

// containerName returns that of the container of a machine: the whole UID, so that no two
// have the same, and no name is the beginning of another.
func containerName(uid types.UID) string { return "keelson-" + string(uid) }

// ours is the filter for containers of this project.
func ours() client.Filters { return client.Filters{}.Add("label", labelUID) }

// identityOf returns whose container one with these labels is.
func identityOf(labels map[string]string) backend.Identity {
	return backend.Identity{
		UID: types.UID(labels[labelUID]), Namespace: labels[labelNamespace], Name: labels[labelName],
		Cluster: types.UID(labels[labelCluster]),
	}
}

// Validate refuses what an engine cannot do whatever it is. The error is a *backend.FieldError.
func Validate(machine *backend.Machine) error {
	if image := machine.Image; image != nil && image.Container == "" {
		return &backend.FieldError{Field: "spec.image", Message: "the driver docker runs containers; name the image of one in spec.image.container"}
	}
	if machine.MilliCPU < 10 {
		return &backend.FieldError{Field: "spec.resource.cpu", Message: "the driver docker takes 10m at least"}
	}
	return nil
}

// newContainer returns the container that a machine is to be, of an image that is there.
func newContainer(machine *backend.Machine, image string) client.ContainerCreateOptions {
	options := client.ContainerCreateOptions{
		Name: containerName(machine.UID),
		Config: &container.Config{
			Image:    image,
			Hostname: hostName(machine.Name),
			// A machine has a console, and runs without anybody at it.
			Tty: true, OpenStdin: true,
			Labels: map[string]string{
				labelUID: string(machine.UID), labelNamespace: machine.Namespace, labelName: machine.Name,
				labelCluster: string(machine.Cluster),
			},
		},
		HostConfig: &container.HostConfig{
			Resources:   newResources(machine),
			NetworkMode: container.NetworkMode(networkName(machine.Identity)),
			// Raw sockets could forge the addresses of other machines in the network of the engine.
			SecurityOpt: []string{"no-new-privileges:true"},
			CapDrop:     []string{"NET_RAW"},
			// Whether it is started again is the controller's decision.
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			LogConfig: container.LogConfig{
				Type: "json-file", Config: map[string]string{"max-size": logSize, "max-file": logFiles},
			},
		},
	}
	options.HostConfig.PidsLimit = ptr.To[int64](maxProcesses)
	if machine.Image == nil {
		// A shell is no init: it does not pass SIGTERM on, and buries nobody else's
		// children.
		options.HostConfig.Init = ptr.To(true)
	}
	return options
}

// newResources returns the limits of a machine. What is not memory of the machine is no
// swap of the host either.
func newResources(machine *backend.Machine) container.Resources {
	return container.Resources{
		NanoCPUs: machine.MilliCPU * nanosPerMilli, Memory: machine.MemoryBytes, MemorySwap: machine.MemoryBytes,
	}
}

// hostName returns the name of a machine as that of a host; "" leaves it to the engine.
func hostName(name string) string {
	name, _, _ = strings.Cut(name, ".")
	if len(name) > hostNameLimit || len(validation.IsDNS1123Label(name)) > 0 {
		return ""
	}
	return name
}

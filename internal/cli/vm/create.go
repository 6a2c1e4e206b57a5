package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/sshkey"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// defaultDisk is the root disk of a machine with the default guest: without one it forgets everything
// when it stops.
const defaultDisk = "10Gi"

// createFlags describe a new machine.
type createFlags struct {
	image, sha256     string
	cpu, memory, disk string
	keys, ports       []string
	userData, driver  string
	display           string
	schedule          string
	keep              int32
	saveMemory        bool
	allowed           []string
	snapshot          string
	object.Creation[*v1alpha1.VirtualMachine]
}

func newCreate(flags *target.Flags) *cobra.Command {
	c := createFlags{cpu: "1", memory: "512Mi"}
	c.Until, c.Check = machineKind.When(isReady), checkSnapshot
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a machine",
		Long:  `Create a machine. Without --ssh-key and --user-data it gets an SSH key that is kept for keelson vm ssh.`,
		Example: `  keelson vm create web --wait
  keelson vm ssh web

  # A Debian with two processors, whose port 80 is forwarded to this host
  keelson vm create web --image debian-13 --cpu 2 --memory 2Gi --disk 20Gi --ssh-key ~/.ssh/id_ed25519.pub --port 80

  # With a snapshot each night, of which the last 14 are kept
  keelson vm create db --snapshot-schedule "0 3 * * *" --snapshot-keep 14 --wait

  # From a snapshot of the namespace shared, which allows that
  keelson vm create web-2 --snapshot shared/gold --wait

  # Only print the manifest
  keelson vm create web --dry-run=client -o yaml`,
		Args: oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			vm, err := c.machine(args[0])
			if err != nil {
				return err
			}
			if err := c.Create(cmd, flags, machineKind, vm); err != nil || c.DryRun() {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Log in with: %s ssh %s\n", cmd.Parent().CommandPath(), flags.Words(vm.Name))
			return err
		},
	}
	c.addFlags(cmd.Flags())
	c.Waiting.AddFlags(cmd.Flags(), "the machine is ready")
	return cmd
}

func (c *createFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.image, "image", "", "`image`: the name of a VirtualMachineImage, a path on the host of the machine, or a URL (default: the small Linux guest of Keelson)")
	fs.StringVar(&c.snapshot, "snapshot", "", "create the machine from this VirtualMachineSnapshot, [NAMESPACE/]`NAME`")
	fs.StringVar(&c.sha256, "sha256", "", "SHA-256 `digest` of the image at a URL")
	fs.StringVar(&c.cpu, "cpu", c.cpu, "number of processors")
	fs.StringVar(&c.memory, "memory", c.memory, "memory, such as 2Gi")
	fs.StringVar(&c.disk, "disk", "", "size of the root disk, such as 20Gi (default: that of the image or snapshot; "+defaultDisk+" without both)")
	fs.StringArrayVar(&c.keys, "ssh-key", nil, "`file` with public SSH keys that can log in; may be repeated")
	fs.StringArrayVar(&c.ports, "port", nil, "`port` of the guest that is forwarded to the host, as [NAME=]NUMBER[/udp]; may be repeated")
	fs.StringVar(&c.userData, "user-data", "", "`file` with the user data of cloud-init, such as a document that begins with #cloud-config")
	fs.StringVar(&c.driver, "driver", "", "backend of the machine (default: that of the manager)")
	fs.StringVar(&c.display, "display", "", "VGA, which keelson vm screenshot shows, or None (default: None)")
	fs.StringVar(&c.schedule, "snapshot-schedule", "", "`schedule` of snapshots in cron format and in UTC, such as \"0 3 * * *\" (default: none)")
	fs.Int32Var(&c.keep, "snapshot-keep", commonv1.DefaultSnapshotsKept, "number of snapshots of the schedule that are kept")
	fs.BoolVar(&c.saveMemory, "snapshot-memory", false, "the snapshots of the schedule also contain the memory of the machine")
	fs.StringArrayVar(&c.allowed, "snapshot-allow-namespace", nil, "`namespace` whose machines can be created from the snapshots of the schedule; may be repeated")
	c.AddFlags(fs)
}

func (c *createFlags) validate() error {
	switch {
	case c.display != "" && c.display != string(v1alpha1.DisplayNone) && c.display != string(v1alpha1.DisplayVGA):
		return usage.Errorf("--display=%s: must be None or VGA", c.display)
	case c.keep < 1:
		return usage.Errorf("--snapshot-keep=%d: must be at least 1", c.keep)
	case c.keep != commonv1.DefaultSnapshotsKept && c.schedule == "":
		return usage.Errorf("--snapshot-keep goes with --snapshot-schedule")
	case c.saveMemory && c.schedule == "":
		return usage.Errorf("--snapshot-memory goes with --snapshot-schedule")
	case len(c.allowed) > 0 && c.schedule == "":
		return usage.Errorf("--snapshot-allow-namespace goes with --snapshot-schedule")
	case c.snapshot != "" && c.image != "":
		return usage.Errorf("--snapshot and --image cannot be combined")
	case c.userData != "" && len(c.keys) > 0:
		return usage.Errorf("--user-data and --ssh-key cannot be combined: write the keys to ssh_authorized_keys of the user data")
	case isURL(c.image) && c.sha256 == "":
		return usage.Errorf("--image=%s needs --sha256, with which the download is verified", c.image)
	case !isURL(c.image) && c.sha256 != "":
		return usage.Errorf("--sha256 goes with an image at a URL")
	}
	return c.Validate()
}

func isURL(image string) bool {
	return strings.HasPrefix(image, "http://") || strings.HasPrefix(image, "https://")
}

// machine returns the object.
func (c *createFlags) machine(name string) (*v1alpha1.VirtualMachine, error) {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	vm.Spec.Driver = c.driver
	if c.display != "" {
		vm.Spec.Display = &v1alpha1.Display{Type: v1alpha1.DisplayType(c.display)}
	}
	if c.schedule != "" {
		vm.Spec.Snapshots = &v1alpha1.SnapshotSchedule{SnapshotSchedule: commonv1.SnapshotSchedule{Schedule: c.schedule, Keep: &c.keep}, Memory: c.saveMemory, AllowedNamespaces: c.allowed}
	}
	var err error
	if vm.Spec.Image, err = c.source(); err != nil {
		return nil, err
	}
	disk := c.disk
	if disk == "" && vm.Spec.Image == nil {
		disk = defaultDisk
	}
	for _, size := range []struct {
		flag, value string
		set         func(resource.Quantity)
	}{
		{"cpu", c.cpu, func(q resource.Quantity) { vm.Spec.Resource.CPU = q }},
		{"memory", c.memory, func(q resource.Quantity) { vm.Spec.Resource.Memory = q }},
		{"disk", disk, func(q resource.Quantity) { vm.Spec.Resource.RootDisk = &q }},
	} {
		if size.value == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(size.value)
		if err != nil {
			return nil, usage.Errorf("--%s=%s: must be a number, or one with a unit such as 2Gi", size.flag, size.value)
		}
		size.set(quantity)
	}
	for _, port := range c.ports {
		parsed, err := parsePort(port)
		if err != nil {
			return nil, err
		}
		vm.Spec.Ports = append(vm.Spec.Ports, parsed)
	}
	data, err := c.data()
	if err != nil {
		return nil, err
	}
	vm.Spec.CloudInit = &v1alpha1.CloudInit{UserData: data}
	return vm, nil
}

// source returns the image; nil for the default guest.
func (c *createFlags) source() (*v1alpha1.Image, error) {
	switch {
	case c.snapshot != "":
		return parseSnapshot(c.snapshot)
	case c.image == "":
		return nil, nil
	case isURL(c.image):
		return &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{URL: c.image, Sha256: c.sha256}}, nil
	case strings.ContainsRune(c.image, '/'), filepath.Ext(c.image) == ".qcow2", filepath.Ext(c.image) == ".img", filepath.Ext(c.image) == ".raw":
		path, err := filepath.Abs(c.image)
		return &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: path}}, err
	}
	return &v1alpha1.Image{Name: c.image}, nil
}

// parseSnapshot parses [NAMESPACE/]NAME.
func parseSnapshot(text string) (*v1alpha1.Image, error) {
	namespace, name, isForeign := strings.Cut(text, "/")
	if !isForeign {
		namespace, name = "", text
	}
	if name == "" || isForeign && namespace == "" || strings.Contains(name, "/") {
		return nil, usage.Errorf("--snapshot=%s: must be NAME, or NAMESPACE/NAME for a snapshot of another namespace", text)
	}
	return &v1alpha1.Image{Snapshot: name, SnapshotNamespace: namespace}, nil
}

// data returns the user data of cloud-init.
func (c *createFlags) data() (string, error) {
	if c.userData != "" {
		text, err := os.ReadFile(c.userData)
		if err != nil {
			return "", fmt.Errorf("read --user-data: %w", err)
		}
		return string(text), nil
	}
	keys, err := c.publicKeys()
	if err != nil {
		return "", err
	}
	text := "#cloud-config\nssh_authorized_keys:\n"
	for _, key := range keys {
		quoted, err := json.Marshal(key) // which is YAML, in one line
		if err != nil {
			return "", err
		}
		text += "- " + string(quoted) + "\n"
	}
	return text, nil
}

// publicKeys returns the keys that may log in.
func (c *createFlags) publicKeys() ([]string, error) {
	if len(c.keys) == 0 {
		key, err := sshkey.Public()
		return []string{key}, err
	}
	var keys []string
	for _, path := range c.keys {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read --ssh-key: %w", err)
		}
		found, err := parsePublicKeys(text)
		if err != nil {
			return nil, fmt.Errorf("--ssh-key=%s: %w", path, err)
		}
		keys = append(keys, found...)
	}
	return keys, nil
}

// parsePort parses [NAME=]NUMBER[/udp].
func parsePort(text string) (v1alpha1.Port, error) {
	port := v1alpha1.Port{Protocol: v1alpha1.ProtocolTCP}
	name, number, named := strings.Cut(text, "=")
	if !named {
		name, number = "", text
	}
	number, protocol, _ := strings.Cut(number, "/")
	parsed, err := strconv.ParseUint(number, 10, 16)
	switch strings.ToLower(protocol) {
	case "", "tcp":
	case "udp":
		port.Protocol = v1alpha1.ProtocolUDP
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || parsed == 0 || named && name == "" {
		return port, usage.Errorf("--port=%s: must be [NAME=]NUMBER[/udp], such as 80, web=8080 or 53/udp", text)
	}
	port.Port = int32(parsed)
	if port.Name = name; name == "" {
		port.Name = strings.ToLower(fmt.Sprintf("%s-%d", port.Protocol, parsed))
	}
	return port, nil
}

// checkSnapshot returns an error if the snapshot of a new machine does not exist. Who may not read it leaves that to the controller.
func checkSnapshot(ctx context.Context, o *object.Objects[*v1alpha1.VirtualMachine], vm *v1alpha1.VirtualMachine) error {
	image := vm.Spec.Image
	if image == nil || image.Snapshot == "" {
		return nil
	}
	api := *o.API
	api.Namespace = cmp.Or(image.SnapshotNamespace, api.Namespace)
	there := machines{machineKind.In(o.Client, &api)}
	if _, err := there.findSnapshot(ctx, image.Snapshot); !apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

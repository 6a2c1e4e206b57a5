package inside

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/image"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// facts are what the configuration files are made from.
type facts struct {
	settings.Settings
	Snapshotter string
	// Reserved are the resources of the machine that other nodes have.
	Reserved reserved
	shared   *sharedLayers
}

// reserved is a part of a machine, for kubelet.
type reserved struct{ MilliCPUs, MiB int }

// reserve returns what a machine leaves to a number of nodes without one of them.
func reserve(nodes int) (reserved, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return reserved{}, fmt.Errorf("memory of the machine: %w", err)
	}
	return reserveOf(nodes, runtime.NumCPU(), int(uint64(info.Totalram)*uint64(info.Unit)>>20)), nil
}

func reserveOf(nodes, cpus, mib int) reserved {
	nodes = max(nodes, 1)
	return reserved{MilliCPUs: cpus * 1000 * (nodes - 1) / nodes, MiB: mib * (nodes - 1) / nodes}
}

// each returns a value for each IP family, separated by commas.
func (f facts) each(value func(settings.Family) string) string {
	var values []string
	for _, of := range f.Families() {
		values = append(values, value(of))
	}
	return strings.Join(values, ",")
}

// ClusterCIDR is where the Pods of all nodes get their addresses from.
func (f facts) ClusterCIDR() string {
	return f.each(func(of settings.Family) string { return of(f.AllPods()).String() })
}

// Pause is the image of sandboxes.
func (facts) Pause() string { return image.Pause }

// Credential returns the path, inside the node, of one of the files of package settings.
func (facts) Credential(name string) string { return filepath.Join(nodeDir, name) }

// ClientCA and so on are short for templates.
func (f facts) ClientCA() string    { return f.Credential(settings.CA) }
func (f facts) ServerCert() string  { return f.Credential(settings.KubeletCert) }
func (f facts) ServerKey() string   { return f.Credential(settings.KubeletKey) }
func (f facts) ProxyClient() string { return f.Credential(settings.KubeProxyConfig) }

// The configuration has no folders in common with the machine's containerd, and leaves out what this node has no use
// for. A profile of AppArmor would be loaded into the kernel for the whole machine, and stay.
const containerdTemplate = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
temp = "/var/lib/containerd/tmp"
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs"
  {{- if eq .Snapshotter "native"}}, "io.containerd.snapshotter.v1.overlayfs"{{end}}]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{{.Snapshotter}}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Pause}}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{.Registries}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOMScore}}
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.ProgramsDir}}"]
    conf_dir = "{{.CNIConfigDir}}"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = "{{.ProgramsDir}}/containerd-shim-runc-v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = {{printf "%q" .Runtime}}
        SystemdCgroup = false
`

// Nothing is evicted, and no image removed, before the disk is really full: on a machine that people work on, a disk is
// often fuller than kubelet likes, and an image that was loaded from a file cannot be pulled again. Processes have no limit
// of their own in a Pod's manifest; without any a single Pod could use up those of the machine.
const kubeletTemplate = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{.NodeAddress.Addr}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {{.ClientCA}}}
authorization: {mode: Webhook}
tlsCertFile: {{.ServerCert}}
tlsPrivateKeyFile: {{.ServerKey}}
containerRuntimeEndpoint: unix://{{.Socket}}
cgroupDriver: cgroupfs
cgroupRoot: /{{.Cgroup}}
{{if .Rootless}}featureGates: {KubeletInUserNamespace: true}
{{end -}}
failCgroupV1: false
failSwapOn: false
resolvConf: "{{.ResolvConf}}"
clusterDNS: ["{{.NodeAddress.Addr}}"]
clusterDomain: {{.ClusterDomain}}
volumePluginDir: /var/lib/kubelet/volumeplugins
serializeImagePulls: false
podPidsLimit: 4096
imageGCHighThresholdPercent: 100
{{with .Reserved}}{{if .MilliCPUs}}systemReserved: {cpu: {{.MilliCPUs}}m, memory: {{.MiB}}Mi}
{{end}}{{end -}}
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%, imagefs.inodesFree: 1%}
`

// Limits of connection tracking belong to the machine.
const kubeProxyTemplate = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: {{.ProxyClient}}}
hostnameOverride: {{.Name}}
mode: {{.ProxyMode}}
clusterCIDR: {{.ClusterCIDR}}
bindAddress: {{.NodeAddress.Addr}}
metricsBindAddress: 127.0.0.1:10249
healthzBindAddress: 127.0.0.1:10256
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// Socket and so on are paths for templates.
func (facts) Socket() string       { return containerdSocket }
func (facts) Registries() string   { return registries }
func (facts) ProgramsDir() string  { return programsDir }
func (facts) CNIConfigDir() string { return cniConfigDir }
func (facts) ResolvConf() string   { return resolvConf }

// ClusterDomain is the end of all names of Services.
func (facts) ClusterDomain() string { return settings.ClusterDomain }

// cniConfig returns the network of Pods: each has a link of its own to the node, which routes between them; addresses are
// forgotten with the links. On a bridge, answers of one Pod to another would not pass the rules by which it was reached
// through a Service, unless the kernel filters bridges: that module is only loaded for Docker and the like, and then applies to
// every bridge of the machine.
//
// By IPv6, Pods get only the routes that lead somewhere: to Pods, nodes, the machine and Services. So clients in them prefer IPv4 to other networks.
func cniConfig(s settings.Settings) ([]byte, error) {
	type object = map[string]any
	ranges := [][]object{{{"subnet": s.PodNetwork().String()}}}
	routes := []object{{"dst": "0.0.0.0/0"}}
	var plugins []object
	if s.IPv6 {
		ranges = append(ranges, []object{{"subnet": settings.IPv6(s.PodNetwork()).String()}})
		routes = append(routes, object{"dst": settings.IPv6(s.Network).String()}, object{"dst": s.ServicesIPv6().String()})
		plugins = append(plugins, object{"type": "no-dad"}) // before there is a link
	}
	return json.MarshalIndent(object{
		"cniVersion": "1.0.0",
		"name":       "keelson",
		"plugins": append(plugins,
			object{
				"type": "ptp",
				"ipam": object{"type": "host-local", "dataDir": cniState, "ranges": ranges, "routes": routes},
			},
			object{"type": "portmap", "capabilities": object{"portMappings": true}},
		),
	}, "", "  ")
}

// writeConfig writes the configuration files of all components.
func writeConfig(f facts) error {
	for path, text := range map[string]string{
		containerdConfig: containerdTemplate, kubeletConfig: kubeletTemplate, kubeProxyConfig: kubeProxyTemplate,
	} {
		filled, err := fill(text, f)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(filled), 0o600); err != nil {
			return err
		}
	}
	cni, err := cniConfig(f.Settings)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cniConfigDir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(cniConfigDir, "10-keelson.conflist"), cni, 0o600)
}

func fill(text string, f facts) (string, error) {
	parsed, err := template.New("").Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = parsed.Execute(&b, f)
	return b.String(), err
}

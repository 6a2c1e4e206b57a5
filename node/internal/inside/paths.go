package inside

import "github.com/keelson-dev/keelson/node/internal/settings"

// Where things are inside the node. What Kubernetes and containerd keep is where their documentation says; it comes from
// the node's directory. The folders /run, /var/lib and /var/log are the node's own, so that nothing in it mistakes the
// machine's container runtime for its own; all else is the machine's.
const (
	run         = "/run/keelson"
	nodeDir     = run + "/node"
	programsDir = run + "/programs"
	kubeBinary  = run + "/keelson-kube"
	resolvConf  = run + "/resolv.conf"

	containerdConfig = run + "/containerd.toml"
	cniConfigDir     = run + "/cni"
	cniState         = run + "/cni-state"
	kubeletConfig    = run + "/kubelet.yaml"
	kubeProxyConfig  = run + "/kube-proxy.yaml"
	tunables         = run + "/tunables"

	// home is a home without anything in it.
	home = run + "/home"

	// registries is where users say how to reach a registry; it is read at each pull.
	registries = nodeDir + "/registries"

	// containerdSocket is in the node's directory, so that it is in reach of the machine, too.
	containerdSocket = nodeDir + "/" + settings.ContainerdSocket

	proxyPort = 3128
	outPort   = settings.OutPort
)

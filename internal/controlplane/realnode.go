package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/node"
)

// The certificates that only a real node needs: its own, and the one of the API as its client.
const (
	nameKubeletServer = "kubelet-server"
	nameKubeletClient = "kubelet"
	nameKubeProxy     = "kube-proxy"
	nameKubeletUser   = "apiserver-kubelet-client"
)

// kubeletUser is the user of kube-apiserver at a kubelet.
const kubeletUser = "kube-apiserver-kubelet-client"

// nodeEndTimeout is the stop timeout of a real node, which first stops its Pods.
const nodeEndTimeout = 30 * time.Second

// nodeCertificates returns the certificates for a real node.
func nodeCertificates(s node.Settings) []certificate {
	return []certificate{
		newServer(nameKubeletServer, "system:node:"+s.Name, s.Name, s.Address().String()),
		newClient(nameKubeletClient, "ca", "system:node:"+s.Name, "system:nodes"),
		newClient(nameKubeProxy, "ca", "system:kube-proxy"),
		newClient(nameKubeletUser, "ca", kubeletUser),
	}
}

// services returns the network of Services. It does not change, because they keep their addresses.
func (cp *ControlPlane) services() netip.Prefix {
	return netip.MustParsePrefix(cmp.Or(cp.state.Services, serviceNetwork)) // loadState has checked it
}

// chooseServices chooses the network of Services before any Service exists: the default, unless another node on this
// host uses it. The host can have only one route to a network.
func (cp *ControlPlane) chooseServices() error {
	_, err := os.Stat(filepath.Join(cp.dir.etcdData(), "member"))
	if cp.opts.RealNode == nil || cp.state.Services != "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	free, err := node.FreeServices(&cp.claims, cp.dir.node(), netip.MustParsePrefix(serviceNetwork))
	if err != nil {
		return fmt.Errorf("the real node: %w", err)
	}
	cp.state.Services = free.String()
	return nil
}

// prepareNode chooses the settings of the real node and writes them for it.
func (cp *ControlPlane) prepareNode() error {
	if cp.opts.RealNode == nil {
		return nil
	}
	settings, err := node.NewSettings(&cp.claims, *cp.opts.RealNode, cp.dir.node(), cp.opts.Binary, cp.state.Port, cp.services().String())
	if err != nil {
		return fmt.Errorf("the real node: %w", err)
	}
	cp.node = &settings
	if settings.Rootless != nil {
		if err := updateFile(cp.dir.egress(), []byte(egressConfig), atomicfile.Volatile); err != nil {
			return err
		}
	}
	return cp.writeNodeSettings()
}

// egressConfig has kube-apiserver reach kubelet, Pods and Services through a socket of the node, because without root the host has no
// routes to them.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: ` + node.Egress + `}}
`

// writeNodeSettings writes the settings of the node, with the port of the API.
func (cp *ControlPlane) writeNodeSettings() error {
	if err := os.MkdirAll(cp.node.Credentials(), 0o700); err != nil {
		return err
	}
	cp.node.APIPort = cp.state.Port
	data, err := cp.node.Encode()
	if err != nil {
		return err
	}
	return updateFile(cp.node.File(), data, atomicfile.Durable)
}

// writeNodeCredentials writes only the node's own certificates and keys, because everything with the node's permissions can read
// the folder. The components reload renewed files.
func (cp *ControlPlane) writeNodeCredentials() error {
	folder := cp.node.Credentials()
	for source, target := range map[string]string{
		"ca.crt":                   "ca.crt",
		nameKubeletServer + ".crt": "kubelet.crt",
		nameKubeletServer + ".key": "kubelet.key",
		nameKubeletClient + ".crt": "kubelet-client.crt",
		nameKubeletClient + ".key": "kubelet-client.key",
		nameKubeProxy + ".crt":     "kube-proxy.crt",
		nameKubeProxy + ".key":     "kube-proxy.key",
	} {
		data, err := os.ReadFile(cp.dir.pki(source))
		if err != nil {
			return err
		}
		if err := updateFile(filepath.Join(folder, target), data, atomicfile.Volatile); err != nil {
			return err
		}
	}
	// The paths are relative to the kubeconfig, because inside the node the folder is elsewhere.
	cluster := &clientcmdapi.Cluster{Server: serverURL(cp.state.Port), CertificateAuthority: "ca.crt"}
	for component, files := range map[string]string{"kubelet": "kubelet-client", "kube-proxy": "kube-proxy"} {
		user := &clientcmdapi.AuthInfo{ClientCertificate: files + ".crt", ClientKey: files + ".key"}
		if err := writeKubeconfig(filepath.Join(folder, component+".kubeconfig"), defaultName, cluster, user); err != nil {
			return err
		}
	}
	return nil
}

// nodeArgs are the flags by which kube-apiserver authenticates to a real node, for logs and the like.
func (cp *ControlPlane) nodeArgs() []string {
	if cp.node == nil {
		return nil
	}
	file := cp.dir.pki
	args := []string{
		"--kubelet-client-certificate=" + file(nameKubeletUser+".crt"),
		"--kubelet-client-key=" + file(nameKubeletUser+".key"),
		"--kubelet-certificate-authority=" + file("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
	}
	if cp.node.Rootless != nil {
		args = append(args, "--egress-selector-config-file="+cp.dir.egress())
	}
	return args
}

// simulatedNodeArgs are the flags by which kube-apiserver reaches simulated nodes, which have the same certificate authority. A
// kube-apiserver of an earlier version runs without them, and its clients get no logs until it is restarted.
func (cp *ControlPlane) simulatedNodeArgs() []string {
	if cp.node != nil {
		return nil
	}
	return []string{"--kubelet-certificate-authority=" + cp.dir.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP"}
}

// realNode is a node that executes its Pods. It is one process, which ends together with all its children.
func (cp *ControlPlane) realNode() *component {
	return &component{
		name:          nameNode,
		binary:        filepath.Join(cp.node.Programs, node.Program),
		args:          func() []string { return []string{"run", cp.node.File()} },
		inputs:        []string{cp.node.File()},
		ready:         cp.checkRealNode,
		readyInterval: 50 * time.Millisecond,
		readyTimeout:  2 * time.Minute,
	}
}

// checkRealNode returns an error unless the real node has reported since its start that it is ready.
func (cp *ControlPlane) checkRealNode(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	n, err := client.CoreV1().Nodes().Get(ctx, cp.node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	started, err := cp.procs.Find(nameNode)
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch {
		case c.LastHeartbeatTime.Time.Before(started.Status().StartedAt.Truncate(time.Second)):
			return errors.New("it has not reported yet")
		case c.Status != corev1.ConditionTrue:
			return errors.New(c.Message)
		default:
			return nil
		}
	}
	return errors.New("it has not reported yet")
}

// admitNode creates the API objects that a real node needs.
func (cp *ControlPlane) admitNode(ctx context.Context, client kubernetes.Interface) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "keelson:" + kubeletUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeletUser}},
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	wanted := cp.newAPIEndpoints()
	_, err = slices.Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := slices.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	existing.Endpoints, existing.Ports = wanted.Endpoints, wanted.Ports
	_, err = slices.Update(ctx, existing, metav1.UpdateOptions{})
	return err
}

// newAPIEndpoints returns the endpoints of the Service "kubernetes": the node, which forwards connections to the API.
// kube-apiserver does not maintain them, because it only listens on loopback.
func (cp *ControlPlane) newAPIEndpoints() *discoveryv1.EndpointSlice {
	cp.mu.Lock()
	port := int32(cp.state.Port)
	cp.mu.Unlock()
	name, protocol, ready := "https", corev1.ProtocolTCP, true
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes", discoveryv1.LabelManagedBy: "keelson.dev"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{cp.node.Address().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
}

// settleRealNode starts the real node, or removes an earlier one.
func (cp *ControlPlane) settleRealNode(ctx context.Context, client kubernetes.Interface) error {
	if cp.node == nil {
		return cp.dismissNode(ctx, client)
	}
	if err := cp.admitNode(ctx, client); err != nil {
		return err
	}
	return cp.step(ctx, cp.realNode())
}

// nodeRemovalTimeout limits how long a start waits for the API to delete the Node of a real node.
const nodeRemovalTimeout = time.Minute

// dismissNode deletes the Node of an earlier real node.
func (cp *ControlPlane) dismissNode(ctx context.Context, client kubernetes.Interface) error {
	cp.mu.Lock()
	leftOver := cp.state.RealNode
	cp.mu.Unlock()
	if !leftOver {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, nodeRemovalTimeout, fmt.Errorf("waited %s", nodeRemovalTimeout))
	defer cancel()
	err := client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the former Node %s: %w", node.Name, err)
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.state.RealNode = false
	return saveState(cp.dir, cp.state)
}

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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryapply "k8s.io/client-go/applyconfigurations/discovery/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/pki"
)

// The certificates that only a real node needs: its own, and the one of the API as its client.
const (
	nameKubeletServer = "kubelet-server"
	nameKubeletClient = "kubelet"
	nameKubeProxy     = "kube-proxy" // of all nodes
	nameKubeletUser   = "apiserver-kubelet-client"
	nameVolumes       = "volumes"  // of the provisioners of all nodes
	namePolicies      = "policies" // of what enforces NetworkPolicies in all nodes
)

// volumesUser is the user of the provisioners of volumes.
const volumesUser = "keelson:volume-provisioner"

// policiesUser is the user of what enforces NetworkPolicies.
const policiesUser = "keelson:network-policy"

// kubeletUser is the user of kube-apiserver at a kubelet.
const kubeletUser = "kube-apiserver-kubelet-client"

// nodeEndTimeout is the stop timeout of a real node, which first stops its Pods.
const nodeEndTimeout = 30 * time.Second

// nodeCertificates returns the certificates for real nodes.
func nodeCertificates(nodes []node.Settings) []pki.Certificate {
	if len(nodes) == 0 {
		return nil
	}
	wanted := []pki.Certificate{pki.NewClient(nameKubeProxy, "ca", "system:kube-proxy"), pki.NewClient(nameKubeletUser, "ca", kubeletUser), pki.NewClient(nameVolumes, "ca", volumesUser),
		pki.NewClient(namePolicies, "ca", policiesUser), pki.NewServer(nameMetrics, "ca", nameMetrics, metricsHost)}
	for _, s := range nodes {
		wanted = append(wanted,
			pki.NewServer(numbered(nameKubeletServer, s.Index), "ca", "system:node:"+s.Name, s.Name, s.Address().String()),
			pki.NewClient(numbered(nameKubeletClient, s.Index), "ca", "system:node:"+s.Name, "system:nodes"))
	}
	return wanted
}

// serviceNetworks returns the networks of Services, as flags have them. They do not change, because Services keep their addresses.
func (cp *ControlPlane) serviceNetworks() string { return cmp.Or(cp.state.Services, serviceNetwork) }

// services returns the IPv4 network of Services.
func (cp *ControlPlane) services() netip.Prefix {
	network, _, _ := strings.Cut(cp.serviceNetworks(), ",")
	return netip.MustParsePrefix(network) // loadState has checked it
}

// chooseServices chooses the network of Services before any Service exists: the default, unless another node on this
// host uses it. The host can have only one route to a network. Services of a data directory that was made without IPv6 never have it.
func (cp *ControlPlane) chooseServices() error {
	_, err := os.Stat(filepath.Join(cp.dir.etcdData(), "member"))
	if cp.opts.RealNode == nil && !cp.opts.OwnServices || cp.state.Services != "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var usual netip.Prefix
	if !cp.opts.OwnServices {
		usual = netip.MustParsePrefix(serviceNetwork)
	}
	free, err := node.FreeServices(&cp.claims, string(cp.dir), usual)
	switch {
	case err != nil && cp.opts.RealNode == nil:
		return nil // it matters to real nodes only
	case err != nil:
		return fmt.Errorf("the real node: %w", err)
	}
	cp.state.Services = free.String()
	if cp.opts.RealNode != nil && cp.opts.RealNode.IPv6 {
		cp.state.Services += "," + node.ServicesIPv6(free).String()
	}
	return nil
}

// prepareNodes chooses the settings of the real nodes and writes them.
func (cp *ControlPlane) prepareNodes() error {
	if cp.opts.RealNode == nil {
		return nil
	}
	if cp.opts.OwnServices {
		free, err := node.ClaimServices(&cp.claims, string(cp.dir), cp.services())
		if err != nil {
			return fmt.Errorf("the real node: %w", err)
		}
		if !free {
			return fmt.Errorf("the real node: the host has a route to %s, the network of the Services of this cluster, or another cluster with real "+
				"nodes uses it: remove that route, or stop that cluster", cp.services())
		}
	}
	all, err := node.NewSettings(&cp.claims, *cp.opts.RealNode, string(cp.dir), cp.indexes, cp.opts.Binary, cp.state.Port, cp.services(), strings.Contains(cp.serviceNetworks(), ","))
	if err != nil {
		return fmt.Errorf("the real node: %w", err)
	}
	if cp.adopted {
		for i := range all {
			all[i] = node.AsStarted(all[i])
		}
	}
	cp.nodes = all
	if cp.rootless() {
		if err := updateFile(cp.dir.egress(), []byte(egressConfig), atomicfile.Volatile); err != nil {
			return err
		}
	}
	return cp.writeNodeSettings()
}

// rootless reports whether there is a real node that runs without root.
func (cp *ControlPlane) rootless() bool {
	nodes := cp.realNodes()
	return len(nodes) > 0 && nodes[0].Rootless != nil
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

// writeNodeSettings writes the settings of the real nodes, with the port of the API.
func (cp *ControlPlane) writeNodeSettings() error {
	for i := range cp.nodes {
		s := &cp.nodes[i]
		if err := os.MkdirAll(s.Credentials(), 0o700); err != nil {
			return err
		}
		s.APIPort = cp.state.Port
		data, err := s.Encode()
		if err != nil {
			return err
		}
		if err := updateFile(s.File(), data, atomicfile.Durable); err != nil {
			return err
		}
	}
	return nil
}

// writeNodeCredentials writes only the node's own certificates and keys, because everything with the node's permissions can read
// the folder. The components reload renewed files.
func (cp *ControlPlane) writeNodeCredentials(s node.Settings) error {
	folder := s.Credentials()
	server, client := numbered(nameKubeletServer, s.Index), numbered(nameKubeletClient, s.Index)
	for source, target := range map[string]string{
		"ca.crt":               "ca.crt",
		server + ".crt":        "kubelet.crt",
		server + ".key":        "kubelet.key",
		client + ".crt":        "kubelet-client.crt",
		client + ".key":        "kubelet-client.key",
		nameKubeProxy + ".crt": "kube-proxy.crt",
		nameKubeProxy + ".key": "kube-proxy.key",
		nameVolumes + ".crt":   "volumes.crt",
		nameVolumes + ".key":   "volumes.key",
		namePolicies + ".crt":  "policies.crt",
		namePolicies + ".key":  "policies.key",
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
	cluster := &clientcmdapi.Cluster{Server: cp.state.server(), CertificateAuthority: "ca.crt"}
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
	if len(cp.realNodes()) == 0 {
		return nil
	}
	file := cp.dir.pki
	args := []string{
		"--kubelet-client-certificate=" + file(nameKubeletUser+".crt"),
		"--kubelet-client-key=" + file(nameKubeletUser+".key"),
		"--kubelet-certificate-authority=" + file("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
	}
	if cp.rootless() {
		args = append(args, "--egress-selector-config-file="+cp.dir.egress())
	}
	return args
}

// simulatedNodeArgs are the flags by which kube-apiserver reaches simulated nodes, which have the same certificate authority.
func (cp *ControlPlane) simulatedNodeArgs() []string {
	if len(cp.realNodes()) > 0 {
		return nil
	}
	return []string{"--kubelet-certificate-authority=" + cp.dir.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP"}
}

// realNode is a node that executes its Pods. It is one process, which ends together with all its children.
func (cp *ControlPlane) realNode(s node.Settings) *component {
	return &component{
		name:   numbered(nameNode, s.Index),
		binary: filepath.Join(s.Programs, node.Program),
		args:   func() []string { return []string{"run", s.File()} },
		inputs: []string{s.File()},
		prepare: func(ctx context.Context) error {
			return errors.Join(node.Clean(ctx, s.Dir), awaitPower(ctx, s.Dir))
		},
		ready: func(ctx context.Context) error {
			if err := cp.checkRealNode(ctx, s); err != nil {
				return err
			}
			return s.LoadImages(ctx, cp.opts.Images)
		},
		readyInterval: 50 * time.Millisecond,
		readyTimeout:  2 * time.Minute,
	}
}

// launchNode starts a real node, and waits in the background until it is ready.
func (cp *ControlPlane) launchNode(s node.Settings) error {
	c := cp.realNode(s)
	if err := cp.launch(cp.supervision, c); err != nil {
		return err
	}
	cp.wg.Go(func() {
		if err := c.awaitReady(cp.supervision); err != nil && cp.supervision.Err() == nil {
			cp.opts.Log.Error(err, "A real node is not ready", "node", s.Name)
		}
	})
	return nil
}

// powerInterval is the interval at which a node that is powered off is looked at.
const powerInterval = 200 * time.Millisecond

// awaitPower waits until the node with this directory may be started.
func awaitPower(ctx context.Context, dir string) error {
	for node.IsPoweredOff(dir) {
		if !pause(ctx, powerInterval) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// checkRealNode returns an error unless a real node has reported since its start that it is ready.
func (cp *ControlPlane) checkRealNode(ctx context.Context, s node.Settings) error {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	n, err := client.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	started, err := cp.procs.Find(numbered(nameNode, s.Index))
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

// admitNodes creates the API objects that real nodes need.
func (cp *ControlPlane) admitNodes(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, newPoliciesRole(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for name, grant := range map[string]struct{ role, user string }{
		"keelson:" + kubeletUser: {"system:kubelet-api-admin", kubeletUser},
		volumesUser:              {"system:persistent-volume-provisioner", volumesUser},
		policiesUser:             {policiesUser, policiesUser},
	} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: grant.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: grant.user}},
		}
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	_, err := client.StorageV1().StorageClasses().Create(ctx, newStorageClass(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return cp.publishAPI(ctx, client)
}

// newPoliciesRole returns the permissions of what enforces NetworkPolicies.
func newPoliciesRole() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: policiesUser},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"list", "watch"}},
		},
	}
}

// newStorageClass returns the default class of volumes: folders of the node on which their first Pod runs.
func newStorageClass() *storagev1.StorageClass {
	binding := storagev1.VolumeBindingWaitForFirstConsumer
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       "keelson.dev/local", // in every node; see node/internal/settings
		VolumeBindingMode: &binding,
	}
}

// publishAPI writes the endpoints of the Service "kubernetes": an address that every node has for itself, where it forwards connections
// to the API. kube-apiserver does not maintain them, because it only listens on loopback. Some clients read the older Endpoints, of which
// Kubernetes would make another EndpointSlice.
func (cp *ControlPlane) publishAPI(ctx context.Context, client kubernetes.Interface) error {
	cp.mu.Lock()
	port, address := int32(cp.state.Port), cp.nodes[0].APIAddress().String()
	cp.mu.Unlock()
	const name, portName = "kubernetes", "https"
	options := metav1.ApplyOptions{FieldManager: "keelson", Force: true}
	slice := discoveryapply.EndpointSlice(name, metav1.NamespaceDefault).
		WithLabels(map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "keelson.dev"}).
		WithAddressType(discoveryv1.AddressTypeIPv4).
		WithEndpoints(discoveryapply.Endpoint().WithAddresses(address).WithConditions(discoveryapply.EndpointConditions().WithReady(true))).
		WithPorts(discoveryapply.EndpointPort().WithName(portName).WithPort(port).WithProtocol(corev1.ProtocolTCP))
	if _, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Apply(ctx, slice, options); err != nil {
		return err
	}
	endpoints := coreapply.Endpoints(name, metav1.NamespaceDefault).
		WithLabels(map[string]string{discoveryv1.LabelSkipMirror: "true"}).
		WithSubsets(coreapply.EndpointSubset().
			WithAddresses(coreapply.EndpointAddress().WithIP(address)).
			WithPorts(coreapply.EndpointPort().WithName(portName).WithPort(port).WithProtocol(corev1.ProtocolTCP)))
	_, err := client.CoreV1().Endpoints(metav1.NamespaceDefault).Apply(ctx, endpoints, options)
	return err
}

package hosted

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Components, in labels.
const (
	componentEtcd = "etcd"
	componentAPI  = "apiserver"
)

// Ports.
const (
	apiPort     = 6443
	clientPort  = 2379
	peerPort    = 2380
	metricsPort = 2381 // of etcd, which responds to probes there
)

const (
	// user is the user and group of all processes: that of the image.
	user int64 = 65532
	// pkiDir is where a Pod has its files of the Secret, and dataDir the data of etcd.
	pkiDir  = "/pki/"
	dataDir = "/data"
	// defaultStorage is the default size of the claim of each member of etcd.
	defaultStorage = "2Gi"
	// progressDeadline is after how many seconds without progress an operation has failed: an image may have to be pulled.
	progressDeadline = 300
)

// inPod returns the path of a file of the Secret.
func inPod(file string) string { return pkiDir + file }

// service is that of the API.
func (p place) service() *corev1.Service {
	return &corev1.Service{ObjectMeta: p.meta(p.name, ""), Spec: corev1.ServiceSpec{
		Selector: p.labels(componentAPI),
		Ports:    []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(apiPort), Protocol: corev1.ProtocolTCP}},
	}}
}

// objects returns what a desired control plane consists of, besides the Secret and the Service of the API, in the order of their
// dependencies.
func (p place) objects(wanted desire, hash string) []client.Object {
	all := []client.Object{p.etcdService(), p.etcdPolicy(), p.statefulSet(wanted), p.deployment(wanted)}
	for _, workload := range all[2:] {
		workload.GetAnnotations()[annotationHash] = hash
		workload.GetAnnotations()[annotationVersion] = wanted.spec.Version
	}
	if wanted.replicas > 1 {
		all = append(all, p.budget(p.etcd(), componentEtcd), p.budget(p.name, componentAPI))
	}
	return all
}

// etcdService gives the members of etcd DNS names, also before they are ready: they need each other for that.
func (p place) etcdService() *corev1.Service {
	return &corev1.Service{ObjectMeta: p.meta(p.etcd(), componentEtcd), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: p.labels(componentEtcd),
		Ports: []corev1.ServicePort{{Name: "client", Port: clientPort, Protocol: corev1.ProtocolTCP}, {Name: "peer", Port: peerPort, Protocol: corev1.ProtocolTCP}},
	}}
}

// etcdPolicy allows only the API servers and other members to connect to etcd.
func (p place) etcdPolicy() *networkingv1.NetworkPolicy {
	from := func(component string) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: p.labels(component)}}}
	}
	port := func(number int32) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(number)), Protocol: ptr.To(corev1.ProtocolTCP)}}
	}
	return &networkingv1.NetworkPolicy{ObjectMeta: p.meta(p.etcd(), componentEtcd), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: p.labels(componentEtcd)}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: from(componentAPI), Ports: port(clientPort)}, {From: from(componentEtcd), Ports: append(port(clientPort), port(peerPort)...)},
		},
	}}
}

// budget lets a drain evict one Pod of a component at a time.
func (p place) budget(name, component string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: p.meta(name, component), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: p.labels(component)},
	}}
}

// statefulSet runs etcd.
func (p place) statefulSet(wanted desire) *appsv1.StatefulSet {
	url := func(host string, port int) string { return fmt.Sprintf("https://%s:%d", host, port) }
	var members []string
	for i := range wanted.replicas {
		name := p.member(i)
		members = append(members, name+"="+url(p.host(name), peerPort))
	}
	own := p.host("$(POD_NAME)")
	etcd := newContainer("etcd", wanted.image, resources("100m", "96Mi", "2Gi"),
		"--name=$(POD_NAME)", "--data-dir="+dataDir+"/etcd",
		"--listen-client-urls="+url("0.0.0.0", clientPort), "--advertise-client-urls="+url(own, clientPort),
		"--listen-peer-urls="+url("0.0.0.0", peerPort), "--initial-advertise-peer-urls="+url(own, peerPort),
		"--initial-cluster="+strings.Join(members, ","), "--initial-cluster-token="+string(p.uid),
		"--client-cert-auth", "--trusted-ca-file="+inPod("etcd-ca.crt"), "--cert-file="+inPod("etcd.crt"), "--key-file="+inPod("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file="+inPod("etcd-ca.crt"), "--peer-cert-file="+inPod("etcd.crt"), "--peer-key-file="+inPod("etcd.key"),
		"--listen-metrics-urls=http://0.0.0.0:"+strconv.Itoa(metricsPort), "--log-level=warn",
	)
	etcd.Env = []corev1.EnvVar{fieldVariable("POD_NAME", "metadata.name")}
	etcd.VolumeMounts = append(etcd.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: dataDir})
	etcd.ReadinessProbe = newProbe("/readyz", metricsPort, corev1.URISchemeHTTP)
	etcd.LivenessProbe = patient(newProbe("/livez", metricsPort, corev1.URISchemeHTTP))
	size := resource.MustParse(defaultStorage)
	if wanted.storage.Size != nil {
		size = *wanted.storage.Size
	}
	return &appsv1.StatefulSet{ObjectMeta: p.meta(p.etcd(), componentEtcd), Spec: appsv1.StatefulSetSpec{
		Replicas: &wanted.replicas, ServiceName: p.etcd(), PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: p.labels(componentEtcd)},
		Template: p.newTemplate(componentEtcd, []string{"etcd-ca.crt", "etcd.crt", "etcd.key"}, etcd),
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: p.labels(componentEtcd)},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: wanted.storage.StorageClassName,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			},
		}},
	}}
}

// deployment runs API servers, each with its kube-controller-manager and kube-scheduler. These start when the API server answers, because
// together they would take the processors that it needs for its own start.
func (p place) deployment(wanted desire) *appsv1.Deployment {
	var endpoints []string
	for i := range wanted.replicas {
		endpoints = append(endpoints, fmt.Sprintf("https://%s:%d", p.host(p.member(i)), clientPort))
	}
	flags := append([]string{
		"--etcd-servers=" + strings.Join(endpoints, ","), "--etcd-cafile=" + inPod("etcd-ca.crt"), "--etcd-certfile=" + inPod("etcd-client.crt"), "--etcd-keyfile=" + inPod("etcd-client.key"),
		"--secure-port=" + strconv.Itoa(apiPort), "--advertise-address=$(POD_IP)", "--authentication-config=" + inPod(authenticationKey),
	}, controlplane.APIServerFlags(inPod, clientsKey, wanted.services)...)
	api := newContainer(cluster.ComponentAPIServer, wanted.image, resources("200m", "256Mi", "2Gi"), append(flags, wanted.flags...)...)
	api.Env = []corev1.EnvVar{fieldVariable("POD_IP", "status.podIP")}
	api.Ports = []corev1.ContainerPort{{Name: "https", ContainerPort: apiPort, Protocol: corev1.ProtocolTCP}}
	api.ReadinessProbe = newProbe("/readyz", apiPort, corev1.URISchemeHTTPS)
	api.LivenessProbe = patient(newProbe("/livez", apiPort, corev1.URISchemeHTTPS))
	api.StartupProbe = newProbe("/readyz", apiPort, corev1.URISchemeHTTPS)
	api.StartupProbe.FailureThreshold = progressDeadline
	api.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	elect := "--leader-elect=" + strconv.FormatBool(wanted.replicas > 1)
	managerFlags := append(controlplane.ClientFlags(inPod(controllerManager+".kubeconfig")), controlplane.ControllerManagerFlags(inPod, "ca", wanted.services)...)
	manager := newContainer(controllerManager, wanted.image, resources("50m", "64Mi", "1Gi"), append(managerFlags, elect, "--secure-port=0", "--flex-volume-plugin-dir=/tmp/flexvolume")...)
	assigner := newContainer(scheduler, wanted.image, resources("20m", "64Mi", "1Gi"), append(controlplane.ClientFlags(inPod(scheduler+".kubeconfig")), elect, "--secure-port=0")...)
	mounted := []string{
		"ca.crt", "ca.key", "sa.key", "front-proxy-ca.crt", "front-proxy-client.crt", "front-proxy-client.key", "apiserver.crt", "apiserver.key",
		"etcd-ca.crt", "etcd-client.crt", "etcd-client.key", authenticationKey, clientsKey,
	}
	for _, name := range []string{controllerManager, scheduler} {
		mounted = append(mounted, name+".crt", name+".key", name+".kubeconfig")
	}
	template := p.newTemplate(componentAPI, mounted, manager, assigner)
	template.Spec.InitContainers = []corev1.Container{api}
	return &appsv1.Deployment{ObjectMeta: p.meta(p.name, componentAPI), Spec: appsv1.DeploymentSpec{
		Replicas: &wanted.apiServers, ProgressDeadlineSeconds: ptr.To[int32](progressDeadline),
		Selector: &metav1.LabelSelector{MatchLabels: p.labels(componentAPI)}, Template: template,
	}}
}

// newTemplate returns the template of Pods that Pod Security restricted accepts, with files of the Secret.
func (p place) newTemplate(component string, mounted []string, containers ...corev1.Container) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: p.labels(component), Annotations: map[string]string{annotationName: p.cluster}},
		Spec: corev1.PodSpec{
			Containers: containers, AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(user), RunAsGroup: ptr.To(user), FSGroup: ptr.To(user),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			// A member of etcd has no name before its Pod has an address. Who looks for it earlier asks the name servers of the node
			// in the end, and would wait for one that is away for 5 seconds, twice.
			DNSConfig: &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "timeout", Value: ptr.To("1")}, {Name: "attempts", Value: ptr.To("1")}}},
			Volumes: []corev1.Volume{
				{Name: "pki", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: p.name, Items: files(mounted...), DefaultMode: ptr.To[int32](0o440)}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("64Mi"))}}},
			},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: p.labels(component)},
			}},
		},
	}
}

// newContainer returns a container that runs a component of keelson-kube.
func newContainer(component, image string, needs corev1.ResourceRequirements, flags ...string) corev1.Container {
	return corev1.Container{
		Name: component, Image: image, Command: append([]string{"/keelson-kube", component}, flags...), Resources: needs,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "pki", MountPath: strings.TrimSuffix(pkiDir, "/"), ReadOnly: true}, {Name: "tmp", MountPath: "/tmp"}},
	}
}

// resources returns requests, and a limit of memory. Without a limit of processors, a burst is not throttled.
func resources(cpu, memory, mostMemory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(mostMemory)},
	}
}

func fieldVariable(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// newProbe returns a probe that succeeds as soon as possible.
func newProbe(path string, port int32, scheme corev1.URIScheme) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port), Scheme: scheme}},
		PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 5, SuccessThreshold: 1,
	}
}

// patient returns a probe that restarts a container only after a minute.
func patient(probe *corev1.Probe) *corev1.Probe {
	probe.PeriodSeconds, probe.FailureThreshold, probe.TimeoutSeconds, probe.InitialDelaySeconds = 10, 6, 10, 30
	return probe
}

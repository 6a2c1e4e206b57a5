package access

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,resourceNames=v1alpha1.access.cloudnative.tw,verbs=get;update
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=get
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=services,resourceNames=keelson-access,verbs=get
// +kubebuilder:rbac:namespace=keelson-system,groups=discovery.k8s.io,resources=endpointslices,verbs=create
// +kubebuilder:rbac:namespace=keelson-system,groups=discovery.k8s.io,resources=endpointslices,resourceNames=keelson-access,verbs=get;update
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=secrets,resourceNames=keelson-access-ca,verbs=get;update

// SecretName is the name of the Secret with the authority of the certificates of an installation.
const SecretName = "keelson-access-ca"

// portName is the name of the port in the Service of an installation.
const portName = "access"

// Endpoint makes the Service of an installation lead to this server. The Service has no selector: of all replicas, only the
// leader has the machines. The Service and the APIService come with the installation, and go with it.
type Endpoint struct {
	// Client writes, Live reads without a cache.
	Client kube.Client
	Live   kube.Reader
	// Service is the name of the Service, and of its EndpointSlice.
	Service kube.ObjectKey
	// Address is where kube-apiserver reaches this server.
	Address netip.AddrPort
}

// Install makes the Service lead here, and kube-apiserver trust an authority, as PEM.
func (e *Endpoint) Install(ctx context.Context, bundle []byte) error {
	if err := e.lead(ctx); err != nil {
		return fmt.Errorf("make Service %s lead to this manager: %w", e.Service, err)
	}
	if err := e.trust(ctx, bundle); err != nil {
		return fmt.Errorf("write caBundle of APIService %s: %w", APIServiceName, err)
	}
	return nil
}

const howWithout = "apply that of the installation, or start the manager with --access-bind-address=0"

// lead writes the EndpointSlice of the Service. It replaces the address of the leader before.
func (e *Endpoint) lead(ctx context.Context) error {
	var service corev1.Service
	if err := e.Live.Get(ctx, e.Service, &service); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no such Service: %s", howWithout)
	} else if err != nil {
		return err
	}
	wanted, present := newEndpointSlice(&service, e.Address), &discoveryv1.EndpointSlice{}
	err := e.Live.Get(ctx, e.Service, present)
	if apierrors.IsNotFound(err) {
		return e.Client.Create(ctx, wanted)
	}
	if err != nil {
		return err
	}
	wanted.ResourceVersion = present.ResourceVersion
	isSame := equality.Semantic.DeepDerivative(wanted.Endpoints, present.Endpoints) && len(present.Endpoints) == 1 &&
		equality.Semantic.DeepDerivative(wanted.Ports, present.Ports) && equality.Semantic.DeepDerivative(wanted.Labels, present.Labels) &&
		equality.Semantic.DeepEqual(wanted.OwnerReferences, present.OwnerReferences)
	if isSame {
		return nil
	}
	return e.Client.Update(ctx, wanted)
}

// newEndpointSlice returns the EndpointSlice of a Service that leads to an address.
func newEndpointSlice(service *corev1.Service, address netip.AddrPort) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if address.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name,
			Labels: map[string]string{
				"app.kubernetes.io/name": "keelson", discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "keelson",
			},
			// It goes with the Service.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}},
		},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{
			Name: ptr.To(portName), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(address.Port())),
		}},
	}
}

// trust sets caBundle.
func (e *Endpoint) trust(ctx context.Context, bundle []byte) error {
	present := newAPIService()
	err := e.Live.Get(ctx, kube.ObjectKeyFromObject(present), present)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no such APIService: %s", howWithout)
	}
	if err != nil {
		return err
	}
	namespace, _, _ := unstructured.NestedString(present.Object, "spec", "service", "namespace")
	name, _, _ := unstructured.NestedString(present.Object, "spec", "service", "name")
	if at := (kube.ObjectKey{Namespace: namespace, Name: name}); at != e.Service {
		return fmt.Errorf("it names the Service %s, of another manager: only one in a cluster can serve the access API", at)
	}
	encoded := base64.StdEncoding.EncodeToString(bytes.TrimSpace(bundle))
	if got, _, _ := unstructured.NestedString(present.Object, "spec", "caBundle"); got == encoded {
		return nil
	}
	if err := unstructured.SetNestedField(present.Object, encoded, "spec", "caBundle"); err != nil {
		return err
	}
	return e.Client.Update(ctx, present)
}

// Remove makes the Service lead nowhere, unless it leads to another manager, so that kube-apiserver refuses requests at once.
func (e *Endpoint) Remove(ctx context.Context) error {
	present := &discoveryv1.EndpointSlice{}
	if err := e.Live.Get(ctx, e.Service, present); err != nil {
		return kube.IgnoreNotFound(err)
	}
	ours := newEndpointSlice(&corev1.Service{}, e.Address)
	if !equality.Semantic.DeepDerivative(ours.Endpoints, present.Endpoints) || !equality.Semantic.DeepDerivative(ours.Ports, present.Ports) {
		return nil
	}
	present.Endpoints = nil
	if err := e.Client.Update(ctx, present); kube.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the address of this manager from EndpointSlice %s: %w", e.Service, err)
	}
	return nil
}

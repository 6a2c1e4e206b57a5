package access

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/access/client"
)

const (
	// APIServiceName is the name of the APIService.
	APIServiceName = client.Version + "." + client.Group
	// ServiceName is the name of the Service that the APIService names, and of the FlowSchema.
	ServiceName = "keelson-access"
	// ServiceNamespace is the namespace of that Service.
	ServiceNamespace = rbac.Home

	registrationGroup = "apiregistration.k8s.io"
)

// ServerName is the name that kube-apiserver expects in the certificate.
const ServerName = ServiceName + "." + ServiceNamespace + ".svc"

// ClusterRules and NamespaceRules are the permissions that a server and its registration need, in the cluster and in
// ServiceNamespace. Those of ConfigMapRules are for the namespace ConfigMapNamespace.
func ClusterRules() []rbacv1.PolicyRule {
	services := rbacv1.PolicyRule{APIGroups: []string{registrationGroup}, Resources: []string{"apiservices"}}
	reviews := rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}}
	schemas := rbacv1.PolicyRule{APIGroups: []string{flowcontrolv1.GroupName}, Resources: []string{"flowschemas"}}
	return append(append(createAndChange(services, APIServiceName), createAndChange(schemas, ServiceName)...), reviews)
}

// NamespaceRules are described at ClusterRules.
func NamespaceRules() []rbacv1.PolicyRule {
	return createAndChange(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}}, ServiceName)
}

// ConfigMapRules are described at ClusterRules.
func ConfigMapRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{ConfigMapName}, Verbs: []string{"get"}}}
}

// createAndChange allows all that a registration does with an object.
func createAndChange(rule rbacv1.PolicyRule, name string) []rbacv1.PolicyRule {
	create, change := rule, rule
	create.Verbs = []string{"create"} // a rule cannot limit it to a name
	change.Verbs, change.ResourceNames = []string{"delete", "get", "update"}, []string{name}
	return []rbacv1.PolicyRule{create, change}
}

// Registration registers a server with the kube-apiserver of the same host: with an APIService whose Service leads to
// loopback.
type Registration struct {
	// Client writes, Live reads without a cache.
	Client kube.Client
	Live   kube.Reader
	// Port is that of the server on loopback.
	Port int32

	mu sync.Mutex
	// installed and ended mean that Install and Remove were called.
	installed, ended bool
}

// Install creates or updates the objects. bundle is the authority of the server, as PEM.
func (r *Registration) Install(ctx context.Context, bundle []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	r.installed = true
	if err := r.installService(ctx); err != nil {
		return fmt.Errorf("install Service %s/%s: %w", ServiceNamespace, ServiceName, err)
	}
	if err := r.installFlowSchema(ctx); err != nil {
		return fmt.Errorf("install FlowSchema %s: %w", ServiceName, err)
	}
	if err := r.installAPIService(ctx, bundle); err != nil {
		return fmt.Errorf("install APIService %s: %w", APIServiceName, err)
	}
	return nil
}

// installService makes the Service lead to this server.
func (r *Registration) installService(ctx context.Context) error {
	wanted := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ServiceNamespace, Name: ServiceName, Labels: labels()},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: r.Port}},
		},
	}
	present := &corev1.Service{}
	err := r.Live.Get(ctx, kube.ObjectKeyFromObject(wanted), present)
	if apierrors.IsNotFound(err) {
		return r.Client.Create(ctx, wanted)
	}
	if err != nil || equality.Semantic.DeepDerivative(wanted.Spec, present.Spec) {
		return err
	}
	present.Spec, present.Labels = wanted.Spec, wanted.Labels
	return r.Client.Update(ctx, present)
}

// installFlowSchema makes kube-apiserver hold no seat of priority and fairness for an open console, which it takes for a
// short request. The server itself limits sessions.
func (r *Registration) installFlowSchema(ctx context.Context) error {
	group := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
	}
	wanted := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: ServiceName, Labels: labels()},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: flowcontrolv1.PriorityLevelConfigurationNameExempt},
			MatchingPrecedence:         1000,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{group("system:authenticated"), group("system:unauthenticated")},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"get"}, APIGroups: []string{client.Group},
					Resources: []string{client.Resource + "/" + client.Console, client.Resource + "/" + client.Screen},

					Namespaces: []string{flowcontrolv1.NamespaceEvery},
				}},
			}},
		},
	}
	present := &flowcontrolv1.FlowSchema{}
	err := r.Live.Get(ctx, kube.ObjectKeyFromObject(wanted), present)
	if apierrors.IsNotFound(err) {
		return r.Client.Create(ctx, wanted)
	}
	if err != nil || equality.Semantic.DeepEqual(wanted.Spec, present.Spec) {
		return err
	}
	present.Spec, present.Labels = wanted.Spec, wanted.Labels
	return r.Client.Update(ctx, present)
}

// installAPIService makes kube-apiserver pass requests on to the Service.
func (r *Registration) installAPIService(ctx context.Context, bundle []byte) error {
	present := newAPIService()
	err := r.Live.Get(ctx, kube.ObjectKeyFromObject(present), present)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	isNew := err != nil
	wanted := map[string]any{
		"group": client.Group, "version": client.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
		"caBundle": base64.StdEncoding.EncodeToString(bytes.TrimSpace(bundle)),
		"service":  map[string]any{"namespace": ServiceNamespace, "name": ServiceName, "port": int64(r.Port)},
	}
	if spec, _, _ := unstructured.NestedMap(present.Object, "spec"); equality.Semantic.DeepEqual(spec, wanted) {
		return nil
	}
	present.Object["spec"] = wanted
	if isNew {
		return r.Client.Create(ctx, present)
	}
	return r.Client.Update(ctx, present)
}

// Remove removes the objects, unless another server has replaced them. An APIService without a server would make clients
// warn at each discovery, and kube-controller-manager keep namespaces that are deleted.
func (r *Registration) Remove(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if !r.installed {
		return nil
	}
	present := newAPIService()
	if err := r.Live.Get(ctx, kube.ObjectKeyFromObject(present), present); err != nil {
		return kube.IgnoreNotFound(err)
	}
	if port, _, _ := unstructured.NestedInt64(present.Object, "spec", "service", "port"); port != int64(r.Port) {
		return nil
	}
	return remove(ctx, r.Client, present)
}

// RemoveAbandoned removes what a Registration left behind that was killed. Nobody may be running one. It leaves the
// registration of an installation, whose Service is another one.
func RemoveAbandoned(ctx context.Context, config *rest.Config) error {
	c, err := kube.New(config, kube.Options{})
	if err != nil {
		return fmt.Errorf("build a client: %w", err)
	}
	present := newAPIService()
	if err := c.Get(ctx, kube.ObjectKeyFromObject(present), present); err != nil {
		return kube.IgnoreNotFound(err)
	}
	key := kube.ObjectKey{}
	key.Namespace, _, _ = unstructured.NestedString(present.Object, "spec", "service", "namespace")
	key.Name, _, _ = unstructured.NestedString(present.Object, "spec", "service", "name")
	var service corev1.Service
	if err := c.Get(ctx, key, &service); kube.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get Service %s of APIService %s: %w", key, APIServiceName, err)
	} else if err == nil && service.Spec.Type != corev1.ServiceTypeExternalName {
		return nil
	}
	return remove(ctx, c, present)
}

func remove(ctx context.Context, c kube.Client, present *unstructured.Unstructured) error {
	exactly := kube.Preconditions{UID: ptr.To(present.GetUID())}
	if err := c.Delete(ctx, present, exactly); kube.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete APIService %s: %w", APIServiceName, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ServiceNamespace, Name: ServiceName}}
	if err := c.Delete(ctx, service); kube.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Service %s/%s: %w", ServiceNamespace, ServiceName, err)
	}
	flow := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: ServiceName}}
	if err := c.Delete(ctx, flow); kube.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete FlowSchema %s: %w", ServiceName, err)
	}
	return nil
}

func labels() map[string]string { return map[string]string{"app.kubernetes.io/name": "keelson"} }

func newAPIService() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: registrationGroup, Version: "v1", Kind: "APIService"})
	object.SetName(APIServiceName)
	object.SetLabels(labels())
	return object
}

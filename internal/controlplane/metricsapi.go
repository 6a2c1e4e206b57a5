package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// This program serves the API metrics.k8s.io, which kubectl top and HorizontalPodAutoscalers use, and kube-apiserver leads requests
// to it. It is kube-apiserver that authenticates users and checks their permissions.

// nameMetrics names the Service of the API, and the files of its serving certificate.
const nameMetrics = "keelson-metrics"

// metricsHost is the name in the serving certificate that kube-apiserver expects.
const metricsHost = nameMetrics + "." + metav1.NamespaceSystem + ".svc"

// metricsPath is the path of the version of the API, and metricsService the one of its APIService.
const (
	metricsPath    = "/apis/metrics.k8s.io/v1beta1"
	metricsService = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
)

// managedByLabel is on objects that belong to the control plane.
const managedByLabel = "app.kubernetes.io/managed-by"

// offerMetrics serves the API for metrics until the supervision ends, and registers it. One that somebody else has registered stays.
// Without real nodes there is nothing to measure, and what an earlier run has registered is removed: as long as kube-apiserver
// does not reach a registered API, no namespace can be deleted.
func (cp *ControlPlane) offerMetrics(ctx context.Context, client kubernetes.Interface, wanted bool) error {
	var existing metav1.PartialObjectMetadata
	data, err := client.CoreV1().RESTClient().Get().AbsPath(metricsService).DoRaw(ctx)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &existing); err != nil {
			return err
		}
		if existing.Labels[managedByLabel] != managedBy {
			return nil
		}
		if !wanted {
			return ignoreNotFound(client.CoreV1().RESTClient().Delete().AbsPath(metricsService).Do(ctx).Error())
		}
	case !apierrors.IsNotFound(err):
		return err
	case !wanted:
		return nil
	}
	port, err := cp.metricsServer()
	if err != nil {
		return err
	}
	return cp.registerMetrics(ctx, client, port)
}

// managedBy is the value of managedByLabel.
const managedBy = "keelson"

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// registerMetrics has kube-apiserver lead requests to a port of this program. An APIService needs a Service; one of type ExternalName
// needs no endpoints, and leads to loopback.
func (cp *ControlPlane) registerMetrics(ctx context.Context, client kubernetes.Interface, port int) error {
	ca, err := os.ReadFile(cp.dir.pki("ca.crt"))
	if err != nil {
		return err
	}
	type object = map[string]any
	labels := object{managedByLabel: managedBy}
	for path, o := range map[string]object{
		"/api/v1/namespaces/" + metav1.NamespaceSystem + "/services/" + nameMetrics: {
			"apiVersion": "v1", "kind": "Service",
			"metadata": object{"name": nameMetrics, "namespace": metav1.NamespaceSystem, "labels": labels},
			"spec":     object{"type": corev1.ServiceTypeExternalName, "externalName": "127.0.0.1"},
		},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/keelson:metrics-reader": {
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
			"metadata": object{"name": "keelson:metrics-reader", "labels": object{
				managedByLabel: managedBy, "rbac.authorization.k8s.io/aggregate-to-admin": "true",
				"rbac.authorization.k8s.io/aggregate-to-edit": "true", "rbac.authorization.k8s.io/aggregate-to-view": "true",
			}},
			"rules": []rbacv1.PolicyRule{{APIGroups: []string{metrics.GroupName}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list"}}},
		},
		metricsService: {
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": object{"name": "v1beta1.metrics.k8s.io", "labels": labels},
			"spec": object{
				"group": metrics.GroupName, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "caBundle": ca,
				"service": object{"namespace": metav1.NamespaceSystem, "name": nameMetrics, "port": port},
			},
		},
	} {
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		err = client.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", managedBy).Param("force", "true").
			Body(body).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// serveMetrics serves the API on loopback, to kube-apiserver only, and returns the port.
func (cp *ControlPlane) serveMetrics() (int, error) {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return 0, err
	}
	authority, err := os.ReadFile(cp.dir.pki("front-proxy-ca.crt"))
	if err != nil {
		return 0, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return 0, fmt.Errorf("%s has no certificate", cp.dir.pki("front-proxy-ca.crt"))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("listen for requests for metrics: %w", err)
	}
	server := &http.Server{
		Handler:           metricsAnswers(metricsSource{client}),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    1 << 16,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted, // it has one client
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(cp.dir.pki(nameMetrics+".crt"), cp.dir.pki(nameMetrics+".key"))
				return &pair, err
			},
		},
	}
	context.AfterFunc(cp.supervision, func() { _ = server.Close() }) // the process ends
	cp.wg.Go(func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			cp.opts.Log.Error(err, "Could not serve metrics of nodes and Pods")
		}
	})
	return listener.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // of a TCP listener
}

// metricsAnswers returns the handler of the API.
func metricsAnswers(source metricsSource) http.Handler {
	mux := http.NewServeMux()
	version := metav1.GroupVersionForDiscovery{GroupVersion: metrics.SchemeGroupVersion.String(), Version: metrics.SchemeGroupVersion.Version}
	group := metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:     metrics.GroupName, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
	handle(mux, "/apis", func(*http.Request) (any, error) {
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group}}, nil
	})
	handle(mux, "/apis/metrics.k8s.io", func(*http.Request) (any, error) { return group, nil })
	handle(mux, metricsPath, func(*http.Request) (any, error) {
		return metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: version.GroupVersion,
			APIResources: []metav1.APIResource{
				{Name: "nodes", Kind: "NodeMetrics", Verbs: metav1.Verbs{"get", "list"}},
				{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}},
			},
		}, nil
	})
	handle(mux, metricsPath+"/nodes", func(r *http.Request) (any, error) {
		items, err := source.nodes(r.Context(), selectors(r))
		return metrics.NodeMetricsList{TypeMeta: metricsType("NodeMetricsList"), Items: items}, err
	})
	handle(mux, metricsPath+"/nodes/{name}", func(r *http.Request) (any, error) {
		items, err := source.nodes(r.Context(), named(r))
		return single(items, err, "nodes", r, func(m *metrics.NodeMetrics) { m.TypeMeta = metricsType("NodeMetrics") })
	})
	pods := func(r *http.Request) (any, error) {
		items, err := source.pods(r.Context(), r.PathValue("namespace"), selectors(r))
		return metrics.PodMetricsList{TypeMeta: metricsType("PodMetricsList"), Items: items}, err
	}
	handle(mux, metricsPath+"/pods", pods)
	handle(mux, metricsPath+"/namespaces/{namespace}/pods", pods)
	handle(mux, metricsPath+"/namespaces/{namespace}/pods/{name}", func(r *http.Request) (any, error) {
		items, err := source.pods(r.Context(), r.PathValue("namespace"), named(r))
		return single(items, err, "pods", r, func(m *metrics.PodMetrics) { m.TypeMeta = metricsType("PodMetrics") })
	})
	return mux
}

func metricsType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: metrics.SchemeGroupVersion.String()}
}

// selectors returns the selectors of a request. The API checks them.
func selectors(r *http.Request) metav1.ListOptions {
	query := r.URL.Query()
	return metav1.ListOptions{LabelSelector: query.Get("labelSelector"), FieldSelector: query.Get("fieldSelector"), ResourceVersion: "0"}
}

// named returns the options that select the object of a request.
func named(r *http.Request) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + r.PathValue("name")}
}

// single returns the one object of a list, or an error like that of kube-apiserver.
func single[T any](items []T, err error, resource string, r *http.Request, complete func(*T)) (any, error) {
	if err != nil {
		return nil, err
	}
	if len(items) != 1 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: metrics.GroupName, Resource: resource}, r.PathValue("name"))
	}
	complete(&items[0])
	return items[0], nil
}

// handle answers GET requests of a path with an object, or with the Status of an error.
func handle(mux *http.ServeMux, path string, answer func(*http.Request) (any, error)) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		object, err := answer(r)
		code := http.StatusOK
		if err != nil {
			status := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError, Message: err.Error()}
			if known := apierrors.APIStatus(nil); errors.As(err, &known) {
				status = known.Status()
			}
			status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			object, code = status, int(status.Code)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object) // the client may be gone
	})
}

// parseSummary reads the answer of a kubelet.
func parseSummary(data []byte) (*stats.Summary, error) {
	var summary stats.Summary
	if err := json.Unmarshal(data, &summary); err != nil {
		return nil, fmt.Errorf("the kubelet's summary of its Pods: %w", err)
	}
	return &summary, nil
}

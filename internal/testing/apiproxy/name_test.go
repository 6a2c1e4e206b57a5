package apiproxy

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestNameOf(t *testing.T) {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "pod-1"}}
	binary, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, method string
		body         []byte
		want         string
	}{
		{"in protobuf", http.MethodPost, binary, "pod-1"},
		{"in JSON", http.MethodPost, []byte(`{"kind":"Foo","apiVersion":"a/v1","metadata":{"name":"foo-1"}}`), "foo-1"},
		{"an object without a name", http.MethodPost, []byte(`{"kind":"SelfSubjectAccessReview"}`), ""},
		{"an update has its name in the path", http.MethodPut, binary, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), tt.method, "/", bytes.NewReader(tt.body))
			if got := nameOf(request); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if left, err := io.ReadAll(request.Body); err != nil || !bytes.Equal(left, tt.body) {
				t.Errorf("%d of %d bytes remain to be forwarded, %v", len(left), len(tt.body), err)
			}
		})
	}
}

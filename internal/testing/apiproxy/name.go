package apiproxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// nameOf returns the name of the object that a request creates; "" if there is none. The request
// can still be forwarded.
func nameOf(r *http.Request) string {
	if r.Method != http.MethodPost {
		return ""
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return "" // the client is gone
	}
	var about metav1.PartialObjectMetadata
	if json.Unmarshal(body, &about) == nil {
		return about.Name
	}
	// Kubernetes' own kinds are encoded as protobuf.
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return ""
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}

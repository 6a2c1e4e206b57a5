package harness

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Doubts returns, by name, faults of API servers whose responses do not prove that an object of a
// resource is gone: trusting them would delete something in use. Clients also get the namespace
// kube-system there.
func Doubts(resource string) map[string]interceptor.Funcs {
	away := errors.New("connection refused")
	return map[string]interceptor.Funcs{
		"the API server does not answer": {
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return away },
		},
		"the API server does not serve " + resource: {
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Resource: resource}, "", "404 page not found", 0, true)
			},
		},
		"the API has no identity": {
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return away
			},
		},
		"another API": {
			Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, found client.Object, _ ...client.GetOption) error {
				found.SetName(key.Name)
				found.SetUID("another")
				return nil
			},
		},
	}
}

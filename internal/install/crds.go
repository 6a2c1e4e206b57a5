// Package install puts the custom resource definitions of Keelson into a cluster.
package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// fieldManager owns what is written here.
const fieldManager = "keelson"

const (
	pollInterval = 10 * time.Millisecond
	pollTimeout  = 30 * time.Second
)

// CRDs creates or updates the definitions and returns when all of them are established and served.
func CRDs(ctx context.Context, config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	errs := make([]error, len(definitions))
	var wg sync.WaitGroup
	for i, definition := range definitions {
		wg.Go(func() {
			if err := installOne(ctx, client, definition); err != nil {
				errs[i] = fmt.Errorf("install the definition of %s: %w", definition.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func installOne(ctx context.Context, client clientset.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
	applied := definition.DeepCopy()
	applied.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	data, err := json.Marshal(applied)
	if err != nil {
		return err
	}
	force := true
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	_, err = crds.Patch(ctx, definition.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
	if err != nil {
		return err
	}
	if err := waitServed(ctx, client.Discovery(), definition); err != nil {
		return errors.Join(err, whyNotServed(ctx, crds, definition.Name))
	}
	return nil
}

// waitServed waits until the API serves every version of a definition, which is after it was established. It asks for
// the list of resources and not for the definition: that one may have hundreds of kilobytes.
func waitServed(ctx context.Context, client discovery.DiscoveryInterface, definition *apiextensionsv1.CustomResourceDefinition) error {
	var lastErr error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, pollTimeout, true, func(context.Context) (bool, error) {
		lastErr = servedError(client, definition)
		return lastErr == nil, nil // the API may be away for a moment
	})
	return errors.Join(err, lastErr)
}

// whyNotServed returns what the definition itself says, if it says anything.
func whyNotServed(ctx context.Context, crds apiextensionsclient.CustomResourceDefinitionInterface, name string) error {
	current, err := crds.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return establishedError(current)
}

// establishedError says why a definition is not established, nil when it is.
func establishedError(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			return fmt.Errorf("its names are taken by another definition: %s", c.Message)
		}
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return nil
		}
	}
	return errors.New("not established yet")
}

// servedError says which version of a definition the API does not serve yet, nil when it serves all.
func servedError(client discovery.DiscoveryInterface, crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range crd.Spec.Versions {
		groupVersion := crd.Spec.Group + "/" + version.Name
		resources, err := client.ServerResourcesForGroupVersion(groupVersion)
		if err != nil {
			return err
		}
		served := false
		for _, r := range resources.APIResources {
			served = served || r.Name == crd.Spec.Names.Plural
		}
		if !served {
			return fmt.Errorf("%s in %s is not served yet", crd.Spec.Names.Plural, groupVersion)
		}
	}
	return nil
}

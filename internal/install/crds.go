// Package install puts the custom resource definitions of Keelson into a cluster.
package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// fieldManager owns what is written here.
const fieldManager = "keelson"

const (
	pollInterval = 10 * time.Millisecond
	pollTimeout  = 2 * time.Minute // as long as the API server may take to start
	earlyTimeout = 5 * time.Second
)

// CRDs creates or updates the definitions and returns when all of them are established and served.
func CRDs(ctx context.Context, config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	return forAll(config, definitions, func(client clientset.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
		if err := writeOne(ctx, client, definition); err != nil {
			return err
		}
		if err := waitServed(ctx, client.Discovery(), definition); err != nil {
			return errors.Join(err, whyNotServed(ctx, client.ApiextensionsV1().CustomResourceDefinitions(), definition.Name))
		}
		return nil
	})
}

// Early creates or updates what it can of the definitions on an API server that answers but is not ready, so that the
// server prepares them while it starts. CRDs does the rest; an error of this one would be an error of that one, too.
func Early(ctx context.Context, config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition) {
	ctx, cancel := context.WithTimeout(ctx, earlyTimeout)
	defer cancel()
	_ = forAll(config, definitions, func(client clientset.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
		return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			return writeOne(ctx, client, definition) == nil, nil
		})
	})
}

func forAll(config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition,
	do func(clientset.Interface, *apiextensionsv1.CustomResourceDefinition) error,
) error {
	config = rest.CopyConfig(config)
	// The largest definition takes a fraction of the time that it takes as JSON.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	errs := make([]error, len(definitions))
	var wg sync.WaitGroup
	for i, definition := range definitions {
		wg.Go(func() {
			if err := do(client, definition); err != nil {
				errs[i] = fmt.Errorf("install the definition of %s: %w", definition.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func writeOne(ctx context.Context, client clientset.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	_, err := crds.Create(ctx, definition, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { return update(ctx, crds, definition) })
	}
	return err
}

// update writes a definition that exists, unless it is the same already. It is not applied: to merge half a megabyte of
// schema costs the server most of a second, and nothing of a schema is anybody else's.
func update(ctx context.Context, crds apiextensionsclient.CustomResourceDefinitionInterface, definition *apiextensionsv1.CustomResourceDefinition) error {
	current, err := crds.Get(ctx, definition.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	wanted := current.DeepCopy()
	definition.Spec.DeepCopyInto(&wanted.Spec)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&wanted.Spec)
	wanted.Labels = merged(wanted.Labels, definition.Labels)
	wanted.Annotations = merged(wanted.Annotations, definition.Annotations)
	if equality.Semantic.DeepEqual(current, wanted) {
		return nil
	}
	_, err = crds.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// merged returns what there is with what is wanted in it.
func merged(present, wanted map[string]string) map[string]string {
	if len(wanted) == 0 {
		return present
	}
	all := make(map[string]string, len(present)+len(wanted))
	maps.Copy(all, present)
	maps.Copy(all, wanted)
	return all
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

package target

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Client returns a client of the selected API for kinds, which functions such as v1alpha1.AddToScheme add.
func (f *Flags) Client(ctx context.Context, kinds ...func(*runtime.Scheme) error) (client.Client, *API, error) {
	api, err := f.API(ctx)
	if err != nil {
		return nil, nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range kinds {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	log.SetLogger(logr.Discard()) // otherwise controller-runtime complains in a command that runs for long
	config := rest.CopyConfig(api.Config)
	config.WarningHandler = rest.NoWarnings{} // this program causes them itself
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return c, api, nil
}

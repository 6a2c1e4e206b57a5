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

// fieldManager is the user agent of the commands, and therefore their field manager: what a user has requested belongs neither to the
// controllers nor to a GitOps tool.
const fieldManager = "keelson-cli"

// Client returns a client of the selected API for kinds, which functions such as v1alpha1.AddToScheme add.
func (f *Flags) Client(ctx context.Context, kinds ...func(*runtime.Scheme) error) (client.WithWatch, *API, error) {
	api, err := f.API(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := api.Client(kinds...)
	return c, api, err
}

// Client returns a client of the API for kinds.
func (a *API) Client(kinds ...func(*runtime.Scheme) error) (client.WithWatch, error) {
	scheme, builder := runtime.NewScheme(), runtime.NewSchemeBuilder(kinds...)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, err
	}
	log.SetLogger(logr.Discard()) // otherwise controller-runtime complains in a command that runs for long
	config := rest.CopyConfig(a.Config)
	config.WarningHandler = rest.NoWarnings{} // this program causes them itself
	config.UserAgent = fieldManager
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return c, nil
}

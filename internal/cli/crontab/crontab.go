// Package crontab is the command `keelson crontab`: CronTabs and their runs.
package crontab

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crontab",
		Short: "Run, suspend and list CronTabs",
		Long:  "Run, suspend and list CronTabs.\n\n" + target.Help,
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newList(), newNext(), newTrigger(), newSuspend(true), newSuspend(false))
	complete.Arguments(complete.Resource{GroupVersionResource: stablev1.SchemeGroupVersion.WithResource("crontabs"), Namespaced: true}, cmd.Commands()...)
	return cmd
}

// flags select the API and the namespace of a CronTab.
type flags struct {
	target.Flags
	namespace string
}

func (f *flags) addTo(cmd *cobra.Command) {
	f.AddFlags(cmd.Flags())
	cmd.Flags().VarP(usage.NonEmpty(&f.namespace), "namespace", "n", "`namespace` of the CronTab (default: that of the context, otherwise default)")
}

// words returns arguments that select a CronTab with the same flags, quoted for a shell.
func (f *flags) words(name string) string {
	words := f.Words(name)
	if f.namespace != "" {
		words += " --namespace=" + instance.Quote(f.namespace)
	}
	return words
}

// cronTabs are the CronTabs of a namespace.
type cronTabs struct {
	client.Client
	api       *target.API
	namespace string
}

func (f *flags) open(ctx context.Context) (*cronTabs, error) {
	c, api, err := f.Client(ctx, stablev1.AddToScheme, batchv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &cronTabs{Client: c, api: api, namespace: cmp.Or(f.namespace, api.Namespace)}, nil
}

// get returns a CronTab.
func (c *cronTabs) get(ctx context.Context, name string) (*stablev1.CronTab, error) {
	var cronTab stablev1.CronTab
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, &cronTab); err != nil {
		return nil, c.describe(name, err)
	}
	return &cronTab, nil
}

// change changes a CronTab.
func (c *cronTabs) change(ctx context.Context, name string, change func(*stablev1.CronTab)) error {
	cronTab, err := c.get(ctx, name)
	if err != nil {
		return err
	}
	before := cronTab.DeepCopy()
	change(cronTab)
	if err := c.Patch(ctx, cronTab, client.MergeFrom(before)); err != nil {
		return c.describe(name, err)
	}
	return nil
}

// describe explains an error of a request for a CronTab.
func (c *cronTabs) describe(name string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no CronTab %q in the namespace %s; keelson crontab list --all-namespaces lists them", name, c.namespace)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s has no CronTabs: their definition is not installed", c.api.Name)
	}
	return fmt.Errorf("CronTab %s/%s: %w", c.namespace, name, err)
}

// oneCronTab is the arguments of a command for one CronTab.
func oneCronTab() cobra.PositionalArgs { return usage.OneArg("NAME", "the CronTab") }

package manifests

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/manager"
)

func newWebhook() *cobra.Command {
	options := manager.NewOptions()
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Print the ValidatingWebhookConfiguration of the manager",
		Example: `  # For a Service keelson-webhook in the namespace keelson, in front of the managers
  keelson manifests webhook --webhook-service-namespace=keelson`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.Validate(); err != nil {
				return usage.Errorf("%w", err)
			}
			configuration, err := manager.WebhookConfiguration(options)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), []runtime.Object{configuration})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&options.Controllers, "controllers", options.Controllers,
		"controllers that will run, as in keelson manager")
	options.Webhook.AddServiceFlags(flags)
	return cmd
}

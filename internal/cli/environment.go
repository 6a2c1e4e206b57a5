package cli

import "github.com/spf13/cobra"

const environment = `  KUBECONFIG                kubeconfig of manager and of all commands for objects; the file that up --merge-kubeconfig
                            changes (default: ~/.kube/config)
  KEELSON_KUBE              program with the Kubernetes components
                            (default: keelson-kube next to keelson, otherwise in PATH)
  KEELSON_NODE              directory with the programs of a real node
                            (default: node next to keelson)
  XDG_DATA_HOME             parent of the data directory of up (default: ~/.local/share)
  XDG_STATE_HOME            parent of the state directory of manager (default: ~/.local/state)
  TMPDIR                    parent of the data directory of up --ephemeral (default: /tmp)
  DOCKER_HOST, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH
                            engine of the driver docker, as for the command docker
  HTTP_PROXY, HTTPS_PROXY, NO_PROXY
                            proxy for downloads of images
  OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
                            collector for traces; the other variables of OpenTelemetry apply, too
  OTEL_SDK_DISABLED         true: no traces`

// newEnvironment returns the help topic about environment variables.
func newEnvironment() *cobra.Command {
	topic := &cobra.Command{
		Use:   "environment",
		Short: "Environment variables of keelson",
		Long:  environment,
	}
	topic.SetHelpTemplate("{{.Long}}\n")
	return topic
}

// Package top is the command `keelson top`: a full-screen overview of all objects, with keys for the verbs.
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	foov1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// New returns the command.
func New() *cobra.Command {
	var flags target.Flags
	namespace, all := "", false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show all objects on the screen, live, with keys for what can be done with them",
		Long: `Show machines with their usage, clusters, CronTabs with their next runs, Foos and events on the whole
screen, live. Keys start, stop and restart machines, open their console or ssh, run and suspend CronTabs, and
delete objects after a confirmation; the last line has those of the selected object. q ends it.

It shows what you have permission for. NO_COLOR=1 turns colours off.

` + target.Help(),
		Example: `  keelson top
  keelson top --all-namespaces`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.OutOrStdout()) {
				return errors.New("keelson top needs a terminal for input and output; keelson status and kubectl get print the same once")
			}
			c, api, err := flags.Client(cmd.Context(), vmv1alpha1.AddToScheme, clusterv1alpha1.AddToScheme, stablev1.AddToScheme, foov1alpha1.AddToScheme, corev1.AddToScheme)
			if err != nil {
				return err
			}
			s := &screen{client: c, api: api, loads: loads{}}
			s.place = api.Name + ", all namespaces"
			s.allNamespaces = all
			if !all {
				s.namespace = cmp.Or(namespace, api.Namespace)
				s.place = api.Name + ", namespace " + s.namespace
			}
			return s.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().VarP(usage.NonEmpty(&namespace), "namespace", "n", "`namespace` of the objects (default: that of the context, otherwise default)")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "show the objects of all namespaces")
	return cmd
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) //nolint:gosec // a descriptor fits
}

func listOptions(resourceVersion string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: resourceVersion, AllowWatchBookmarks: true}
}

// run shows the screen until the user ends it, or the context ends.
func (s *screen) run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctx = ctx
	program := tea.NewProgram(s, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	// A signal quits like a key: a program that is killed by its context does not wait for the reader of the terminal.
	defer context.AfterFunc(ctx, program.Quit)()
	for _, source := range sources(s.client, s.namespace, func(u update) { program.Send(u) }) {
		go source.run(ctx)
	}
	if _, err := program.Run(); err != nil {
		return fmt.Errorf("show the screen: %w", err)
	}
	return nil
}

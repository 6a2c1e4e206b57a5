// Package complete completes the names of objects on the command line, for the shells of keelson completion.
package complete

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/cli/target"
)

// timeout is the longest time that a completion takes: the user waits at the prompt. An API that is slower, absent or
// refuses the list completes nothing, without a message.
const timeout = 2 * time.Second

// maxNames is the largest number of names: more are of no use at a prompt.
const maxNames = 500

// Resource is a kind of objects.
type Resource struct {
	schema.GroupVersionResource
	// Namespaced tells whether --namespace selects among them.
	Namespaced bool
}

// Names returns a function that completes the first argument of a command with the names of objects, in the API and the
// namespace that the flags of the command select; all arguments if it takes NAME...
func Names(resource Resource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !strings.HasSuffix(cmd.Use, "NAME...") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.DeleteFunc(Objects(cmd, resource, prefix), func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// Objects returns the names of objects that begin with a prefix.
func Objects(cmd *cobra.Command, resource Resource, prefix string) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	// Not all of it heeds the context.
	found := make(chan []string, 1)
	go func() { found <- list(ctx, cmd.Flags(), resource) }()
	select {
	case names := <-found:
		return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	case <-ctx.Done():
		return nil
	}
}

// list returns the names of objects; none if there is an error.
func list(ctx context.Context, given *pflag.FlagSet, resource Resource) []string {
	api, err := selected(given).API(ctx)
	if err != nil {
		return nil
	}
	config := rest.CopyConfig(api.Config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	var objects metadata.ResourceInterface = client.Resource(resource.GroupVersionResource)
	if resource.Namespaced {
		objects = client.Resource(resource.GroupVersionResource).Namespace(cmp.Or(value(given, "namespace"), api.Namespace))
	}
	all, err := objects.List(ctx, metav1.ListOptions{Limit: maxNames})
	if err != nil {
		return nil
	}
	var names []string
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names
}

// selected returns the flags of a command that select an API.
func selected(given *pflag.FlagSet) *target.Flags {
	flags := &target.Flags{Kubeconfig: value(given, "kubeconfig"), Context: value(given, "context")}
	flags.DataDir, flags.Ephemeral = value(given, "data-dir"), value(given, "ephemeral") == "true"
	return flags
}

// value returns the value of a flag; "" if there is no such flag.
func value(given *pflag.FlagSet, name string) string {
	if flag := given.Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}

// Arguments completes the first argument of the commands of which it is a NAME, and that have no completion yet.
func Arguments(resource Resource, commands ...*cobra.Command) {
	for _, cmd := range commands {
		if _, arguments, _ := strings.Cut(cmd.Use, " "); strings.HasPrefix(arguments, "NAME") && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = Names(resource)
		}
	}
}

// Flags completes the flags of commands that select an API or a namespace.
func Flags(commands ...*cobra.Command) {
	for _, cmd := range commands {
		Flags(cmd.Commands()...)
		has := func(flag string) bool {
			return cmd.Flags().Lookup(flag) != nil || cmd.PersistentFlags().Lookup(flag) != nil
		}
		if has("context") {
			Flag(cmd, "context", cobra.ShellCompDirectiveNoFileComp, contexts)
		}
		if has("namespace") {
			namespaces := Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}
			Flag(cmd, "namespace", cobra.ShellCompDirectiveNoFileComp, func(cmd *cobra.Command, prefix string) []string { return Objects(cmd, namespaces, prefix) })
		}
	}
}

// Flag completes the value of a flag. It panics if the command has no such flag, or if it is completed already.
func Flag(cmd *cobra.Command, flag string, directive cobra.ShellCompDirective, values func(cmd *cobra.Command, prefix string) []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values(cmd, prefix), directive
	})
	if err != nil {
		panic(err)
	}
}

// contexts returns the contexts of the kubeconfig.
func contexts(cmd *cobra.Command, prefix string) []string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = value(cmd.Flags(), "kubeconfig")
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	var names []string
	for name := range config.Contexts {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

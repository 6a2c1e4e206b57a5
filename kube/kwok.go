//go:build !nokwok

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
	"sigs.k8s.io/kwok/pkg/utils/version"
)

// A kwok fits the libraries of few Kubernetes versions. The program of another version is built without it (-tags nokwok),
// and keelson runs that of the default version, which is a client of all.
func init() {
	components["kwok"], components["kwok-stages"], kwokVersion = kwok, kwokStages, version.DisplayVersion
}

// kwok runs the controller that keeps simulated nodes and their pods alive.
//
// The configuration file named by --config sets the defaults of kwok's own
// flags, so it is read with a first, tolerant flag set before the command is
// built; that set is then shared with the command so that --help lists it.
func kwok() {
	// cobra adds the flags of the whole process to every root command, among them component-base's --version, which
	// takes a value and so collides with kwok's own.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)

	early := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}

	ctx, _ := log.InitFlags(signals.SetupSignalContext(), early)
	ctx, err := config.InitFlags(ctx, early)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kwok: reading the configuration: %v\n", err)
		os.Exit(1)
	}
	command := kwokcmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(early)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "kwok: %v\n", err)
		os.Exit(1)
	}
}

// kwokStages writes the stages that kwok itself ships to standard output: nodes
// become ready and keep their lease, pods become ready at once, pods of Jobs
// complete, deleted pods go. kwok refuses to start without stages, so whoever
// runs it stores this output and hands it over with --config.
func kwokStages() {
	fmt.Println(strings.Join([]string{
		fast.DefaultNodeInit,
		heartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
		podfast.DefaultPodDelete,
	}, "\n---\n"))
}

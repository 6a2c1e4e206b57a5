package main

import (
	"os"
	_ "time/tzdata" // CronJob time zones, also where the machine has no zone files

	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plugins for kubectl
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build information on /metrics
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanagerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func apiserver() {
	os.Exit(cli.Run(apiserverapp.NewAPIServerCommand()))
}

func controllerManager() {
	os.Exit(cli.Run(controllermanagerapp.NewControllerManagerCommand()))
}

func scheduler() {
	os.Exit(cli.Run(schedulerapp.NewSchedulerCommand()))
}

func kubectl() {
	// kubectl logs while its command is still being built (plugins, .kuberc), so
	// the verbosity has to be set before flags are parsed. A bad value is
	// reported by the flag parser later, with better words than here.
	_, _ = logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	kubeproxyapp "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
)

// The components of a real node are for Linux, whatever the others run on.
func init() {
	components["kubelet"] = kubelet
	components["kube-proxy"] = kubeProxy
}

func kubelet() {
	os.Exit(cli.Run(kubeletapp.NewKubeletCommand(context.Background())))
}

func kubeProxy() {
	os.Exit(cli.Run(kubeproxyapp.NewProxyCommand()))
}

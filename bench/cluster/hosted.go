package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// hostedClusters are Clusters of the engine hosted: Pods of a real node of keelson up.
type hostedClusters struct {
	clusters
	data string
}

// namespace is where the Pods are, image that of keelson-kube.
const (
	namespace = "bench"
	image     = "docker.io/library/keelson-kube:bench"
)

// newHosted starts keelson up with a real node that has the image.
func (b *bench) newHosted(ctx context.Context, program string) (h *hostedClusters, err error) {
	h = &hostedClusters{data: filepath.Join(b.base, "hosted"), clusters: clusters{host: &harness.Cluster{Keelson: program}}}
	kube, err := env.Binary("keelson-kube")
	if err != nil {
		return nil, err
	}
	said, err := harness.Output(ctx, kube, "version")
	if err != nil {
		return nil, err
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(said, "kubernetes "), ",") // kubernetes v1.2.3, etcd ...
	folder, config := filepath.Join(b.base, "image"), filepath.Join(b.base, "keelson.yaml")
	content := fmt.Sprintf("apiVersion: config.keelson.dev/v1alpha1\nkind: KeelsonConfiguration\nclusters:\n  hostedImages: {%s: %q}\n", version, image)
	if err := errors.Join(os.WriteFile(config, []byte(content), 0o600), os.Mkdir(folder, 0o700)); err != nil {
		return nil, err
	}
	if _, err := harness.Output(ctx, "cp", "--dereference", kube, filepath.Join(folder, "keelson-kube")); err != nil {
		return nil, err
	}
	for _, command := range [][]string{
		{"up", "--detach", "--node=real", "--vm-driver=fake", "--config", config},
		{"node", "image", "load", "--name", image, "--entrypoint", "/keelson-kube", folder},
	} {
		if _, err := harness.Output(ctx, program, append(command, "--data-dir", h.data)...); err != nil {
			return nil, errors.Join(err, h.kill())
		}
	}
	if h.host, err = harness.Connect(filepath.Join(h.data, "kubeconfig"), 1); err != nil {
		return nil, errors.Join(err, h.kill())
	}
	h.host.Keelson, h.spec = program, v1alpha1.ClusterSpec{Engine: v1alpha1.EngineHosted, Hosted: &v1alpha1.HostedControlPlane{Namespace: namespace}}
	_, err = h.host.Observer.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, errors.Join(err, h.kill())
	}
	return h, nil
}

// start waits until an observer has seen all Clusters ready, and checks that they are.
func (h *hostedClusters) start(ctx context.Context, s *harness.Sample) error {
	if _, err := h.create(ctx, s); err != nil {
		return err
	}
	for i := range s.Size {
		kubeconfig, err := exec.CommandContext(ctx, h.host.Keelson, "cluster", "kubeconfig", objectName(i), "--kubeconfig", h.host.Kubeconfig).Output()
		if err != nil {
			return err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return err
		}
		if err := check(ctx, config); err != nil {
			return err
		}
	}
	return nil
}

// pids returns the processes of all containers and their shims.
func (h *hostedClusters) pids(context.Context) (pids []int, err error) {
	all, err := harness.PIDs()
	if err != nil {
		return nil, err
	}
	for _, pid := range all {
		if words, err := harness.CommandLine(pid); err != nil || words[0] != "/keelson-kube" {
			continue // it has ended, or is another one
		}
		shim, err := harness.Parent(pid)
		if err != nil {
			return nil, err
		}
		if pids = append(pids, pid); !slices.Contains(pids, shim) {
			pids = append(pids, shim)
		}
	}
	return pids, nil
}

// stop waits until the Clusters are gone, when nothing may be left of them.
func (h *hostedClusters) stop(ctx context.Context, s *harness.Sample) error {
	if h.observer == nil {
		return nil
	}
	if err := h.remove(ctx, s); err != nil {
		return err
	}
	pods, err := h.host.Observer.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(pods.Items) > 0 {
		err = fmt.Errorf("the Clusters are gone, and %d Pods are left", len(pods.Items))
	}
	return err
}

// kill removes the node and everything on it.
func (h *hostedClusters) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := harness.Output(ctx, h.host.Keelson, "down", "--data-dir", h.data, "--delete-data")
	return err
}

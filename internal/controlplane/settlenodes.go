package controlplane

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// settleRealNodes starts the real nodes, all at once, and removes earlier ones. Running nodes of another Kubernetes version are upgraded
// one after another, each when the one before is ready: a version that does not work stops at the first one.
func (cp *ControlPlane) settleRealNodes(ctx context.Context, client kubernetes.Interface) error {
	if err := cp.dismissNodes(ctx, client); err != nil {
		return err
	}
	nodes := cp.realNodes()
	if err := cp.offerMetrics(ctx, client, len(nodes) > 0); err != nil || len(nodes) == 0 {
		return err
	}
	if err := cp.admitNodes(ctx, client); err != nil {
		return err
	}
	cp.balanced.Do(func() { // Settle may be called again
		cp.wg.Go(func() { cp.serveLoadBalancers(cp.supervision, client, nodes[0].LoadBalancers()) })
	})
	outdated, err := cp.outdatedNodes(ctx, client)
	if err != nil {
		return err
	}
	starts, startCtx := errgroup.WithContext(ctx)
	for _, s := range nodes {
		if node.IsPoweredOff(s.Dir) {
			cp.wg.Go(func() { _ = cp.launchNode(s) }) // when it is powered on
			continue
		}
		if !outdated[s.Index] {
			starts.Go(func() error { return cp.step(startCtx, cp.realNode(s)) })
		}
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	for _, s := range nodes {
		if !outdated[s.Index] {
			continue
		}
		if err := cp.step(ctx, cp.realNode(s)); err != nil {
			return err
		}
	}
	if nodes[0].Rootless == nil {
		cp.kept.Do(func() { cp.wg.Go(func() { cp.keepNodes(cp.supervision, client) }) })
	}
	return nil
}

// outdatedNodes returns the indexes of the running real nodes whose kubelet has another version than the API.
func (cp *ControlPlane) outdatedNodes(ctx context.Context, client kubernetes.Interface) (map[int]bool, error) {
	server, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the API for its version: %w", err)
	}
	outdated := map[int]bool{}
	for _, s := range cp.realNodes() {
		p, err := cp.procs.Find(numbered(nameNode, s.Index))
		if err != nil || p.Status().State != process.Running || node.IsPoweredOff(s.Dir) {
			continue // it is started with the new version
		}
		n, err := client.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		outdated[s.Index] = n.Status.NodeInfo.KubeletVersion != server.GitVersion
	}
	return outdated, nil
}

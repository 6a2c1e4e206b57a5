package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keelson-dev/keelson/node/internal/policy"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

const (
	// policyPause collects changes, such as those of all Pods of a Deployment, for one change of the rules.
	policyPause = 50 * time.Millisecond
	// policyRetry is the pause after rules could not be set.
	policyRetry = 5 * time.Second
)

// policies keeps the rules of a node in line with the NetworkPolicies of the API. As long as the API is away, they stay.
type policies struct {
	node                          policy.Node
	networkPolicies, pods, spaces *mirror
	changed                       chan struct{}
	apply                         func(rules string) error
	applied, failed               string
}

// enforcePolicies enforces NetworkPolicies until the context ends. The rules are in the network namespace of the node, and go with it.
func enforcePolicies(ctx context.Context, s settings.Settings, pid int) error {
	p := &policies{
		node: policy.Node{
			Name: s.Name, Address: s.NodeAddress().Addr(), OutPort: settings.OutPort, API: s.APIAddress(), Pods: s.PodNetwork(),
		},
		changed: make(chan struct{}, 1),
		apply:   func(rules string) error { return setRules(ctx, s, pid, rules) },
	}
	if s.IPv6 {
		p.node.PodsIPv6 = settings.IPv6(s.PodNetwork())
	}
	config := apiConfig(s, settings.PoliciesCert, settings.PoliciesKey)
	var errs [3]error
	p.networkPolicies, errs[0] = newMirror(config, "/apis", networkingv1.SchemeGroupVersion, "networkpolicies", &networkingv1.NetworkPolicy{}, nil)
	p.pods, errs[1] = newMirror(config, "/api", corev1.SchemeGroupVersion, "pods", &corev1.Pod{}, nil)
	p.spaces, errs[2] = newMirror(config, "/api", corev1.SchemeGroupVersion, "namespaces", &corev1.Namespace{}, nil)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, m := range []*mirror{p.networkPolicies, p.pods, p.spaces} {
		_, err := m.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { p.notify() }, UpdateFunc: func(any, any) { p.notify() }, DeleteFunc: func(any) { p.notify() },
		})
		if err != nil {
			return err
		}
	}
	go p.run(ctx)
	return nil
}

func (p *policies) notify() {
	select {
	case p.changed <- struct{}{}:
	default: // a notification is pending
	}
}

// run sets the rules after each change. Pods and Namespaces are watched from the first policy on, because most clusters have none.
func (p *policies) run(ctx context.Context) {
	go p.networkPolicies.RunWithContext(ctx)
	for watched := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		}
		if !watched {
			watched = true
			go p.pods.RunWithContext(ctx)
			go p.spaces.RunWithContext(ctx)
			if !cache.WaitForCacheSync(ctx.Done(), p.networkPolicies.HasSynced, p.pods.HasSynced, p.spaces.HasSynced) {
				return
			}
		}
		wait := policyPause
		if !p.sync() {
			wait = policyRetry
			p.notify()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// sync sets the rules for what the API has now, and reports whether they are set.
func (p *policies) sync() bool {
	rules := policy.Rules(p.node, policy.World{
		Policies:   listOf[networkingv1.NetworkPolicy](p.networkPolicies),
		Pods:       listOf[corev1.Pod](p.pods),
		Namespaces: listOf[corev1.Namespace](p.spaces),
	})
	if rules == p.applied {
		return true
	}
	if err := p.apply(rules); err != nil {
		if p.failed != err.Error() { // the same one is logged once
			p.failed = err.Error()
			slog.Error("NetworkPolicies are not enforced as they are now", "error", p.failed)
		}
		return false
	}
	p.applied, p.failed = rules, ""
	return true
}

func listOf[T any](m *mirror) (all []*T) {
	for _, object := range m.GetStore().List() {
		all = append(all, object.(*T))
	}
	return all
}

// trimPod keeps what policies depend on.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: trimMeta(pod.ObjectMeta, ""), Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork}}
	kept.Labels, kept.CreationTimestamp = pod.Labels, pod.CreationTimestamp
	kept.Status.Phase, kept.Status.PodIPs = pod.Status.Phase, pod.Status.PodIPs
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			if len(c.Ports) > 0 {
				kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{Ports: c.Ports})
			}
		}
	}
	return kept
}

// setRules has nft read rules in the network namespace of a node.
func setRules(ctx context.Context, s settings.Settings, pid int, rules string) error {
	nft, err := findNft()
	if err != nil {
		return err
	}
	words := []string{"--target", strconv.Itoa(pid), "--net"}
	if s.Rootless != nil {
		words = append(words, "--user", "--preserve-credentials")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(words, nft, "-f", "-")...)
	cmd.Stdin = strings.NewReader(rules)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set the rules in the network of the node by nsenter and nft: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// findNft returns the path of nft, which is not in the search path of all users.
func findNft() (string, error) {
	if path, err := exec.LookPath("nft"); err == nil {
		return path, nil
	}
	for _, folder := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(folder, "nft")); err == nil {
			return path, nil
		}
	}
	return "", errors.New("nft is not installed: install the package nftables")
}

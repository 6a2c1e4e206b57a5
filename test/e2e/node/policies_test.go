//go:build linux

package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// askers are a Pod that serves on the second node, and Pods that ask it on both.
const askers = `apiVersion: v1
kind: Service
metadata: {name: server}
spec:
  selector: {app: server}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  nodeName: keelson-node-2
  containers:
  - {name: app, image: "app:v1", ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {port: http}, periodSeconds: 1}}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, labels: {role: friend}}
spec:
  nodeName: keelson-node
  containers: [{name: app, image: "app:v1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: near, labels: {role: friend}}
spec:
  nodeName: keelson-node-2
  containers: [{name: app, image: "app:v1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec:
  nodeName: keelson-node
  containers: [{name: app, image: "app:v1"}]
`

const denyAll = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all}
spec:
  podSelector: {}
  policyTypes: [Ingress]
`

const allowFriends = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow-friends}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress:
  - from: [{podSelector: {matchLabels: {role: friend}}}]
    ports: [{port: http}]
`

const denyOut = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out}
spec:
  podSelector: {matchLabels: {role: friend}}
  policyTypes: [Egress]
`

// allowOut adds the names as manifests for other clusters do, the server, and an address of another network.
const allowOut = denyOut + `  egress:
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    ports: [{port: 53, protocol: UDP}, {port: 53}]
  - to: [{podSelector: {matchLabels: {app: server}}}]
  - to: [{ipBlock: {cidr: %s/32}}]
    ports: [{port: %d}]
`

// TestLongPolicies has two nodes enforce NetworkPolicies.
func TestLongPolicies(t *testing.T) {
	if rootless {
		t.Skip("several real nodes need root")
	}
	u := newUser(t)
	u.upWith(t, 2)
	u.loadApp(t, "v1")
	u.apply(t, askers)
	u.kubectl(t, "wait", "--for=condition=Ready", "pods", "--all", "--timeout", transcript.WaitTimeout.String())
	outside := listener(t, u.otherAddress(t))
	w := policyWorld{
		user: u, server: u.field(t, "pod/server", "{.status.podIP}") + ":8080",
		api: u.field(t, "service/kubernetes", "{.spec.clusterIP}") + ":443", outside: outside.String(),
	}
	everything := []string{w.server, "server:80", w.api, w.outside}
	all := []string{"friend", "near", "stranger"}
	w.reach(t, "without a policy", all, everything)

	u.apply(t, denyAll)
	w.reach(t, "nothing is allowed", all, []string{w.api, w.outside})
	if _, err := net.DialTimeout("tcp", w.server, dialTimeout); err == nil {
		t.Error("this machine reaches the Pod")
	}
	transcript.Contains(t, u.kubectl(t, "logs", "server"), "serving v1")

	u.apply(t, allowFriends)
	w.reach(t, "friends are allowed", []string{"friend", "near"}, everything)
	w.reach(t, "friends are allowed", []string{"stranger"}, []string{w.api, w.outside})

	u.kubectl(t, "label", "pod", "stranger", "role=friend")
	w.reach(t, "by their labels", all, everything)
	u.kubectl(t, "label", "pod", "stranger", "role-")
	w.reach(t, "by their labels", []string{"stranger"}, []string{w.api, w.outside})

	u.apply(t, denyOut)
	w.reach(t, "nothing is allowed to friends", []string{"friend", "near"}, nil)
	w.reach(t, "others are not concerned", []string{"stranger"}, []string{w.api, w.outside})
	u.apply(t, fmt.Sprintf(allowOut, outside.Addr(), outside.Port()))
	w.reach(t, "some is allowed to friends", []string{"friend", "near"}, []string{w.server, "server:80", w.outside})
	w.newPod(t)
	u.apply(t, denyOut+"  egress: [{ports: [{port: 443}]}]\n")
	w.reach(t, "the API is allowed to friends", []string{"friend", "near"}, []string{w.api})
	u.apply(t, fmt.Sprintf(allowOut, outside.Addr(), outside.Port()))

	// The rules are those of the node, and go with it.
	u.keelsonNode(t, "stop", node.Name(1))
	u.keelsonNode(t, "start", node.Name(1))
	u.Until(t, "the server runs again", transcript.Is("1 true"), "kubectl", "get", "pod", "server", "-o",
		"jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
	w.server = u.field(t, "pod/server", "{.status.podIP}") + ":8080"
	w.reach(t, "after a restart", []string{"friend", "near"}, []string{w.server, "server:80", w.outside})
	w.reach(t, "after a restart", []string{"stranger"}, []string{w.api, w.outside})

	u.kubectl(t, "delete", "networkpolicies", "--all")
	w.reach(t, "without a policy again", all, []string{w.server, "server:80", w.api, w.outside})
	if got := u.field(t, "pod/server", "{.status.containerStatuses[0].restartCount}"); got != "1" {
		t.Errorf("the server was restarted %s times", got)
	}
}

// policyWorld has the addresses that Pods dial.
type policyWorld struct {
	*user
	server, api, outside string
}

// reach waits until Pods reach these of the addresses and no others.
func (w policyWorld) reach(t *testing.T, what string, pods, want []string) {
	t.Helper()
	words := []string{w.server, "server:80", w.api, w.outside}
	for _, pod := range pods {
		w.Until(t, fmt.Sprintf("%s: %s reaches %q", what, pod, want), func(out string) bool { return slices.Equal(strings.Fields(out), want) },
			append([]string{"kubectl", "exec", pod, "--", "/app", "dial"}, words...)...)
	}
}

// newPod has a new Pod dial as soon as it runs. It reaches nothing that it may not, before its address is known either.
func (w policyWorld) newPod(t *testing.T) {
	t.Helper()
	w.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: hasty, labels: {role: friend}}
spec:
  nodeName: keelson-node
  restartPolicy: Never
  containers: [{name: app, image: "app:v1", args: [dial, %q, %q]}]
`, w.api, w.server))
	w.Until(t, "it has ended", transcript.Is("Succeeded"), "kubectl", "get", "pod", "hasty", "-o", "jsonpath={.status.phase}")
	if got := w.kubectl(t, "logs", "hasty"); strings.Contains(got, w.api) {
		t.Errorf("a new Pod reached %s", got)
	}
	w.kubectl(t, "delete", "pod", "hasty")
}

// dialTimeout is that of the program app.
const dialTimeout = 2 * time.Second

// listener returns an address of this machine where connections are accepted.
func listener(t *testing.T, at netip.Addr) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

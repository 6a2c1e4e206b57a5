package policy

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var testNode = Node{Name: "one", Address: netip.MustParseAddr("10.7.255.2"), OutPort: 3129, API: netip.MustParseAddr("10.7.254.1"), Pods: netip.MustParsePrefix("10.7.0.0/22")}

func newPod(namespace, name, node, address string, labels map[string]string, ports ...corev1.ContainerPort) *corev1.Pod {
	var ips []corev1.PodIP
	for ip := range strings.FieldsSeq(address) {
		ips = append(ips, corev1.PodIP{IP: ip})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Ports: ports}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: ips},
	}
}

func app(name string) map[string]string { return map[string]string{"app": name} }

func selects(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

func newPolicy(name string, of map[string]string, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: of}, PolicyTypes: types},
	}
}

func port(value intstr.IntOrString) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Port: &value}
}

// testWorld has two Pods in the namespace shop on the node, others elsewhere, and these policies.
func testWorld(policies ...*networkingv1.NetworkPolicy) World {
	http := corev1.ContainerPort{Name: "http", ContainerPort: 8080}
	older := newPod("shop", "older", "one", "10.7.0.2", app("db"))
	older.DeletionTimestamp = &metav1.Time{}
	web := newPod("shop", "web", "one", "10.7.0.2", app("web"), http)
	web.CreationTimestamp = metav1.Now()
	done := newPod("shop", "done", "one", "10.7.0.9", app("web"))
	done.Status.Phase = corev1.PodSucceeded
	host := newPod("shop", "host", "one", "10.7.255.2", app("web"))
	host.Spec.HostNetwork = true
	return World{
		Policies: policies,
		Pods: []*corev1.Pod{
			web, older, done, host, newPod("shop", "db", "one", "10.7.0.3", app("db")), newPod("shop", "far", "two", "10.7.4.2", app("db"), corev1.ContainerPort{Name: "http", ContainerPort: 80}),
			newPod("other", "web", "two", "10.7.4.3", app("web")), newPod("shop", "starting", "one", "", app("web")),
		},
		Namespaces: []*corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, {ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"team": "b"}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Labels: map[string]string{"kubernetes.io/metadata.name": "kube-system"}}},
		},
	}
}

func withIngress(rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	p := newPolicy("in", app("web"), networkingv1.PolicyTypeIngress)
	p.Spec.Ingress = rules
	return p
}

func withEgress(rules ...networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	p := newPolicy("out", app("web"), networkingv1.PolicyTypeEgress)
	p.Spec.Egress = rules
	return p
}

func TestRules(t *testing.T) {
	type (
		peers = []networkingv1.NetworkPolicyPeer
		ports = []networkingv1.NetworkPolicyPort
	)
	const known = "{ 10.7.0.2, 10.7.0.3 }"
	udp := port(intstr.FromInt32(53))
	udp.Protocol = ptr.To(corev1.ProtocolUDP)
	several := port(intstr.FromInt32(8000))
	several.EndPort = ptr.To[int32](8010)
	block := peers{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.1/32", "192.0.2.128/25"}}}}
	for _, test := range []struct {
		name   string
		policy *networkingv1.NetworkPolicy
		want   []string // rules of the chains, in order
	}{
		{"nothing in", withIngress(), []string{"in: drop"}},
		{"all in", withIngress(networkingv1.NetworkPolicyIngressRule{}), []string{"in: ip version 4 return", "in: drop"}},
		{
			"Pods of the namespace, to a port of the name", withIngress(networkingv1.NetworkPolicyIngressRule{
				From: peers{{PodSelector: selects(app("db"))}}, Ports: ports{port(intstr.FromString("http")), udp},
			}),
			[]string{"in: ip saddr { 10.7.0.3, 10.7.4.2 } tcp dport 8080 return", "in: ip saddr { 10.7.0.3, 10.7.4.2 } udp dport 53 return", "in: drop"},
		},
		{
			"another namespace", withIngress(networkingv1.NetworkPolicyIngressRule{
				From: peers{{NamespaceSelector: selects(map[string]string{"team": "b"})}}, Ports: ports{several},
			}),
			[]string{"in: ip saddr { 10.7.4.3 } tcp dport 8000-8010 return", "in: drop"},
		},
		{
			"nobody is selected", withIngress(networkingv1.NetworkPolicyIngressRule{From: peers{{PodSelector: selects(app("none"))}}}),
			[]string{"in: drop"},
		},
		{
			"a block of addresses", withIngress(networkingv1.NetworkPolicyIngressRule{From: block}),
			[]string{"in: ip saddr 192.0.2.0/24 ip saddr != 192.0.2.1/32 ip saddr != 192.0.2.128/25 return", "in: drop"},
		},
		{
			"a block of IPv6", withIngress(networkingv1.NetworkPolicyIngressRule{From: peers{{IPBlock: &networkingv1.IPBlock{CIDR: "2001:db8::/32"}}}}),
			[]string{"in: drop"},
		},
		{"nothing out", withEgress(), []string{"led: drop", "out: drop"}},
		{
			"all out", withEgress(networkingv1.NetworkPolicyEgressRule{}),
			[]string{"led: ip version 4 return", "led: drop", "out: ip version 4 return", "out: drop"},
		},
		{
			"out to a port of the name", withEgress(networkingv1.NetworkPolicyEgressRule{To: peers{{PodSelector: &metav1.LabelSelector{}}}, Ports: ports{port(intstr.FromString("http"))}}),
			[]string{"led: drop", "out: ip daddr { 10.7.0.2 } tcp dport 8080 return", "out: ip daddr { 10.7.4.2 } tcp dport 80 return", "out: drop"},
		},
		{
			"out to other networks", withEgress(networkingv1.NetworkPolicyEgressRule{To: peers{{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8"}}}}, Ports: ports{udp, several}}),
			[]string{
				"led: ip version 4 ct original ip daddr != 10.0.0.0/8 meta l4proto tcp ct original proto-dst 8000-8010 return",
				"led: ip version 4 ct original ip daddr != 10.0.0.0/8 meta l4proto udp ct original proto-dst 53 return", "led: drop",
				"out: ip version 4 ip daddr != 10.0.0.0/8 tcp dport 8000-8010 return", "out: ip version 4 ip daddr != 10.0.0.0/8 udp dport 53 return", "out: drop",
			},
		},
		{
			"the names of the node", withEgress(networkingv1.NetworkPolicyEgressRule{
				To: peers{{NamespaceSelector: selects(map[string]string{"kubernetes.io/metadata.name": "kube-system"}), PodSelector: selects(map[string]string{"k8s-app": "kube-dns"})}},
			}),
			[]string{"led: drop", "out: ip daddr { 10.7.255.2 } return", "out: drop"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := Rules(testNode, testWorld(test.policy))
			if got := chainsOf(text); strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			for _, want := range []string{"ip saddr 10.7.0.0/22 ip saddr != " + known + " drop", "vmap { 10.7.0.2 : jump "} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
			if strings.Contains(text, "10.7.0.3 : jump") {
				t.Errorf("a Pod that no policy selects is isolated:\n%s", text)
			}
			checkSyntax(t, text)
		})
	}
}

// What holds for IPv4 holds for IPv6.
func TestRulesOfIPv6(t *testing.T) {
	node := testNode
	node.PodsIPv6 = netip.MustParsePrefix("fd6b:656c:a07::/54")
	block := func(cidr string) *networkingv1.IPBlock { return &networkingv1.IPBlock{CIDR: cidr} }
	in := withIngress(
		networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: selects(app("db"))}, {IPBlock: block("2001:db8::/32")}, {IPBlock: block("192.0.2.0/24")},
		}},
	)
	out := withEgress(networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{IPBlock: block("::/0")}}, Ports: []networkingv1.NetworkPolicyPort{port(intstr.FromString("http"))}})
	world := World{
		Policies: []*networkingv1.NetworkPolicy{in, out},
		Pods: []*corev1.Pod{
			newPod("shop", "web", "one", "10.7.0.2 fd6b:656c:a07::2", app("web")), newPod("shop", "db", "two", "10.7.4.2 fd6b:656c:a07:400::2", app("db")),
			newPod("shop", "old", "one", "10.7.0.3", app("web")),
		},
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}},
	}
	text := Rules(node, world)
	if !strings.HasPrefix(text, Rules(testNode, world)) {
		t.Errorf("the rules of IPv4 are others with IPv6:\n%s", text)
	}
	ours := text[strings.Index(text, "table ip6"):]
	want := []string{
		"in: ip6 saddr 2001:db8::/32 return", "in: ip6 saddr { fd6b:656c:a07:400::2 } return", "in: drop", "led: drop", "out: drop",
	}
	if got := chainsOf(ours); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, want := range []string{
		"ip6 saddr fd6b:656c:a07::/54 ip6 saddr != { fd6b:656c:a07::2 } drop", "ip6 daddr fd6b:656c:a07::/54 ip6 daddr != { fd6b:656c:a07::2 } drop",
		"ip6 saddr vmap { fd6b:656c:a07::2 : jump out-", "ip6 daddr vmap { fd6b:656c:a07::2 : jump in-", "ip6 saddr fe80::/10 drop",
	} {
		if !strings.Contains(ours, want) {
			t.Errorf("%q is missing in\n%s", want, ours)
		}
	}
	if strings.Contains(ours, "10.7.") {
		t.Errorf("addresses of IPv4 in\n%s", ours)
	}
	checkSyntax(t, text)
	checkSyntax(t, Rules(node, World{}))
}

// The rules are set again only if their text changes.
func TestRulesAreStable(t *testing.T) {
	world := testWorld(withIngress(networkingv1.NetworkPolicyIngressRule{}), withEgress())
	first := Rules(testNode, world)
	for range 20 {
		if again := Rules(testNode, world); again != first {
			t.Fatalf("got\n%s\nafter\n%s", again, first)
		}
	}
}

func TestWithoutPolicies(t *testing.T) {
	text := Rules(testNode, testWorld())
	if strings.Contains(text, "drop") {
		t.Errorf("got %s", text)
	}
	checkSyntax(t, text)
}

// chainsOf returns the rules of the chains for Pods, each after the direction of its chain.
func chainsOf(text string) (rules []string) {
	chain := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 3 && words[0] == "chain":
			chain, _, _ = strings.Cut(words[1], "-")
		case len(words) > 0 && words[0] == "}":
			chain = ""
		case chain == string(ingress) || chain == string(egress) || chain == string(ledOut):
			rules = append(rules, chain+": "+strings.TrimSpace(line))
		}
	}
	return rules
}

// checkSyntax has nft check rules, where it is installed and may be used.
func checkSyntax(t *testing.T, text string) {
	t.Helper()
	check := func(text string) ([]byte, error) {
		cmd := exec.Command("nft", "--check", "--file", "-")
		cmd.Stdin = strings.NewReader(text)
		return cmd.CombinedOutput()
	}
	if _, err := check("table ip keelson-test {}\n"); err != nil {
		return
	}
	if output, err := check(text); err != nil {
		t.Errorf("nft: %v: %s\n%s", err, output, text)
	}
}

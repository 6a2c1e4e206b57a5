// Package policy turns NetworkPolicies into rules of nft for the Pods of one node. All of it is pure.
package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Node is what the rules need to know of a node.
type Node struct {
	Name string
	// Address is where the node answers names, and OutPort the port of it at which the TCP connections of Pods to other networks end:
	// their target is the original one of the connection.
	Address netip.Addr
	OutPort int
	// API is the address at which Pods reach the API, as the endpoint of the Service kubernetes.
	API netip.Addr
	// Pods is where the Pods of this node get their addresses from.
	Pods netip.Prefix
	// PodsIPv6 is the same for IPv6. It is not valid if they have no IPv6. By it they reach neither the API nor other networks, nor do they
	// ask for names.
	PodsIPv6 netip.Prefix
}

// World is what the API has.
type World struct {
	Policies   []*networkingv1.NetworkPolicy
	Pods       []*corev1.Pod
	Namespaces []*corev1.Namespace
}

// table is the name of our tables, one for each family.
const table = "keelson-policy"

// family is an IP family as nft names it.
type family string

const (
	ipv4 family = "ip"
	ipv6 family = "ip6"
)

// has reports whether an address belongs to the family.
func (f family) has(a netip.Addr) bool { return a.Is4() == (f == ipv4) }

// all matches every packet of the family.
func (f family) all() string {
	if f == ipv6 {
		return "ip6 version 6"
	}
	return "ip version 4"
}

// Rules returns the input of `nft -f` that replaces all rules by those for this world. A policy concerns only connections that begin
// after it. As long as there are policies, Pods that the API has no address of yet are not connected: it is not known what holds for them.
func Rules(n Node, w World) string {
	rules := rulesOf(ipv4, n, w)
	if n.PodsIPv6.IsValid() {
		n.Pods = n.PodsIPv6
		rules += rulesOf(ipv6, n, w)
	}
	return rules
}

func rulesOf(f family, n Node, w World) string {
	// The first line is for the case that there is no table yet.
	replace := fmt.Sprintf("table %[1]s %[2]s {}\ndelete table %[1]s %[2]s\n", f, table)
	if len(w.Policies) == 0 {
		return replace
	}
	c := newCompiler(f, n, w)
	for _, p := range c.pods {
		if p.node == n.Name && p.pod != nil {
			c.isolate(p)
		}
	}
	return replace + c.text()
}

// peer is a Pod with an address. Of the one that stands for the names of the node there is no Pod in the API.
type peer struct {
	pod       *corev1.Pod
	namespace string
	node      string
	address   netip.Addr
	labels    labels.Set
	ports     []corev1.ContainerPort
}

// compiler collects chains. Pods for which the same holds share them.
type compiler struct {
	family     family
	node       Node
	policies   []*networkingv1.NetworkPolicy
	namespaces map[string]labels.Set
	pods       []peer
	chains     map[string]string // name by text
	jumps      map[direction]map[netip.Addr]string
}

// direction is what a chain is about.
type direction string

// Connections that are led out end at a socket of the node, so egress rules look at their original target. So do those for connections to
// the API: policies for other clusters allow its port 443, not the one of its endpoint here.
const (
	ingress direction = "in"
	egress  direction = "out"
	ledOut  direction = "led"
)

func newCompiler(f family, n Node, w World) *compiler {
	c := &compiler{
		family: f, node: n, policies: slices.SortedFunc(slices.Values(w.Policies), func(a, b *networkingv1.NetworkPolicy) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		}),
		namespaces: map[string]labels.Set{}, chains: map[string]string{}, jumps: map[direction]map[netip.Addr]string{ingress: {}, egress: {}, ledOut: {}},
	}
	for _, ns := range w.Namespaces {
		c.namespaces[ns.Name] = ns.Labels
	}
	if f.has(n.Address) {
		// Each node answers names itself. Policies for other clusters allow the Pods of its DNS server.
		c.pods = append(c.pods, peer{
			namespace: metav1.NamespaceSystem, node: n.Name, address: n.Address, labels: labels.Set{"k8s-app": "kube-dns"},
			ports: []corev1.ContainerPort{{Name: "dns", Protocol: corev1.ProtocolUDP, ContainerPort: 53}, {Name: "dns-tcp", Protocol: corev1.ProtocolTCP, ContainerPort: 53}},
		})
	}
	for _, pod := range w.Pods {
		address, ok := f.addressOf(pod)
		if !ok || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		p := peer{pod: pod, namespace: pod.Namespace, node: pod.Spec.NodeName, address: address, labels: pod.Labels}
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			p.ports = append(p.ports, container.Ports...)
		}
		c.pods = append(c.pods, p)
	}
	c.pods = onePerAddress(c.pods)
	return c
}

// addressOf returns the address of a Pod in the family; false if it has none yet.
func (f family) addressOf(pod *corev1.Pod) (netip.Addr, bool) {
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil && f.has(address) {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// onePerAddress sorts Pods by their addresses. Of two with the same one, the older has ended, or is about to.
func onePerAddress(pods []peer) (kept []peer) {
	created := func(p peer) metav1.Time {
		if p.pod == nil {
			return metav1.Time{}
		}
		return p.pod.CreationTimestamp
	}
	slices.SortStableFunc(pods, func(a, b peer) int {
		return cmp.Or(a.address.Compare(b.address), created(a).Compare(created(b).Time))
	})
	for i, p := range pods {
		if i == len(pods)-1 || pods[i+1].address != p.address {
			kept = append(kept, p)
		}
	}
	return kept
}

// isolate adds the chains for a Pod that policies select.
func (c *compiler) isolate(p peer) {
	allowed := map[direction][]string{} // an empty rule allows nothing, but isolates
	for _, policy := range c.policies {
		if policy.Namespace != p.namespace || !matches(&policy.Spec.PodSelector, p.labels) {
			continue
		}
		for _, kind := range policy.Spec.PolicyTypes {
			switch kind {
			case networkingv1.PolicyTypeIngress:
				allowed[ingress] = append(append(allowed[ingress], ""), c.ingressRules(p, policy)...)
			case networkingv1.PolicyTypeEgress:
				for _, d := range []direction{egress, ledOut} {
					allowed[d] = append(append(allowed[d], ""), c.egressRules(policy, d)...)
				}
			}
		}
	}
	for _, d := range []direction{ingress, egress, ledOut} {
		if rules := allowed[d]; rules != nil {
			c.jumps[d][p.address] = c.chain(d, rules)
		}
	}
}

// chain returns the name of a chain that returns what is allowed, and drops the rest.
func (c *compiler) chain(d direction, rules []string) string {
	var b strings.Builder
	slices.Sort(rules)
	for _, rule := range slices.Compact(rules) {
		if rule != "" {
			fmt.Fprintf(&b, "\t\t%s return\n", rule)
		}
	}
	b.WriteString("\t\tdrop\n")
	key := string(d) + "\n" + b.String()
	if c.chains[key] == "" {
		c.chains[key] = fmt.Sprintf("%s-%d", d, len(c.chains))
	}
	return c.chains[key]
}

func (c *compiler) ingressRules(target peer, policy *networkingv1.NetworkPolicy) (rules []string) {
	for _, rule := range policy.Spec.Ingress {
		sources := []string{c.family.all()} // without peers
		if len(rule.From) > 0 {
			sources = c.sources(rule.From, policy.Namespace)
		}
		for _, ports := range portMatches(rule.Ports, ingress, target.ports) {
			for _, source := range sources {
				rules = append(rules, join(source, ports))
			}
		}
	}
	return rules
}

// sources returns what matches each of the peers as a source.
func (c *compiler) sources(peers []networkingv1.NetworkPolicyPeer, namespace string) (matching []string) {
	for _, p := range peers {
		if p.IPBlock != nil {
			matching = append(matching, c.family.blockMatch("saddr", p.IPBlock)...)
		} else if found := c.selected(p, namespace); len(found) > 0 {
			matching = append(matching, c.family.field("saddr")+" "+addressSet(found))
		}
	}
	return matching
}

func (c *compiler) egressRules(policy *networkingv1.NetworkPolicy, d direction) (rules []string) {
	address := "daddr"
	if d == ledOut {
		address = originalTarget
	}
	for _, rule := range policy.Spec.Egress {
		if len(rule.To) == 0 {
			for _, ports := range portMatches(rule.Ports, d, nil) {
				rules = append(rules, join(c.family.all(), ports))
			}
			rules = append(rules, c.namedPorts(rule.Ports, d, c.pods)...)
		}
		for _, p := range rule.To {
			if p.IPBlock != nil {
				for _, block := range c.family.blockMatch(address, p.IPBlock) {
					for _, ports := range portMatches(rule.Ports, d, nil) {
						rules = append(rules, join(block, ports))
					}
				}
				continue
			}
			found := c.selected(p, policy.Namespace)
			if len(found) == 0 || d == ledOut { // Pods are not in other networks
				continue
			}
			for _, ports := range portMatches(rule.Ports, d, nil) {
				rules = append(rules, join(c.family.field(address)+" "+addressSet(found), ports))
			}
			rules = append(rules, c.namedPorts(rule.Ports, d, found)...)
		}
	}
	return rules
}

// namedPorts returns what matches ports of these Pods that a rule names. Each Pod may have another number for a name.
func (c *compiler) namedPorts(ports []networkingv1.NetworkPolicyPort, d direction, pods []peer) (rules []string) {
	if d == ledOut {
		return nil
	}
	for _, port := range ports {
		if port.Port == nil || port.Port.StrVal == "" {
			continue
		}
		byNumber := map[int32][]peer{}
		for _, p := range pods {
			if number, ok := numberOf(port, p.ports); ok {
				byNumber[number] = append(byNumber[number], p)
			}
		}
		for _, number := range slices.Sorted(maps.Keys(byNumber)) {
			rules = append(rules, fmt.Sprintf("%s %s %s dport %d", c.family.field("daddr"), addressSet(byNumber[number]), protocol(port), number))
		}
	}
	return rules
}

// selected returns the Pods that a peer selects.
func (c *compiler) selected(p networkingv1.NetworkPolicyPeer, namespace string) (found []peer) {
	for _, candidate := range c.pods {
		inNamespace := candidate.namespace == namespace
		if p.NamespaceSelector != nil {
			inNamespace = matches(p.NamespaceSelector, c.namespaces[candidate.namespace])
		}
		if inNamespace && (p.PodSelector == nil || matches(p.PodSelector, candidate.labels)) {
			found = append(found, candidate)
		}
	}
	return found
}

// matches reports whether a selector selects labels. The API has checked the selector.
func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(set)
}

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
)

// text returns our table.
func (c *compiler) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table ip %s {\n", table)
	names := map[string]string{}
	for key, name := range c.chains {
		_, body, _ := strings.Cut(key, "\n")
		names[name] = body
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "\tchain %s {\n%s\t}\n", name, names[name])
	}
	// What a Pod answers is no new connection.
	const established = "\t\tct state established,related accept\n"
	var known []peer
	for _, p := range c.pods {
		if p.node == c.node.Name && c.node.Pods.Contains(p.address) {
			known = append(known, p)
		}
	}
	unknown := func(field string) string {
		if len(known) == 0 {
			return fmt.Sprintf("\t\t%s %s drop\n", field, c.node.Pods)
		}
		return fmt.Sprintf("\t\t%[1]s %[2]s %[1]s != %[3]s drop\n", field, c.node.Pods, addressSet(known))
	}
	b.WriteString("\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n" + established)
	b.WriteString(unknown("ip saddr") + unknown("ip daddr") + c.verdicts("ip saddr", egress) + c.verdicts("ip daddr", ingress))
	b.WriteString("\t}\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n" + established + unknown("ip saddr"))
	if len(c.jumps[ledOut]) > 0 {
		led := fmt.Sprintf("ip daddr %s tcp dport %d ct status dnat", c.node.Address, c.node.OutPort)
		api := fmt.Sprintf("ip daddr %s", c.node.API)
		b.WriteString(c.verdicts(led+" ip saddr", ledOut) + c.verdicts(api+" ip saddr", ledOut))
		fmt.Fprintf(&b, "\t\t%s accept\n\t\t%s accept\n", led, api)
	}
	b.WriteString(c.verdicts("ip saddr", egress) + "\t}\n}\n")
	return b.String()
}

// verdicts returns the rule that leads to the chains of a direction, by an address.
func (c *compiler) verdicts(field string, d direction) string {
	if len(c.jumps[d]) == 0 {
		return ""
	}
	var cases []string
	for _, address := range slices.SortedFunc(maps.Keys(c.jumps[d]), netip.Addr.Compare) {
		cases = append(cases, fmt.Sprintf("%s : jump %s", address, c.jumps[d][address]))
	}
	return fmt.Sprintf("\t\t%s vmap { %s }\n", field, strings.Join(cases, ", "))
}

// portMatches returns what matches each of the ports of a rule; one that is empty if it has none. Ports with a name are those of
// the Pod that has these ports.
func portMatches(ports []networkingv1.NetworkPolicyPort, d direction, of []corev1.ContainerPort) (matching []string) {
	if len(ports) == 0 {
		return []string{""}
	}
	for _, port := range ports {
		field := protocol(port) + " dport"
		if d == ledOut {
			field = "meta l4proto " + protocol(port) + " ct original proto-dst"
		}
		switch {
		case port.Port == nil:
			matching = append(matching, "meta l4proto "+protocol(port))
		case port.Port.StrVal != "":
			if number, ok := numberOf(port, of); ok {
				matching = append(matching, fmt.Sprintf("%s %d", field, number))
			}
		case port.EndPort != nil:
			matching = append(matching, fmt.Sprintf("%s %d-%d", field, port.Port.IntVal, *port.EndPort))
		default:
			matching = append(matching, fmt.Sprintf("%s %d", field, port.Port.IntVal))
		}
	}
	return matching
}

// numberOf returns the number of a port that a rule names.
func numberOf(port networkingv1.NetworkPolicyPort, of []corev1.ContainerPort) (int32, bool) {
	for _, p := range of {
		if p.Name == port.Port.StrVal && strings.EqualFold(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)), protocol(port)) {
			return p.ContainerPort, true
		}
	}
	return 0, false
}

// protocol returns the name that nft has for the protocol of a port.
func protocol(port networkingv1.NetworkPolicyPort) string {
	if port.Protocol == nil {
		return "tcp"
	}
	return strings.ToLower(string(*port.Protocol))
}

// blockMatch returns what matches a block of addresses; nothing if they are not those of IPv4.
func blockMatch(field string, block *networkingv1.IPBlock) []string {
	network, err := netip.ParsePrefix(block.CIDR)
	if err != nil || !network.Addr().Is4() {
		return nil
	}
	match := all
	if network.Bits() > 0 {
		match = field + " " + network.Masked().String()
	}
	for _, except := range block.Except {
		if inner, err := netip.ParsePrefix(except); err == nil {
			match += " " + field + " != " + inner.Masked().String()
		}
	}
	return []string{match}
}

func addressSet(peers []peer) string {
	addresses := make([]string, 0, len(peers))
	for _, p := range peers {
		addresses = append(addresses, p.address.String())
	}
	return "{ " + strings.Join(addresses, ", ") + " }"
}

func join(parts ...string) string {
	return strings.TrimSpace(strings.Join(parts, " "))
}

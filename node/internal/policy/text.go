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

// text returns our table of the family.
func (c *compiler) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", c.family, table)
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
	unknown := func(address string) string {
		field := c.family.field(address)
		if len(known) == 0 {
			return fmt.Sprintf("\t\t%s %s drop\n", field, c.node.Pods)
		}
		return fmt.Sprintf("\t\t%[1]s %[2]s %[1]s != %[3]s drop\n", field, c.node.Pods, addressSet(known))
	}
	saddr, daddr := c.family.field("saddr"), c.family.field("daddr")
	b.WriteString("\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n" + established)
	b.WriteString(unknown("saddr") + unknown("daddr") + c.verdicts(saddr, egress) + c.verdicts(daddr, ingress))
	b.WriteString("\t}\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n" + established)
	if c.family == ipv6 {
		b.WriteString(neighbours)
	}
	b.WriteString(unknown("saddr"))
	if len(c.jumps[ledOut]) > 0 && c.family == ipv4 {
		led := fmt.Sprintf("ip daddr %s tcp dport %d ct status dnat", c.node.Address, c.node.OutPort)
		api := fmt.Sprintf("ip daddr %s", c.node.API)
		b.WriteString(c.verdicts(led+" ip saddr", ledOut) + c.verdicts(api+" ip saddr", ledOut))
		fmt.Fprintf(&b, "\t\t%s accept\n\t\t%s accept\n", led, api)
	}
	b.WriteString(c.verdicts(saddr, egress) + "\t}\n}\n")
	return b.String()
}

// neighbours are the rules of IPv6 for what does not go beyond a link. Without the first one, Pods would find no neighbour (RFC 4861) when
// they may not send. The others are for Pods that use the address of their link, of which the API does not know: they reach nothing by it.
const neighbours = "\t\ticmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n" +
	"\t\tip6 saddr fe80::/10 drop\n"

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

// originalTarget is what field takes for the target of a connection before a rule has changed it.
const originalTarget = "original"

// field returns what nft calls the source, target or original target of a packet.
func (f family) field(address string) string {
	if address == originalTarget {
		return fmt.Sprintf("ct original %s daddr", f)
	}
	return fmt.Sprintf("%s %s", f, address)
}

// blockMatch returns what matches a block of addresses; nothing if they are not those of the family.
func (f family) blockMatch(address string, block *networkingv1.IPBlock) []string {
	network, err := netip.ParsePrefix(block.CIDR)
	if err != nil || !f.has(network.Addr()) {
		return nil
	}
	field, match := f.field(address), f.all()
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

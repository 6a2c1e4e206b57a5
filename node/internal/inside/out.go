package inside

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// leadOut has the connections that Pods make beyond the node, its Services and the machine end at a socket of ours, which
// the part on the machine serves. So Pods reach what the machine reaches, and the machine's firewall and its forwarding
// stay as they are. The rules are those of our network namespace and go with it. The answers of Pods to
// connections from outside are marked, so that they take the way back.
func leadOut(s settings.Settings) error {
	if s.ProxyMode == "nftables" {
		return call(nftRules(s), "nft", "-f", "-")
	}
	for _, rule := range iptablesRules(s) {
		if err := call("", "iptables", rule...); err != nil {
			return err
		}
	}
	return nil
}

// The rules come after those of kube-proxy, which have turned addresses of Services into those of Pods by then: kube-proxy
// puts its own before all others, and its table for nft has an earlier place. Services without a Pod are left alone, too.

func iptablesRules(s settings.Settings) [][]string {
	const chain = "KEELSON-OUT"
	var rules [][]string
	for _, rule := range []string{
		"-N " + chain,
		"-A " + chain + " -d " + s.Network.String() + " -j RETURN",
		"-A " + chain + " -d " + s.Services.String() + " -j RETURN",
		"-A " + chain + " -p tcp -j DNAT --to-destination " + out(s).String(),
		"-A PREROUTING -s " + s.PodNetwork().String() + " -j " + chain,
	} {
		rules = append(rules, append([]string{"-w", "-t", "nat"}, strings.Fields(rule)...))
	}
	mark := fmt.Sprintf("-w -t mangle -A PREROUTING -s %s -m conntrack --ctdir REPLY -j MARK --set-xmark %#x/%#x", s.PodNetwork(), answerMark, answerMark)
	return append(rules, strings.Fields(mark))
}

func nftRules(s settings.Settings) string {
	return fmt.Sprintf(`table ip keelson {
	chain out {
		type nat hook prerouting priority dstnat + 10; policy accept;
		ip saddr %s ip daddr != { %s, %s } meta l4proto tcp dnat to %s
	}
	chain answers {
		type filter hook prerouting priority mangle; policy accept;
		ip saddr %s ct direction reply meta mark set meta mark or %#x
	}
}
`, s.PodNetwork(), s.Network, s.Services, out(s), s.PodNetwork(), answerMark)
}

// out is where the connections end.
func out(s settings.Settings) netip.AddrPort {
	return netip.AddrPortFrom(s.NodeAddress().Addr(), outPort)
}

// call runs a program to its end.
func call(stdin, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(output))
	}
	return nil
}

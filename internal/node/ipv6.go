package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// tryTimeout limits how long the kernel may take to load the modules that it needs.
const tryTimeout = 20 * time.Second

// ipv6Rules are like those of kube-proxy and of NetworkPolicies for IPv6.
const ipv6Rules = `table ip6 keelson-try {
	chain in {
		type nat hook prerouting priority dstnat; policy accept;
		ip6 daddr fd00::1 meta l4proto tcp dnat to fd00::2
	}
	chain out {
		type nat hook postrouting priority srcnat; policy accept;
		ip6 saddr fd00::1 masquerade
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		ct state established,related accept
		ip6 saddr fd00::/64 ip6 saddr != { fd00::1, fd00::2 } drop
		ip6 saddr vmap { fd00::1 : drop }
	}
}
`

// TryIPv6 returns why nodes of this machine cannot have IPv6. Without NetworkPolicies that hold for IPv6, Pods would evade them by it, so it
// sets rules like theirs, in a network namespace that ends with the program.
func TryIPv6(m Machine) error {
	if !m.Root || m.Capabilities&capSysAdmin == 0 {
		return errors.New("IPv6 needs root")
	}
	for _, scope := range []string{"all", "default"} {
		path := "/proc/sys/net/ipv6/conf/" + scope + "/disable_ipv6"
		if value, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(value)) != "0" {
			return fmt.Errorf("IPv6 needs a kernel that has it, and 0 in %s", path)
		}
	}
	if m.Nft == "" || find("nsenter") == "" {
		return errors.New("IPv6 needs nft and nsenter for NetworkPolicies: install the packages nftables and util-linux")
	}
	if err := tryApart(m.Nft, ipv6Rules, "-f", "-"); err != nil || m.Iptables == "" {
		return err
	}
	return tryApart(find("ip6tables"), "", "-w", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
}

// tryApart runs a program in a network namespace of its own.
func tryApart(program, stdin string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, output)
	}
	return nil
}

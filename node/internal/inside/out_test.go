package inside

import (
	"strings"
	"testing"
)

func TestIptablesRules(t *testing.T) {
	var got strings.Builder
	for _, rule := range iptablesRules(testFacts().Settings) {
		got.WriteString(strings.Join(rule, " ") + "\n")
	}
	const want = `-w -t nat -N KEELSON-OUT
-w -t nat -A KEELSON-OUT -d 10.100.0.0/16 -j RETURN
-w -t nat -A KEELSON-OUT -d 10.96.0.0/16 -j RETURN
-w -t nat -A KEELSON-OUT -p tcp -j DNAT --to-destination 10.100.255.2:3129
-w -t nat -A PREROUTING -s 10.100.0.0/22 -j KEELSON-OUT
-w -t mangle -A PREROUTING -s 10.100.0.0/22 -m conntrack --ctdir REPLY -j MARK --set-xmark 0x10000/0x10000
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", &got, want)
	}
}

func TestNftRules(t *testing.T) {
	const want = `table ip keelson {
	chain out {
		type nat hook prerouting priority dstnat + 10; policy accept;
		ip saddr 10.100.0.0/22 ip daddr != { 10.100.0.0/16, 10.96.0.0/16 } meta l4proto tcp dnat to 10.100.255.2:3129
	}
	chain answers {
		type filter hook prerouting priority mangle; policy accept;
		ip saddr 10.100.0.0/22 ct direction reply meta mark set meta mark or 0x10000
	}
}
`
	if got := nftRules(testFacts().Settings); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestCall(t *testing.T) {
	if err := call("x", "grep", "x"); err != nil {
		t.Error(err)
	}
	if err := call("", "ls", "/nowhere/at/all"); err == nil || !strings.Contains(err.Error(), "ls /nowhere/at/all: exit status 2: ") {
		t.Errorf("got %v", err)
	}
}

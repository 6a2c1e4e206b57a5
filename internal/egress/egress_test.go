package egress

import (
	"net/netip"
	"testing"
)

func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.215.14": true, "1.1.1.1": true, "2606:4700::1111": true, "172.32.0.1": true, "100.128.0.1": true, "::ffff:1.1.1.1": true,
		"127.0.0.1": false, "127.1.2.3": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "fd00:ec2::254": false, "fc00::1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "::ffff:169.254.169.254": false, "100.100.100.200": false, "168.63.129.16": false,
		"224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"::127.0.0.1": false, "::ffff:0:127.0.0.1": false, "64:ff9b:1::a9fe:a9fe": false, "2001:0:7f00:1::1": false, "100::1": false, "4000::1": false, "5f00::1": false,
		"64:ff9b::a9fe:a9fe": false, "2002:7f00:1::": false, "192.0.0.192": false, "198.18.0.1": false, "2001:db8::1": false, "fec0::1": false,
	} {
		if got := IsPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}

// Even a network of everything does not make these reachable for guests.
func TestIsNever(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": false, "10.0.0.1": false, "192.168.1.1": false, "100.64.0.1": false, "fd12::1": false, "2606:4700::1111": false,
		"127.0.0.1": true, "127.1.2.3": true, "::1": true, "::ffff:127.0.0.1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"169.254.1.1": true, "fe80::1": true, "224.0.0.1": true, "239.1.1.1": true, "240.0.0.1": true, "255.255.255.255": true, "ff02::1": true,
		"169.254.169.254": true, "::ffff:169.254.169.254": true, "168.63.129.16": true, "100.100.100.200": true, "192.0.0.192": true,
		"fd00:ec2::254": true, "fd20:ce::254": true,
		"::127.0.0.1": true, "64:ff9b::7f00:1": true, "2002:7f00:1::": true, "::ffff:0:127.0.0.1": true,
	} {
		if got := IsNever(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}

func TestFilter(t *testing.T) {
	filter := Filter{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	for text, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "1.1.1.1": true, "127.0.0.1": false} {
		if got := filter.Allows(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
}

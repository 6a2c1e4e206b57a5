package local

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSockets(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 71 1
   1: 0100007F:4E20 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 72 1
   2: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:4E20 06 00000000:00000000 03:00000000 00000000     0        0 0 3
   3: broken
`
	got := parseSockets(table)
	want := []string{"127.0.0.1:20000 0.0.0.0:0", "127.0.0.1:20000 127.0.0.1:50000", "127.0.0.1:50000 127.0.0.1:20000"}
	var read []string
	for _, s := range got {
		read = append(read, s.local.String()+" "+s.remote.String())
	}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Fatal(diff)
	}
	if n := listeners(got, got[0].local); n != 1 || got[1].inode != 72 || got[2].state != stateTimeWait {
		t.Errorf("%d listeners, sockets: %+v", n, got)
	}
}

func TestConnected(t *testing.T) {
	at := netip.MustParseAddrPort
	api, ours, client := at("127.0.0.1:20000"), at("127.0.0.1:40000"), at("192.0.2.7:40001")
	const established = 1
	own := []socket{{api, ours, established, 11}, {ours, api, established, 12}}
	closed := socket{at("127.0.0.1:40002"), api, stateTimeWait, 0}
	isOurs := func(inode uint64) bool { return inode == 12 }
	var seen clients
	for _, tt := range []struct {
		name string
		all  []socket
		want bool
	}{
		{"only we are connected, and someone was before the first look", append([]socket{{api, at("0.0.0.0:0"), stateListen, 1}, closed}, own...), false},
		{"a client of another host", append([]socket{{api, client, established, 13}}, own...), true},
		{"it is gone", own, false},
		{"a connection to another port", append([]socket{{at("127.0.0.1:20001"), client, established, 14}}, own...), false},
		{"a client of this host has come and gone", append([]socket{closed}, own...), true},
		{"which counts once", append([]socket{closed}, own...), false},
		{"we have closed our connection", []socket{{ours, api, stateTimeWait, 0}}, false},
	} {
		if got := seen.connected(tt.all, api, isOurs); got != tt.want {
			t.Errorf("%s: connected = %t", tt.name, got)
		}
	}
}

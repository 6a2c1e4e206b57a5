package host

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// A record counts only as long as its process is in the network namespace that it was in.
func TestReadPeers(t *testing.T) {
	s := testSettings
	s.Peers, s.Index = t.TempDir(), 1
	own, err := networkNamespace(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, record := range map[string]any{
		"0.json": peerRecord{os.Getpid(), own}, "1.json": peerRecord{os.Getpid(), own}, "2.json": peerRecord{os.Getpid(), "net:[1]"},
		"3.json": peerRecord{1 << 30, own}, "4.json": "damaged", "32.json": peerRecord{os.Getpid(), own}, "x.json": peerRecord{os.Getpid(), own},
	} {
		data, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Peers, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readPeers(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != (peerRecord{os.Getpid(), own}) {
		t.Errorf("got %v", got)
	}
}

package controlplane

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoadState(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		file    string // none if empty
		want    state
		wantErr []string
	}{
		{name: "a new directory", want: state{Commands: map[string]string{}}},
		{
			name: "everything", file: `{"port":20001,"ephemeral":true,"nodes":3,"commands":{"etcd":"abc"}}`,
			want: state{Port: 20001, Ephemeral: true, Nodes: 3, Commands: map[string]string{"etcd": "abc"}},
		},
		{name: "only a port", file: `{"port":20001}`, want: state{Port: 20001, Commands: map[string]string{}}},
		{name: "of a newer version", file: `{"port":20001,"new":1}`, want: state{Port: 20001, Commands: map[string]string{}}},
		{name: "damaged", file: `{"port":`, wantErr: []string{"state.json is damaged", "delete it", "a new port is chosen"}},
		{name: "empty", file: "\n", wantErr: []string{"state.json is damaged", "delete it"}},
		{name: "no network", file: `{"services":"10"}`, wantErr: []string{"state.json is damaged", "services"}},
		{name: "something else", file: `{"port":"a"}`, wantErr: []string{"state.json is damaged", "delete it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := newLayout(t)
			if tt.file != "" {
				if err := os.WriteFile(dir.stateFile(), []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := loadState(dir)
			for _, text := range tt.wantErr {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("error %v does not say %q", err, text)
				}
			}
			if len(tt.wantErr) > 0 {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if err := saveState(dir, got); err != nil {
				t.Fatal(err)
			}
			again, err := loadState(dir)
			if diff := cmp.Diff(tt.want, again); diff != "" || err != nil {
				t.Errorf("state after a save: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestFreePort(t *testing.T) {
	t.Parallel()
	first, err := freePort(t.Name(), "")
	if err != nil {
		t.Fatal(err)
	}
	if first < firstPort || first >= lastPort {
		t.Errorf("port %d is out of range", first)
	}
	if again, err := freePort(t.Name(), ""); again != first || err != nil {
		t.Errorf("the same seed gives %d, then %d (%v)", first, again, err)
	}
	for _, address := range []string{"127.0.0.1", "0.0.0.0"} {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(first)))
		if err != nil {
			t.Fatal(err)
		}
		if isFree("", first) {
			t.Errorf("port %d counts as free although somebody listens on %s", first, address)
		}
		if next, err := freePort(t.Name(), ""); next == first || err != nil {
			t.Errorf("a port that is taken was chosen (%v)", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if !isFree("", first) {
			t.Errorf("port %d counts as taken although nobody listens on it", first)
		}
	}
}

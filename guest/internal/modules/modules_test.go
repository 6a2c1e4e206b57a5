package modules

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example is a table as images have it.
var example = Table{
	{Name: "ring"},
	{Name: "virtio", Depends: []string{"ring"}},
	{Name: "pci", Depends: []string{"ring", "virtio", "builtin"}, Aliases: []string{"pci:v00001AF4d*sv*sd*bc*sc*i*"}},
	{Name: "net", Depends: []string{"virtio"}, Aliases: []string{"virtio:d00000001v*", "virtio:d00000011v*"}},
}

func TestTableIsReadAsWritten(t *testing.T) {
	var text bytes.Buffer
	if err := example.Write(&text); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTable(&text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example, got); diff != "" {
		t.Error(diff)
	}
	if got, err := ReadTable(bytes.NewBufferString("alone\n")); err == nil {
		t.Errorf("a line of one word was read as %+v", got)
	}
}

func TestDrivers(t *testing.T) {
	tests := []struct {
		name, alias string
		want        []string
	}{
		{"a virtio device of PCI", "pci:v00001AF4d00001003sv00001AF4sd00000003bc07sc80i00", []string{"pci"}},
		{"a network interface", "virtio:d00000001v00001AF4", []string{"net"}},
		{"nobody knows it", "virtio:d00000099v00001AF4", nil},
		{"no alias", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, example.Drivers(tt.alias)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	var got []string
	broken := errors.New("broken")
	loader := &Loader{table: example, loaded: map[string]bool{}, load: func(file string) error {
		got = append(got, file)
		if file == "/lib/modules/net.ko" {
			return broken
		}
		return nil
	}}
	if err := loader.LoadFor("pci:v00001AF4d1sv1sd1bc1sc1i1"); err != nil {
		t.Fatal(err)
	}
	if err := loader.Load("virtio"); err != nil {
		t.Fatal(err)
	}
	if err := loader.LoadFor("virtio:d00000001v1"); !errors.Is(err, broken) {
		t.Errorf("loading net gave %v, want %v", err, broken)
	}
	// What is needed first, nothing twice, and what is built in not at all.
	want := []string{"/lib/modules/ring.ko", "/lib/modules/virtio.ko", "/lib/modules/pci.ko", "/lib/modules/net.ko"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

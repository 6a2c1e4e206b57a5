package process

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Shim()
	os.Exit(m.Run())
}

func TestSlice(t *testing.T) {
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t0 := time.Now()
	p, err := d.Start(Spec{ID: "a", Path: "sh", Args: []string{"-c", "echo hello; sleep 100"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(t0), p.Status())
	d.Close()
	d, err = Open(d.path)
	if err != nil {
		t.Fatal(err)
	}
	p, _ = d.Find("a")
	st, err := Peek(d.path)
	t.Log(st, err)
	t.Log(p.Status())
	err = p.Stop(t.Context(), StopOptions{})
	t.Log(err, p.Status())
	t.Log(d.Remove("a"))
	d.Close()
	es, _ := os.ReadDir(d.path)
	t.Log(es)
}

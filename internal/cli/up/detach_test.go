package up

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The background process gets the arguments of the command, with --detach or -d.
func TestTheBackgroundProcessStartsNoOther(t *testing.T) {
	if o := (options{detach: true}); !o.startsBackground() {
		t.Error("up --detach starts nothing in the background")
	}
	if o := (options{detach: true, reportFD: 3}); o.startsBackground() {
		t.Error("the background process starts another one")
	}
}

func TestOutputOfTheBackgroundProcessIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "up.log")
	for range 3 * maxOutput / 1000 {
		out, err := openOutput(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 2 {
		t.Errorf("files are %v, error %v; want the file and the previous one", files, err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.Size() > maxOutput+1000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes and mode %v, error %v", file, info.Size(), info.Mode(), err)
		}
	}
}

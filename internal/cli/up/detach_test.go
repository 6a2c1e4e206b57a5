package up

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

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

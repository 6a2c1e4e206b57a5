package savedmemory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Processors identifies the processors of a machine. With hardware virtualization, those of this host matter, too.
func Processors(model string, virtualized bool) string {
	if virtualized {
		return model + " of " + hostCPU()
	}
	return model
}

func hostCPU() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	first, _, _ := bytes.Cut(raw, []byte("\n\n"))
	var name, flags string
	for line := range strings.Lines(string(first)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			name = strings.TrimSpace(value)
		case "flags", "Features":
			all := strings.Fields(value)
			slices.Sort(all)
			flags = strings.Join(all, " ")
		}
	}
	sum := sha256.Sum256([]byte(flags))
	return fmt.Sprintf("%s, features %s", name, hex.EncodeToString(sum[:4]))
}

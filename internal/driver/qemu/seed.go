package qemu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// seedLabel is the label that cloud-init expects on a NoCloud seed.
const seedLabel = "CIDATA"

// writeSeed writes the seed of a machine: a small disk with cloud-init's files. It may contain
// secrets, so only the owner can read it. Every machine has one, because it also sets the guest's
// name.
func writeSeed(path string, machine *backend.Machine) error {
	metaData, err := json.Marshal(map[string]string{ // JSON is YAML
		"instance-id": string(machine.UID), "local-hostname": machine.Name,
	})
	if err != nil {
		return err
	}
	files := []fatFile{{"meta-data", append(metaData, '\n')}, {"user-data", []byte("#cloud-config\n{}\n")}}
	if seed := machine.Seed; seed != nil {
		if seed.UserData != "" {
			files[1].content = []byte(seed.UserData)
		}
		if seed.NetworkData != "" {
			files = append(files, fatFile{"network-config", []byte(seed.NetworkData)})
		}
	}
	image, err := newFAT(seedLabel, files)
	if err != nil {
		return err
	}
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, image) {
		return nil
	}
	return atomicfile.Write(path, image, atomicfile.Durable)
}

// seedSum returns the checksum of a seed, which does not reveal it.
func seedSum(seed *backend.Seed) string {
	if seed == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(seed.UserData + "\x00" + seed.NetworkData))
	return hex.EncodeToString(sum[:])
}

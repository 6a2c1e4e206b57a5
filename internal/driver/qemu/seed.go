package qemu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/seed"
)

// writeSeed writes the seed of a machine: a small disk with cloud-init's files. It may contain
// secrets, so only the owner can read it. Every machine has one, because it also sets the guest's
// name.
func writeSeed(path string, machine *backend.Machine) error {
	var userData, networkData string
	if machine.Seed != nil {
		userData, networkData = machine.Seed.UserData, machine.Seed.NetworkData
	}
	image, err := seed.NoCloud(string(machine.UID), machine.Name, userData, networkData)
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

package docker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// seedDir is where cloud-init finds a NoCloud seed in a file system, see the data source NoCloud in
// its documentation.
const seedDir = "var/lib/cloud/seed/nocloud/"

// seedSum returns the checksum of a seed; "" for none.
func seedSum(seed *backend.Seed) string {
	if seed == nil {
		return ""
	}
	return backend.Sum([]string{seed.UserData, seed.NetworkData})
}

// packSeed returns a seed as a tar file relative to the root. With replaces it also overwrites the
// optional files of an earlier seed. A seed may be secret, so only root can read it.
func packSeed(id backend.Identity, seed *backend.Seed, replaces bool) ([]byte, error) {
	metaData, err := json.Marshal(map[string]string{ // JSON is YAML
		"instance-id": string(id.UID), "local-hostname": id.Name,
	})
	if err != nil {
		return nil, err
	}
	userData, networkData := "#cloud-config\n{}\n", ""
	if seed != nil {
		networkData = seed.NetworkData
		if seed.UserData != "" {
			userData = seed.UserData
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var errs []error
	add := func(name, content string) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: seedDir + name, Mode: 0o600, Size: int64(len(content))}
		errs = append(errs, w.WriteHeader(header))
		_, err := w.Write([]byte(content))
		errs = append(errs, err)
	}
	add("meta-data", string(metaData)+"\n")
	add("user-data", userData)
	if networkData != "" || replaces {
		add("network-config", networkData)
	}
	errs = append(errs, w.Close())
	return out.Bytes(), errors.Join(errs...)
}

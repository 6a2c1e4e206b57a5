// Package seed makes NoCloud seeds: small disks with the files of cloud-init.
package seed

import (
	"encoding/json"
	"strings"
)

// label is the label that cloud-init expects on a NoCloud seed.
const label = "CIDATA"

// NoCloud returns the seed of a machine. Empty userData and networkData mean none. Every machine has one, because it also sets
// the guest's name.
func NoCloud(uid, name, userData, networkData string) ([]byte, error) {
	metaData, err := json.Marshal(map[string]string{"instance-id": uid, "local-hostname": hostname(name)}) // JSON is YAML
	if err != nil {
		return nil, err
	}
	files := []File{{"meta-data", append(metaData, '\n')}, {"user-data", []byte("#cloud-config\n{}\n")}}
	if userData != "" {
		files[1].Content = []byte(userData)
	}
	if networkData != "" {
		files = append(files, File{"network-config", []byte(networkData)})
	}
	return FAT(label, files)
}

// maxLabel is the maximum length of a part of a name in DNS.
const maxLabel = 63

// hostname returns the host name of a machine, with its domain if its name has dots. Names of machines may be longer than guests accept;
// Kubernetes shortens those of Pods in the same way.
func hostname(name string) string {
	host, domain, dotted := strings.Cut(name, ".")
	host = strings.TrimRight(host[:min(len(host), maxLabel)], "-")
	if dotted {
		host += "." + domain
	}
	return host
}

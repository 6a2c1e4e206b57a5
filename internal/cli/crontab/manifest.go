package crontab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// readManifest returns the CronTab with a name from a file, or with an empty name the only one. Other kinds are skipped; unknown
// fields are errors, as for kubectl apply.
func readManifest(path, name string, stdin io.Reader) (*stablev1.CronTab, error) {
	source := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // it is only read
		source = file
	}
	var found *stablev1.CronTab
	documents := utilyaml.NewYAMLReader(bufio.NewReader(source))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		var header metav1.TypeMeta
		if err := yaml.Unmarshal(text, &header); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if header.APIVersion != stablev1.SchemeGroupVersion.String() || header.Kind != kind.Name {
			continue
		}
		cronTab := &stablev1.CronTab{}
		if err := yaml.UnmarshalStrict(text, cronTab); err != nil {
			return nil, fmt.Errorf("read the CronTab in %s: %w", path, err)
		}
		switch {
		case name != "" && cronTab.Name != name:
		case found != nil:
			return nil, usage.Errorf("%s has several CronTabs: give the NAME of one", path)
		default:
			found = cronTab
		}
	}
	switch {
	case found == nil && name != "":
		return nil, fmt.Errorf("%s has no CronTab %q of %s", path, name, stablev1.SchemeGroupVersion)
	case found == nil:
		return nil, fmt.Errorf("%s has no CronTab of %s", path, stablev1.SchemeGroupVersion)
	}
	return found, nil
}

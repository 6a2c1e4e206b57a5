package instance

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Host implements target.Host.
type Host struct{}

// AddFlags implements target.Host.
func (Host) AddFlags(fs *pflag.FlagSet, dataDir *string, ephemeral *bool) {
	addFlags(fs, dataDir, ephemeral)
}

// Dir implements target.Host.
func (Host) Dir(dataDir string, ephemeral bool) (string, error) {
	flags := Flags{DataDir: dataDir, Ephemeral: ephemeral}
	return flags.Dir()
}

// Directories implements target.Host.
func (Host) Directories() (paths []string, err error) {
	all, err := Directories()
	for _, directory := range all {
		paths = append(paths, directory.Path)
	}
	return paths, err
}

// Config implements target.Host.
func (Host) Config(dir string) (*rest.Config, error) { return controlplane.AdminConfig(dir) }

// IsReady implements target.Host.
func (Host) IsReady(ctx context.Context, dir string) (bool, error) {
	report, err := controlplane.Inspect(ctx, dir)
	return report.APIReady, err
}

// ManagerPID implements target.Host.
func (Host) ManagerPID(ctx context.Context, dir string) (int, error) {
	report, err := controlplane.Inspect(ctx, dir)
	return report.ManagerPID, err
}

// Command implements target.Host.
func (Host) Command(name, dir string) string { return Command(name, dir) }

// Name implements target.Host.
func (Host) Name() string { return HostName() }

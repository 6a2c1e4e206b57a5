package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Save calls add for each file that is needed to restore the clusters in the directory of an engine, as controlplane.Save does,
// with names relative to that directory. It returns the number of clusters.
func Save(ctx context.Context, dir, binary, scratch string, add func(name, path string) error) (clusters int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list the clusters: %w", err)
	}
	for _, entry := range entries {
		own := filepath.Join(dir, entry.Name())
		if !hasData(own) {
			continue // it is being made, or removed
		}
		addOwn := func(name, path string) error { return add(entry.Name()+"/"+name, path) }
		err := controlplane.Save(ctx, own, binary, scratch, addOwn)
		for _, name := range []string{appliedFile, keyFile, ownerFile} {
			if _, statErr := os.Stat(filepath.Join(own, name)); err == nil && statErr == nil {
				err = addOwn(name, filepath.Join(own, name))
			}
		}
		if err != nil {
			return clusters, fmt.Errorf("the cluster %s in %s: %w", readOwner(own).Name, own, err)
		}
		clusters++
	}
	return clusters, nil
}

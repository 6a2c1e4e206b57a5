// Package backup saves what an instance of keelson up cannot do without in one file, and restores it.
//
// The file is a compressed tar archive. Its last entry is the manifest, with a digest of each of the others, so that a
// file that was cut off or has changed is never restored.
package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/version"
)

// format is raised when an earlier version could not restore what is written.
const format = 1

// manifestName is the last entry of an archive.
const manifestName = "manifest.json"

// Manifest says what a backup is.
type Manifest struct {
	Format   int               `json:"format"`
	Keelson  string            `json:"keelson"` // the version that made it
	Created  time.Time         `json:"created"`
	Clusters int               `json:"clusters"` // local Clusters in it
	Digests  map[string]string `json:"digests"`  // of the files, SHA-256
}

// Save writes what restores the instance of a data directory to a new file, mode 0600: its control plane and its local
// Clusters, whether or not they run. binary is keelson-kube. A file appears only when it is whole.
func Save(ctx context.Context, dir, binary, file string) (Manifest, error) {
	manifest := Manifest{Format: format, Keelson: version.Get().Keelson, Created: time.Now().UTC().Truncate(time.Second), Digests: map[string]string{}}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return manifest, fmt.Errorf("%s exists already: name another file", file)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(file), ".keelson-backup-*") // mode 0700
	if err != nil {
		return manifest, fmt.Errorf("write %s: %w", file, err)
	}
	if scratch, err = filepath.Abs(scratch); err == nil {
		err = save(ctx, dir, binary, scratch, &manifest)
	}
	if err == nil {
		err = os.Link(filepath.Join(scratch, "archive"), file) // unlike a rename it replaces nothing
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(file))
	}
	return manifest, errors.Join(err, os.RemoveAll(scratch))
}

// save writes the file archive in scratch.
func save(ctx context.Context, dir, binary, scratch string, manifest *Manifest) error {
	out, err := os.OpenFile(filepath.Join(scratch, "archive"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	compressed, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // the level is one that there is
	archive := tar.NewWriter(compressed)
	add := func(name, path string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		digest, err := addFile(archive, name, path)
		manifest.Digests[name] = digest
		return err
	}
	err = controlplane.Save(ctx, dir, binary, scratch, add)
	if err == nil { // after the objects: a Cluster among them that has no data would count as lost
		addCluster := func(name, path string) error { return add(clustersName+"/"+name, path) }
		manifest.Clusters, err = local.Save(ctx, manager.ClusterDir(dir), binary, scratch, addCluster)
	}
	if err == nil {
		err = addManifest(archive, *manifest)
	}
	return errors.Join(err, archive.Close(), compressed.Close(), out.Sync(), out.Close())
}

// clustersName is the folder of local Clusters in an archive, as in a data directory.
var clustersName = manager.ClusterDir("")

// addFile adds a file to an archive and returns its digest.
func addFile(archive *tar.Writer, name, path string) (digest string, err error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // nothing was written
	info, err := in.Stat()
	if err != nil {
		return "", err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime()}); err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(archive, sum), in); err != nil {
		return "", fmt.Errorf("save %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func addManifest(archive *tar.Writer, manifest Manifest) error {
	data, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err = archive.Write(data)
	return err
}

// extract writes the files of a backup into a directory, and returns the manifest if all are as they were saved.
func extract(ctx context.Context, file, dir string) (Manifest, error) {
	in, err := os.Open(file)
	if err != nil {
		return Manifest{}, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	root, err := os.OpenRoot(dir)     // whatever an archive says, nothing else is written
	if err != nil {
		return Manifest{}, err
	}
	defer func() { _ = root.Close() }() // as above
	compressed, err := gzip.NewReader(in)
	if err != nil {
		return Manifest{}, damaged(file, err)
	}
	archive, digests := tar.NewReader(compressed), map[string]string{}
	for ctx.Err() == nil {
		header, err := archive.Next()
		if err != nil { // the manifest would have come before the end
			return Manifest{}, damaged(file, err)
		}
		if header.Name == manifestName {
			return readManifest(file, archive, digests)
		}
		if digests[header.Name], err = extractFile(root, header.Name, archive); err != nil {
			return Manifest{}, damaged(file, err)
		}
	}
	return Manifest{}, ctx.Err()
}

func extractFile(root *os.Root, name string, from io.Reader) (digest string, err error) {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), from)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, out.Sync(), out.Close())
}

// readManifest reads the manifest and compares the digests.
func readManifest(file string, from io.Reader, digests map[string]string) (Manifest, error) {
	var manifest Manifest
	if err := json.NewDecoder(from).Decode(&manifest); err != nil {
		return manifest, damaged(file, err)
	}
	if manifest.Format != format {
		return manifest, fmt.Errorf("%s has the format %d, which only another version of keelson restores: it was made by %s",
			file, manifest.Format, manifest.Keelson)
	}
	if len(digests) != len(manifest.Digests) {
		return manifest, damaged(file, errors.New("files are missing"))
	}
	for name, digest := range manifest.Digests {
		if digests[name] != digest {
			return manifest, damaged(file, fmt.Errorf("the digest of %s is another", name))
		}
	}
	return manifest, nil
}

func damaged(file string, err error) error {
	return fmt.Errorf("%s is no backup of keelson, or is damaged (%w): use another one", file, err)
}

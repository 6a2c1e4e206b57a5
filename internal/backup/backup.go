// Package backup saves the indispensable data of an instance of keelson up in one file, and
// restores it.
//
// The file is a compressed tar archive. Its last entry is the manifest with the digest of each
// other entry, so that a truncated or modified file is never restored.
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
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/version"
)

// format is the version of the archive format. It is raised when earlier versions cannot restore a
// new archive.
const format = 1

// manifestName is the last entry of an archive.
const manifestName = "manifest.json"

// Manifest describes a backup.
type Manifest struct {
	Format   int               `json:"format"`
	Keelson  string            `json:"keelson"` // the version that wrote it
	Created  time.Time         `json:"created"`
	Clusters int               `json:"clusters"` // local Clusters in it
	Digests  map[string]string `json:"digests"`  // of the files, SHA-256
}

// Save backs up the instance of a data directory to a new file, mode 0600: its control plane and
// its local Clusters, whether or not they run. binary is keelson-kube. The file appears only once
// it is complete.
func Save(ctx context.Context, dir, binary, file string) (Manifest, error) {
	manifest := Manifest{Format: format, Keelson: version.Get().Keelson, Created: time.Now().UTC().Truncate(time.Second), Digests: map[string]string{}}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return manifest, fmt.Errorf("%s already exists: choose another file", file)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(file), ".keelson-backup-*") // mode 0700
	if err != nil {
		return manifest, fmt.Errorf("write %s: %w", file, err)
	}
	if scratch, err = filepath.Abs(scratch); err == nil {
		err = save(ctx, dir, binary, scratch, &manifest)
	}
	if err == nil {
		err = os.Link(filepath.Join(scratch, "archive"), file) // unlike a rename, it never replaces a file
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
	compressed, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // the level is valid
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
	if err == nil { // after the objects: a Cluster in them without data would count as lost
		addCluster := func(name, path string) error { return add(clustersName+"/"+name, path) }
		manifest.Clusters, err = local.Save(ctx, manager.ClusterDir(dir), binary, scratch, addCluster)
	}
	if err == nil {
		addSnapshot := func(name, path string) error { return add(manager.SnapshotDir("")+"/"+name, path) }
		err = etcdsnapshot.Dir(manager.SnapshotDir(dir)).Save(addSnapshot)
	}
	if err == nil {
		err = addManifest(archive, *manifest)
	}
	return errors.Join(err, archive.Close(), compressed.Close(), out.Sync(), out.Close())
}

// clustersName is the folder of local Clusters in an archive and in a data directory.
var clustersName = manager.ClusterDir("")

// addFile adds a file to an archive and returns its digest.
func addFile(archive *tar.Writer, name, path string) (digest string, err error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }() // it was only read
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

// extract writes the files of a backup into a directory. It returns the manifest if all files are
// intact.
func extract(ctx context.Context, file, dir string) (Manifest, error) {
	in, err := os.Open(file)
	if err != nil {
		return Manifest{}, err
	}
	defer func() { _ = in.Close() }() // it was only read
	root, err := os.OpenRoot(dir)     // confines all writes, whatever names an archive contains
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
		if err != nil { // the manifest should have come before the end
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
		return manifest, fmt.Errorf("%s has the format %d, which only another version of keelson can restore: it was written by %s",
			file, manifest.Format, manifest.Keelson)
	}
	if len(digests) != len(manifest.Digests) {
		return manifest, damaged(file, errors.New("files are missing"))
	}
	for name, digest := range manifest.Digests {
		if digests[name] != digest {
			return manifest, damaged(file, fmt.Errorf("the digest of %s does not match", name))
		}
	}
	return manifest, nil
}

func damaged(file string, err error) error {
	return fmt.Errorf("%s is not a backup of keelson, or is damaged (%w): use another one", file, err)
}

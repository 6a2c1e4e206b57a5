package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Config is what an image made from a folder is to be.
type Config struct {
	// Name of the image, as a Pod's container names it.
	Name string
	// Entrypoint is what a container runs that names no command.
	Entrypoint []string
	// Env are variables, as NAME=value.
	Env []string
}

// Descriptors of the OCI image format; github.com/opencontainers/image-spec explains them.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// Pack writes a folder as an image of one layer, in an OCI archive. Files belong to root in it, and have no times, so that
// the same files make the same image.
func Pack(w io.Writer, root string, c Config) error {
	layer, err := os.CreateTemp("", "keelson-layer-")
	if err != nil {
		return err
	}
	defer layer.Close()
	if err := os.Remove(layer.Name()); err != nil { // the open file stays
		return err
	}
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), root); err != nil {
		return fmt.Errorf("pack %s: %w", root, err)
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	content := descriptor{MediaType: mediaLayer, Digest: digest(sum.Sum(nil)), Size: size}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return writeArchive(w, c, content, layer)
}

func digest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// writeArchive writes an image of one layer.
func writeArchive(w io.Writer, c Config, layer descriptor, content io.Reader) error {
	type object = map[string]any
	config := object{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       object{"Entrypoint": c.Entrypoint, "Env": c.Env, "WorkingDir": "/"},
		"rootfs":       object{"type": "layers", "diff_ids": []string{layer.Digest}},
	}
	out := tar.NewWriter(w)
	if err := writeFile(out, blob(layer.Digest), layer.Size, content); err != nil {
		return err
	}
	configured, err := writeBlob(out, mediaConfig, config)
	if err != nil {
		return err
	}
	manifest, err := writeBlob(out, mediaManifest, object{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": configured, "layers": []descriptor{layer},
	})
	if err != nil {
		return err
	}
	// containerd takes the whole name from the one annotation, other programs look for the other.
	manifest.Annotations = map[string]string{fullName: c.Name, refName: c.Name}
	for name, value := range map[string]any{
		layoutFile: object{"imageLayoutVersion": "1.0.0"},
		indexFile:  object{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": []descriptor{manifest}},
	} {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if err := writeFile(out, name, int64(len(data)), bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return out.Close()
}

func blob(digest string) string { return "blobs/sha256/" + digest[len("sha256:"):] }

func writeBlob(out *tar.Writer, mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	sum := sha256.Sum256(data)
	d := descriptor{MediaType: mediaType, Digest: digest(sum[:]), Size: int64(len(data))}
	return d, writeFile(out, blob(d.Digest), d.Size, bytes.NewReader(data))
}

func writeFile(out *tar.Writer, name string, size int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}

// writeLayer writes the files below a folder, in the order of their names.
func writeLayer(w io.Writer, root string) error {
	root, err := filepath.EvalSymlinks(root) // a walk would not follow it
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return writeEntry(out, path, name, entry)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func writeEntry(out *tar.Writer, path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode().IsRegular(), info.IsDir():
	case info.Mode().Type() == fs.ModeSymlink:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is neither a file nor a folder nor a link: an image cannot have it", name)
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	clean := tar.Header{Typeflag: header.Typeflag, Name: filepath.ToSlash(name), Linkname: target, Mode: header.Mode, Format: tar.FormatPAX}
	if info.IsDir() {
		clean.Name += "/"
		return out.WriteHeader(&clean)
	}
	if !info.Mode().IsRegular() {
		return out.WriteHeader(&clean)
	}
	clean.Size = info.Size()
	if err := out.WriteHeader(&clean); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(out, file)
	return err
}

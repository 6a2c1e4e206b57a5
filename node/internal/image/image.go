// Package image brings images into a node's containerd without a registry.
package image

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/platforms"
)

// Pause is the image of the one process that holds the namespaces of a Pod.
const Pause = "keelson.dev/pause:1"

// namespace is where containerd keeps what belongs to Kubernetes.
const namespace = "k8s.io"

// Store is the images of a node.
type Store struct {
	client *containerd.Client
	folder *os.File // with the socket: its own path may be too long for the path of a socket
}

// Open connects to the containerd that listens at a socket. Whether it answers is not known yet.
func Open(socket string) (*Store, error) {
	folder, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(socket))
	client, err := containerd.New(path, containerd.WithDefaultNamespace(namespace))
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return &Store{client: client, folder: folder}, nil
}

// Close ends the connection.
func (s *Store) Close() error { return errors.Join(s.client.Close(), s.folder.Close()) }

// Load brings the images of an archive, of Docker or OCI and compressed by gzip or not, into the store, and unpacks them. It returns
// their names. An image without a name gets one from its digest.
func (s *Store) Load(ctx context.Context, r io.Reader) (names []string, err error) {
	plain, err := decompress(r)
	if err != nil {
		return nil, fmt.Errorf("load images: %w", err)
	}
	ctx, done, err := s.client.WithLease(namespaces.WithNamespace(ctx, namespace))
	if err != nil {
		return nil, fmt.Errorf("load images: %w", err)
	}
	defer func() { err = errors.Join(err, done(ctx)) }()
	imported, err := s.client.Import(ctx, plain,
		containerd.WithDigestRef(archive.DigestTranslator("import")),
		containerd.WithSkipDigestRef(func(name string) bool { return name != "" }))
	if err != nil {
		return nil, fmt.Errorf("load images: %w", err)
	}
	handler := images.FilterPlatforms(images.ChildrenHandler(s.client.ContentStore()), platforms.Default())
	for _, image := range imported {
		if err := s.unpack(ctx, handler, image.Target); err != nil {
			return nil, fmt.Errorf("unpack the image %s: %w", image.Name, err)
		}
		names = append(names, image.Name)
	}
	return names, nil
}

// decompress returns what a reader has, without the compression by gzip if there is one.
func decompress(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(magic) != "\x1f\x8b" {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

// LoadFolder makes an image from a folder and brings it into the store.
func (s *Store) LoadFolder(ctx context.Context, root string, c Config) ([]string, error) {
	return s.loadPacked(ctx, func(w io.Writer) error { return Pack(w, root, c) })
}

// loadPacked brings the images of an archive into the store while it is written.
func (s *Store) loadPacked(ctx context.Context, pack func(io.Writer) error) ([]string, error) {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(pack(writer)) }() // Load sees the error
	names, err := s.Load(ctx, reader)
	_ = reader.CloseWithError(io.ErrClosedPipe) // ends pack if Load has not read all
	return names, err
}

// LoadPause makes the image Pause from the program of that name in a folder.
func (s *Store) LoadPause(ctx context.Context, programs string) error {
	root, err := os.MkdirTemp("", "keelson-pause-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	data, err := os.ReadFile(filepath.Join(programs, "pause"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "pause"), data, 0o755); err != nil {
		return err
	}
	_, err = s.LoadFolder(ctx, root, Config{Name: Pause, Entrypoint: []string{"/pause"}})
	return err
}

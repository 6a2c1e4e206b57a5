// Package command is the command line of keelson-node.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/distribution/reference"

	"github.com/keelson-dev/keelson/node/internal/image"
)

// LoadImages is `keelson-node image-load [-own] [-name NAME] [-entrypoint PATH] FILE|FOLDER|- SOCKET...`. It loads images into the
// containerd at each socket, and prints their names. -own is for an image of Keelson itself.
func LoadImages(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("image-load", flag.ContinueOnError)
	var c image.Config
	var entrypoint string
	var own bool
	flags.BoolVar(&own, "own", false, "")
	flags.StringVar(&c.Name, "name", "", "")
	flags.StringVar(&entrypoint, "entrypoint", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 2 {
		return errors.New("image-load: FILE, FOLDER or -, and a SOCKET are required")
	}
	if entrypoint != "" {
		c.Entrypoint = []string{entrypoint}
	}
	source, sockets := flags.Arg(0), flags.Args()[1:]
	var names []string
	if own {
		names, err = loadOwn(ctx, sockets, source, c)
	} else {
		names, err = loadInto(ctx, sockets, source, c, stdin)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Fprintln(stdout, name)
	}
	return nil
}

// loadInto loads images into the first containerd, and copies them from there to the others.
func loadInto(ctx context.Context, sockets []string, source string, c image.Config, stdin io.Reader) (names []string, err error) {
	first, err := image.Open(sockets[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, first.Close()) }()
	if names, err = load(ctx, first, source, c, stdin); err != nil {
		return nil, err
	}
	for _, socket := range sockets[1:] {
		if err := copyInto(ctx, socket, first, names); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// loadOwn loads an image of Keelson itself into each containerd that does not have it.
func loadOwn(ctx context.Context, sockets []string, source string, c image.Config) (names []string, err error) {
	for _, socket := range sockets {
		store, err := image.Open(socket)
		if err != nil {
			return nil, err
		}
		names, err = store.LoadOwn(ctx, source, c)
		if err := errors.Join(err, store.Close()); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func copyInto(ctx context.Context, socket string, from *image.Store, names []string) (err error) {
	store, err := image.Open(socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.CopyFrom(ctx, from, names)
}

func load(ctx context.Context, store *image.Store, source string, c image.Config, stdin io.Reader) ([]string, error) {
	kind, err := kindOf(source)
	if err != nil {
		return nil, err
	}
	if err := check(c, source, kind); err != nil {
		return nil, err
	}
	switch kind {
	case stream:
		return store.Load(ctx, stdin)
	case layout:
		return store.LoadLayout(ctx, source, c.Name)
	case folder:
		if c, err = complete(c, source); err != nil {
			return nil, err
		}
		return store.LoadFolder(ctx, source, c)
	}
	file, err := os.Open(source)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return store.Load(ctx, file)
}

// kind is what images can be loaded from.
type kind string

const (
	stream  kind = "standard input"
	archive kind = "an archive"
	layout  kind = "an OCI image layout"
	folder  kind = "a folder"
)

// kindOf returns the kind of a source.
func kindOf(source string) (kind, error) {
	if source == "-" {
		return stream, nil
	}
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return archive, nil
	case image.IsLayout(source):
		return layout, nil
	default:
		return folder, nil
	}
}

// check refuses what cannot be chosen for a source: images that are ready have a program to run, and those of an archive
// have names.
func check(c image.Config, source string, k kind) error {
	if k == folder {
		return nil
	}
	if len(c.Entrypoint) > 0 {
		return fmt.Errorf("--entrypoint is for a folder that becomes an image; %s is %s", source, k)
	}
	if c.Name != "" && k != layout {
		return fmt.Errorf("--name is for a folder; %s is %s, whose images have names", source, k)
	}
	return nil
}

// complete fills in what the user has left out of the image of a folder: its name is the folder's, and it runs the only
// program at the top of it. The name becomes the one that kubelet will ask for.
func complete(c image.Config, root string) (image.Config, error) {
	path, err := filepath.Abs(root)
	if err != nil {
		return c, err
	}
	if c.Name == "" {
		c.Name = filepath.Base(path)
	}
	named, err := reference.ParseDockerRef(c.Name)
	if err != nil {
		return c, fmt.Errorf("--name=%s: %w", c.Name, err)
	}
	c.Name = named.String()
	if len(c.Entrypoint) > 0 {
		return c, nil
	}
	programs, err := programsIn(root)
	if err != nil {
		return c, err
	}
	if len(programs) != 1 {
		return c, fmt.Errorf("%s has %d programs at its top: --entrypoint names the one to run, such as /bin/app", root, len(programs))
	}
	c.Entrypoint = []string{"/" + programs[0]}
	return c, nil
}

func programsIn(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var programs []string
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			programs = append(programs, entry.Name())
		}
	}
	return programs, nil
}

// ListImages is `keelson-node image-list SOCKET`.
func ListImages(ctx context.Context, args []string, stdout io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("image-list: SOCKET is required")
	}
	store, err := image.Open(args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	images, err := store.List(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tSIZE\tDIGEST")
	for _, i := range images {
		fmt.Fprintf(table, "%s\t%.1f MB\t%s\n", i.Name, float64(i.Size)/1e6, i.Digest)
	}
	return table.Flush()
}

package docker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// guestFile is the root file system of the default guest, see docs/guest.md.
	guestFile = "rootfs.tar"
	// guestRepository is the repository of its image. The digest of the file is the tag, so that a
	// different guest is a different image.
	guestRepository = "keelson-guest"
)

// guestSettings make the image of the default guest run a shell at the console.
var guestSettings = []string{`ENV PATH=/bin`, `ENV HOME=/root`, `WORKDIR /root`, `ENTRYPOINT ["/bin/sh"]`}

// imageID matches what an engine may take for an image ID or a prefix of one.
var imageID = regexp.MustCompile(`^(sha256:)?[0-9a-f]+$`)

// checkImage rejects images that the engine has and the user of a machine must not read: the
// retained disks of other namespaces, by name or by ID. The error is a *backend.FieldError.
func checkImage(machine *backend.Machine) error {
	if machine.Image == nil {
		return nil
	}
	name, refuse := machine.Image.Container, func(message string) error {
		return &backend.FieldError{Field: "spec.image.container", Message: message}
	}
	if imageID.MatchString(name) {
		return refuse("name an image, not its ID; a name that looks like an ID needs a tag, such as " + name + ":latest")
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return refuse(fmt.Sprintf("%q is not an image name: %v", name, err))
	}
	// The engine treats docker.io/a/b as a/b, too.
	rest, retained := strings.CutPrefix(reference.FamiliarName(named), retainedRepository+"/")
	if retained && !strings.HasPrefix(rest, machine.Namespace+"/") {
		return refuse("it is the retained disk of a machine in another namespace")
	}
	return nil
}

// ensureImage returns the name of an image in the engine. It pulls the image if necessary.
func (m *machine) ensureImage(ctx context.Context, image *v1alpha1.Image) (string, error) {
	if image == nil {
		return m.d.ensureGuest(ctx)
	}
	name := image.Container
	_, err := m.d.engine.ImageInspect(ctx, name)
	if err == nil {
		return name, nil
	}
	if !cerrdefs.IsNotFound(err) {
		return "", m.d.typed("look for the image "+name, err)
	}
	m.progress("the image is being pulled")
	pull, err := m.d.engine.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = errors.Join(m.followPull(ctx, pull), pull.Close())
	}
	if err != nil {
		return "", fmt.Errorf("pull the image %s: %w", name, err)
	}
	step("image pulled")
	return name, nil
}

// followPull reports the progress of an image pull until it is complete.
func (m *machine) followPull(ctx context.Context, pull client.ImagePullResponse) error {
	layers := map[string]bool{} // by name, whether it is complete
	for message, err := range pull.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if message.Error != nil {
			return message.Error
		}
		switch message.Status {
		case "Pulling fs layer":
			layers[message.ID] = false
		case "Pull complete", "Already exists":
			layers[message.ID] = true
		default:
			continue
		}
		complete := 0
		for _, isComplete := range layers {
			if isComplete {
				complete++
			}
		}
		m.progress(fmt.Sprintf("the image is being pulled, %d of %d layers", complete, len(layers)))
	}
	return nil
}

// ensureGuest returns the image name of the default guest. It imports the image if necessary.
func (d *Driver) ensureGuest(ctx context.Context) (string, error) {
	path := filepath.Join(d.options.GuestDir, guestFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no default guest in %s: run make guest, or set spec.image.container", d.options.GuestDir)
	}
	if err != nil {
		return "", fmt.Errorf("read the default guest: %w", err)
	}
	sum := sha256.Sum256(content)
	name := guestRepository + ":" + hex.EncodeToString(sum[:8])

	d.importing.Lock()
	defer d.importing.Unlock()
	if _, err := d.engine.ImageInspect(ctx, name); err == nil || !cerrdefs.IsNotFound(err) {
		return name, err
	}
	source := client.ImageImportSource{Source: bytes.NewReader(content), SourceName: "-"}
	imported, err := d.engine.ImageImport(ctx, source, name, client.ImageImportOptions{Changes: guestSettings, Message: "The default guest of Keelson"})
	if err == nil {
		_, err = io.Copy(io.Discard, imported)
		err = errors.Join(err, imported.Close())
	}
	if err != nil {
		return "", d.typed("import the default guest", err)
	}
	step("guest imported")
	return name, nil
}

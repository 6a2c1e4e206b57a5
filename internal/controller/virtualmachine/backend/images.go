package backend

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// ImageStore is implemented by drivers that keep the images of VirtualMachineImages. Its methods
// are safe for concurrent use, and return before the deadline of their context.
//
// A machine names the source of such an image, as if it were its own, so that it runs whatever
// becomes of the VirtualMachineImage.
type ImageStore interface {
	// WatchImages sets the function to call with the name of an image whose state has changed.
	// It is called once, before any other method. The function does not block.
	WatchImages(notify func(name string))

	// ObserveImage returns the state of an image, and never changes anything. The error is
	// ErrNotFound if there is neither the image nor an attempt to import it. That is also the
	// case after a restart of the manager: a repeated import of an existing image is quick.
	ObserveImage(ctx context.Context, id ImageIdentity) (ImageState, error)

	// ImportImage begins to import an image, in the background. It does nothing while that is in
	// progress or after a success; after a failure it begins the next attempt. The image is then
	// kept until ReleaseImage. The error is an ErrInvalid if the source is not allowed.
	ImportImage(ctx context.Context, id ImageIdentity, source v1alpha1.VirtualMachineImageSpec) error

	// ReleaseImage ends the import, and removes what was imported unless a machine uses it.
	ReleaseImage(ctx context.Context, id ImageIdentity) error
}

// ImageIdentity identifies a VirtualMachineImage. Only UID is significant; the name is for
// display, and for notifications.
type ImageIdentity struct {
	UID  types.UID
	Name string
}

// ImageState is the observed state of an image. It is being imported unless it is ready or the
// attempt has failed.
type ImageState struct {
	// Ready means that machines can use the image.
	Ready bool
	// Progress describes how far the import is.
	Progress string
	// Failure is why the last attempt failed, at FailedAt.
	Failure  error
	FailedAt time.Time
	// Format is qcow2 or raw, AllocatedBytes the space used in the file system, and VirtualBytes
	// the size seen by a guest.
	Format         string
	AllocatedBytes int64
	VirtualBytes   int64
}

// NewImage returns the image of a machine that names a VirtualMachineImage.
func NewImage(name string, source v1alpha1.VirtualMachineImageSpec) *v1alpha1.Image {
	return &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: source.Path, URL: source.URL, Sha256: source.Sha256, Format: source.Format}, Name: name, Agent: source.Agent}
}

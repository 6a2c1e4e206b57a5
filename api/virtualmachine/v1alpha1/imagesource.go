package v1alpha1

// ImageSource is where the image of a disk comes from: a file of the host, or a download.
// +kubebuilder:validation:XValidation:rule="has(self.url) == has(self.sha256)",message="url and sha256 go together: what is downloaded is verified",fieldPath=".sha256"
type ImageSource struct {
	// Path of the image on the host of the driver. The image is only read. It must remain
	// unchanged as long as disks are based on it.
	// +optional
	// +kubebuilder:validation:Pattern=`^/[^\x00-\x1f,]*$`
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// URL (http or https) of the image. It is downloaded and verified: once by the driver
	// qemu, which caches it by its digest, and once for each machine by the driver pod.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://\S+$`
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// SHA-256 digest of the file at the URL, as 64 hexadecimal digits.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Sha256 string `json:"sha256,omitempty"`

	// Format of the image, qcow2 or raw. The default is detected from the image.
	// +optional
	// +kubebuilder:validation:Enum=qcow2;raw
	Format string `json:"format,omitempty"`
}

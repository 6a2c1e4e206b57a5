package pod

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// recordKey is the key of the record in the Secret of a machine.
const recordKey = "record"

// record is what a Pod cannot store, because it is gone when the machine is off.
type record struct {
	// Machine is the last applied spec; without a hash it is unknown.
	Machine backend.Machine `json:"machine"`
	// Run is the last run that was begun; empty if there was none.
	Run string `json:"run,omitempty"`
	// Stopped means that the end of that run was requested.
	Stopped bool `json:"stopped,omitempty"`
	// PausedRun is the run that is paused; empty if none is.
	PausedRun string `json:"pausedRun,omitempty"`
	// DiskRefused is why claims of disks have not grown before that run; empty if they have, or did not have to.
	DiskRefused string `json:"diskRefused,omitempty"`
	// Failure is why that run has no Pod; nil if it had one.
	Failure *failure `json:"failure,omitempty"`
}

// failure is a Pod that the API server refused.
type failure struct {
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// newSecret returns the Secret of a machine: its record, its seed, and the token with which the manager connects to its launcher.
func newSecret(rec *record, seed *backend.Seed) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: newMeta(rec.Machine.Identity)}
	return secret, rec.putInto(secret, seed)
}

// putInto writes the record and the seed into a Secret, and a token if it has none: that of a run does not change.
func (r *record) putInto(secret *corev1.Secret, seed *backend.Seed) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if seed == nil {
		seed = &backend.Seed{}
	}
	token := secret.Data[launcher.TokenFile]
	if len(token) == 0 {
		token = []byte(rand.Text())
	}
	secret.Data = map[string][]byte{
		recordKey: raw, launcher.TokenFile: token, launcher.UserDataFile: []byte(seed.UserData), launcher.NetworkDataFile: []byte(seed.NetworkData),
	}
	return nil
}

// recordOf returns the record in a Secret.
func recordOf(secret *corev1.Secret) (*record, error) {
	var rec record
	if err := json.Unmarshal(secret.Data[recordKey], &rec); err != nil {
		return nil, fmt.Errorf("read the record of a machine in the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return &rec, nil
}

// seedOf returns the seed in a Secret.
func seedOf(secret *corev1.Secret) *backend.Seed {
	return &backend.Seed{UserData: string(secret.Data[launcher.UserDataFile]), NetworkData: string(secret.Data[launcher.NetworkDataFile])}
}

// seedSum returns the checksum of the seed in a Secret, which does not reveal it.
func seedSum(secret *corev1.Secret) string {
	sum := sha256.New()
	sum.Write(secret.Data[launcher.UserDataFile])
	sum.Write([]byte{0})
	sum.Write(secret.Data[launcher.NetworkDataFile])
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

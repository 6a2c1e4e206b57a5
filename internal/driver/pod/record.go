package pod

import (
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

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
	// Started is the machine that this run began with, with disks as they have grown since, and SeedSum the checksum of its seed; nil if
	// an earlier version began it.
	Started *backend.Machine `json:"started,omitempty"`
	SeedSum string           `json:"seedSum,omitempty"`
	// Asleep is how that run was put to sleep; nil if nobody has begun to do so.
	Asleep *asleep `json:"asleep,omitempty"`
	// Epoch changes with each requested end, so that memory that was saved before is not used after it.
	Epoch string `json:"epoch,omitempty"`
	// PausedRun is the run that is paused; empty if none is.
	PausedRun string `json:"pausedRun,omitempty"`
	// BalloonBytes is the memory that the guest of that run was left with, of that of its start; 0 means all of it.
	BalloonBytes int64 `json:"balloonBytes,omitempty"`
	// DiskRefused is why disks of that run do not grow; empty if they have grown, did not have to, or can still grow while it runs.
	DiskRefused string `json:"diskRefused,omitempty"`
	// Fill is what is to be done before anything else uses the disks; nil if there is nothing.
	Fill *fill `json:"fill,omitempty"`
	// Restored is the token of the last restore that is done, and FailedRestore the last one if it has failed.
	Restored      string         `json:"restored,omitempty"`
	FailedRestore *failedRestore `json:"failedRestore,omitempty"`
	// MemoryLost is why the machine boots next instead of going on with the memory in a snapshot; nil if it does not.
	MemoryLost *failure `json:"memoryLost,omitempty"`
	// Failure is why that run has no Pod; nil if it had one.
	Failure *failure `json:"failure,omitempty"`
}

// wake returns the record of the next run of a machine that is asleep: it goes on with what it was started with, in a Pod where machine
// wants it.
func (r *record) wake(machine backend.Machine) *record {
	started := *r.Started
	started.PodTemplate, started.EvictionPolicy = machine.PodTemplate, machine.EvictionPolicy
	return &record{
		Machine: withImage(machine, r), Started: &started, SeedSum: r.SeedSum, Run: rand.String(10), DiskRefused: r.DiskRefused, Epoch: r.Epoch,
		BalloonBytes: r.BalloonBytes, Restored: r.Restored, FailedRestore: r.FailedRestore,
	}
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
		token = []byte(cryptorand.Text())
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

// seedSum returns the checksum of the seed in a Secret.
func seedSum(secret *corev1.Secret) string { return sumOf(seedOf(secret)) }

// sumOf returns the checksum of a seed, which does not reveal it. None is the same as an empty one.
func sumOf(seed *backend.Seed) string {
	if seed == nil {
		seed = &backend.Seed{}
	}
	sum := sha256.Sum256([]byte(seed.UserData + "\x00" + seed.NetworkData))
	return hex.EncodeToString(sum[:8])
}

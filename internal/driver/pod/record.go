package pod

import (
	"cmp"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// recordKey is the key of the record in a Secret.
const recordKey = "record"

const (
	// labelRecord marks the Secrets in the manager's namespace that have a record, and says of what: a machine or a snapshot.
	labelRecord = "cloudnative.tw/record"
	// recordOfMachine and recordOfSnapshot are its values.
	recordOfMachine, recordOfSnapshot = "machine", "snapshot"
	// annotationNamespace is the namespace of what a record describes.
	annotationNamespace = "cloudnative.tw/virtualmachine-namespace"
)

// record is what a Pod cannot store, because it is gone when the machine is off.
type record struct {
	// Machine is the last applied spec; without a hash it is unknown.
	Machine backend.Machine `json:"machine"`
	// Run is the last run that was begun; empty if there was none.
	Run string `json:"run,omitempty"`
	// Stopped means that the end of that run was requested.
	Stopped bool `json:"stopped,omitempty"`
	// Started is the machine that this run began with, with disks as they have grown since, and SeedSum the checksum of its seed; nil if
	// the record was lost and written again while it ran.
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
	started.Pod = machine.Pod
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

// recordName returns the name of the Secret with the record of an object in a namespace. It names both, so that a record is only ever found
// for the object that it describes.
func recordName(namespace, object string) string { return object + "." + namespace }

// newSecret returns the Secret with the record of a machine, its seed, and the token with which the manager connects to its launcher. It is in
// the manager's namespace, where no tenant can write: the manager acts on what a record says.
func newSecret(namespace string, rec *record, seed *backend.Seed) *corev1.Secret {
	id := rec.Machine.Identity
	secret := &corev1.Secret{ObjectMeta: newMeta(id)}
	secret.Namespace, secret.Name = namespace, recordName(id.Namespace, objectName(id.UID))
	secret.Labels[labelRecord], secret.Annotations[annotationNamespace] = recordOfMachine, id.Namespace
	rec.putInto(secret, seed)
	return secret
}

// newSeed returns the Secret that the Pod of a machine mounts: a copy of the seed and the token beside its record. The manager never reads it.
func newSeed(id backend.Identity, secret *corev1.Secret) *corev1.Secret {
	seed := &corev1.Secret{ObjectMeta: newMeta(id), Data: map[string][]byte{}}
	seed.OwnerReferences = ownedBy(id)
	for _, key := range []string{launcher.TokenFile, launcher.UserDataFile, launcher.NetworkDataFile} {
		seed.Data[key] = secret.Data[key]
	}
	return seed
}

// namespaceOf returns the namespace of what an object is part of. Only a record is in another one.
func namespaceOf(object metav1.Object) string {
	if secret, ok := object.(*corev1.Secret); ok {
		return secret.Annotations[annotationNamespace]
	}
	return object.GetNamespace()
}

// putInto writes the record and the seed into a Secret, and a token if it has none: that of a run does not change.
func (r *record) putInto(secret *corev1.Secret, seed *backend.Seed) {
	if seed == nil {
		seed = &backend.Seed{}
	}
	token := secret.Data[launcher.TokenFile]
	if len(token) == 0 {
		token = []byte(cryptorand.Text())
	}
	secret.Data = map[string][]byte{
		recordKey: mustJSON(r), launcher.TokenFile: token, launcher.UserDataFile: []byte(seed.UserData), launcher.NetworkDataFile: []byte(seed.NetworkData),
	}
}

// mustJSON returns the JSON of a value of our own types, which always have one: times are the manager's or were read from JSON.
func mustJSON(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// recordOf returns the record in a Secret.
func recordOf(secret *corev1.Secret) (*record, error) {
	var rec record
	if err := json.Unmarshal(secret.Data[recordKey], &rec); err != nil {
		return nil, fmt.Errorf("read the record of a machine in the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	id := identityOf(secret)
	for _, machine := range []*backend.Machine{&rec.Machine, cmp.Or(rec.Started, &rec.Machine)} {
		if machine.UID != id.UID || machine.Namespace != id.Namespace {
			return nil, fmt.Errorf("read the record of a machine in the Secret %s/%s: it describes the machine %s in the namespace %s; restore or delete the Secret",
				secret.Namespace, secret.Name, machine.UID, machine.Namespace)
		}
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

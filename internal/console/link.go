package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// tokenLifetime is the time in which a URL with a token can be opened.
const tokenLifetime = time.Hour

// Link makes URLs that open a Console. Who has it can open sessions, so its file is readable by its owner only.
type Link struct {
	// PID is the process that serves the Console.
	PID int `json:"pid"`
	// Address is the URL of the Console without a token.
	Address string `json:"address"`
	// Secret signs the tokens.
	Secret []byte `json:"secret"`
}

func newLink(address string) Link {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return Link{PID: os.Getpid(), Address: address, Secret: secret}
}

// URL returns a URL with a token that opens one session. The token is in the fragment, which a browser does not send,
// so it appears neither in logs nor in the header Referer.
func (l Link) URL() string { return l.Address + "/#token=" + l.token(time.Now()) }

const (
	timeSize  = 8  // of the time of a token, in seconds since 1970
	nonceSize = 16 // of the random bytes that make each token another one
)

// token returns the time, random bytes, and the signature of both.
func (l Link) token(now time.Time) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(now.Unix())) //nolint:gosec // after 1970
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	raw = append(raw, nonce...)
	return base64.RawURLEncoding.EncodeToString(append(raw, l.sign(raw)...))
}

func (l Link) sign(raw []byte) []byte {
	mac := hmac.New(sha256.New, l.Secret)
	mac.Write(raw)
	return mac.Sum(nil)
}

// made returns the time of a token; ok is false for one that the link did not make.
func (l Link) made(token string) (at time.Time, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != timeSize+nonceSize+sha256.Size {
		return time.Time{}, false
	}
	signed, signature := raw[:timeSize+nonceSize], raw[timeSize+nonceSize:]
	if !hmac.Equal(signature, l.sign(signed)) {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.BigEndian.Uint64(signed)), 0), true //nolint:gosec // we signed it
}

// linkFile is the file with the Link to the console of an instance, in its data directory.
func linkFile(dir string) string { return filepath.Join(dir, "console.json") }

// Save writes the link to the data directory of an instance.
func (l Link) Save(dir string) error {
	return atomicfile.WriteJSON(linkFile(dir), l, atomicfile.Volatile)
}

// ReadLink returns the link that a process of an instance has saved; nil if it serves no console.
func ReadLink(dir string, pid int) (*Link, error) {
	raw, err := os.ReadFile(linkFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the link to the console: %w", err)
	}
	var l Link
	if json.Unmarshal(raw, &l) != nil || l.PID != pid {
		return nil, nil // of an earlier process
	}
	return &l, nil
}

package vm

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// keyDir returns the directory for the SSH key of this user, and for the host keys of machines.
func keyDir() (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory for the SSH key (%w): set HOME, or use --ssh-key", err)
	}
	return filepath.Join(base, "keelson", "ssh"), nil
}

// keyFile is the private key of this user in keyDir.
const keyFile = "id_ed25519"

// ownPublicKey returns the public key of this user for machines. The first call makes the key pair.
func ownPublicKey() (string, error) {
	dir, err := keyDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = newKey(path)
	}
	if err != nil {
		return "", fmt.Errorf("the SSH key for machines: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return "", fmt.Errorf("the SSH key %s cannot be read: %w; remove it to get a new one for new machines", path, err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))) + " keelson", nil
}

// newKey makes a private key. If another command makes one at the same time, both use the first one.
func newKey(path string) ([]byte, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "keelson")
	if err != nil {
		return nil, err
	}
	own, err := writeKey(filepath.Dir(path), pem.EncodeToMemory(block))
	if err != nil {
		return nil, err
	}
	err = os.Link(own, path)
	if err := errors.Join(ignore(err, fs.ErrExist), os.Remove(own)); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// writeKey writes a key to a file of its own, which others cannot read, and returns its name.
func writeKey(dir string, text []byte) (string, error) {
	file, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(text)
	return file.Name(), errors.Join(err, file.Sync(), file.Close())
}

// ignore returns nil for an error of a kind.
func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// parsePublicKeys returns the keys of a file in the format of authorized_keys.
func parsePublicKeys(text []byte) ([]string, error) {
	var keys []string
	for len(bytes.TrimSpace(text)) > 0 {
		key, comment, options, rest, err := ssh.ParseAuthorizedKey(text)
		switch {
		case bytes.Contains(text, []byte("PRIVATE KEY")):
			return nil, errors.New("this is a private key; name the file with the public one, which ends with .pub")
		case err != nil:
			return nil, errors.New("there is no public SSH key in it")
		case len(options) > 0:
			return nil, errors.New("keys with options, such as command=, are not supported")
		}
		keys = append(keys, strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))+" "+comment))
		text = rest
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no public SSH key in it")
	}
	return keys, nil
}

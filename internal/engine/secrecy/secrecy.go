// Package secrecy masks secrets in configurations and logs.
package secrecy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// Masked replaces a secret.
const Masked = "********"

// secretKey matches the names of fields with secret values. It does not match fields with paths of secret files, which users
// need to see.
var (
	secretKey = regexp.MustCompile(`(?i)(password|passwd|passphrase|token|secret|credential|private_?key|ssh_?key$|ssh_?cert$|[-_]key$|^key$|access_?key|auth(orization)?$|session)`)
	pathKey   = regexp.MustCompile(`(?i)(path|file|_dir|-dir|name|namespace)$`)
	secretPEM = regexp.MustCompile(`-----BEGIN [A-Z ]*(PRIVATE KEY|CERTIFICATE)`)
	userInfo  = regexp.MustCompile(`(://)[^/@\s]+@`)
)

// Mask returns a YAML document in which everything that looks like a credential is masked: the values of fields with telling
// names, keys and certificates in any field, and passwords in URLs. It drops comments. The error for invalid YAML does not quote
// the document.
func Mask(document []byte) (string, error) {
	var content any
	if err := yaml.Unmarshal(document, &content); err != nil {
		return "", errors.New("it is not valid YAML")
	}
	masked, err := yaml.Marshal(mask(content))
	if err != nil {
		return "", errors.New("it cannot be written as YAML")
	}
	return string(masked), nil
}

func mask(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if secretKey.MatchString(key) && !pathKey.MatchString(key) && !isPlain(inner) {
				v[key] = maskAll(inner)
				continue
			}
			v[key] = mask(inner)
		}
	case []any:
		for i := range v {
			v[i] = mask(v[i])
		}
	case string:
		if secretPEM.MatchString(v) {
			return Masked
		}
		return userInfo.ReplaceAllString(v, "${1}"+Masked+"@")
	}
	return value
}

// isPlain reports whether a value cannot be secret.
func isPlain(value any) bool {
	switch v := value.(type) {
	case nil, bool:
		return true
	case string:
		return v == ""
	}
	return false
}

// maskAll masks a value, or all values below it.
func maskAll(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = maskAll(v[key])
		}
		return v
	case []any:
		for i := range v {
			v[i] = maskAll(v[i])
		}
		return v
	}
	return Masked
}

// MakeKey writes a random key for Hash to a file, unless the file exists.
func MakeKey(file string) error {
	if key, err := os.ReadFile(file); err == nil && len(key) >= sha256.Size {
		return nil
	}
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	if err := atomicfile.Write(file, key, atomicfile.Durable); err != nil {
		return fmt.Errorf("create the key for hashes: %w", err)
	}
	return nil
}

// Hash returns a keyed hash that identifies a document and can be published: without the key, which is in a file, nobody can
// verify a guess of the content. It is empty if there is no key yet.
func Hash(keyFile string, document []byte) (string, error) {
	key, err := os.ReadFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) < sha256.Size {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the key for hashes: %w", err)
	}
	return Sum(key, document), nil
}

// Sum is Hash with a key.
func Sum(key, document []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(document)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// Scrub masks everything in a log line that looks like a credential.
func Scrub(line string) string {
	line = userInfo.ReplaceAllString(line, "${1}"+Masked+"@")
	return assignment.ReplaceAllStringFunc(line, func(found string) string {
		name, _, _ := strings.Cut(found, found[strings.IndexAny(found, "=:"):])
		return name + found[len(name):len(name)+1] + Masked
	})
}

var assignment = regexp.MustCompile(`(?i)\b(password|passwd|passphrase|token|secret|private_key)[=:]\s*\S+`)

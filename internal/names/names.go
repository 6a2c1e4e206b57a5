// Package names shortens the names of objects.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Shorten returns name if it has at most limit characters. It truncates a longer name and appends
// a hash of the whole name to keep it unique. limit must be greater than 11.
func Shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	const hashed = 10
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%s", name[:limit-hashed-1], hex.EncodeToString(sum[:])[:hashed])
}

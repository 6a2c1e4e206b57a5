// Package names shortens names of objects, and lists of them.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
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

// shown is the number of names of a list that Some returns.
const shown = 3

// Some returns the first names of a list, and the number of the others.
func Some(names []string) string {
	if more := len(names) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), more)
	}
	return strings.Join(names, ", ")
}

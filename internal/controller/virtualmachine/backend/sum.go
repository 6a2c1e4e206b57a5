package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Sum returns a checksum of a value whose type can be written as JSON. It is saved: a new version must compute the same ones.
func Sum(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value of such a type never fails
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

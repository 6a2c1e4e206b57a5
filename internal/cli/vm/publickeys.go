package vm

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"
)

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

// Package seed reads what a machine is to be, from a small disk in the NoCloud format
// of cloud-init: https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html.
// A part of that format is honoured; the rest is reported, not refused.
package seed

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Seed is what the seed asks for.
type Seed struct {
	// InstanceID names this instance; it changes when the disk is another machine's.
	InstanceID string
	// Hostname is the name of the machine, without its domain.
	Hostname string
	// Domain is the domain of the machine, mostly empty.
	Domain string
	// AuthorizedKeys may log in, as lines of authorized_keys.
	AuthorizedKeys []string
	// HostKeys are the SSH server's own private keys, as PEM.
	HostKeys []string
	// Files are written before any command runs, Commands run when the network is up,
	// EarlyCommands before.
	Files                   []File
	Commands, EarlyCommands []Command
	// Network is nil if the seed says nothing of it.
	Network *NetworkConfig
	// Ignored says, a sentence each, what the seed asks for in vain.
	Ignored []string
}

// File is a file to write.
type File struct {
	Path    string
	Content []byte
	Mode    fs.FileMode
	Append  bool
}

// Command is a program with its arguments, or a line for the shell, or a whole
// script, which begins with #!.
type Command struct {
	Args   []string
	Line   string
	Script []byte
}

// The files of a seed.
const (
	MetaDataFile      = "meta-data"
	UserDataFile      = "user-data"
	NetworkConfigFile = "network-config"
	VendorDataFile    = "vendor-data"
)

// Read reads the files of a seed. Any of them may be missing.
func Read(files fs.FS) (*Seed, error) {
	s := &Seed{}
	for _, part := range []struct {
		name string
		read func([]byte) error
	}{
		{MetaDataFile, s.readMetaData}, {UserDataFile, s.readUserData}, {NetworkConfigFile, s.readNetworkConfig},
	} {
		content, err := fs.ReadFile(files, part.name)
		if err != nil {
			continue // a file that cannot be read is as good as one that is not there
		}
		if content, err = decompress(content); err == nil {
			err = part.read(content)
		}
		if err != nil {
			return nil, fmt.Errorf("%s of the seed: %w", part.name, err)
		}
	}
	if _, err := fs.Stat(files, VendorDataFile); err == nil {
		s.ignore("vendor-data")
	}
	return s, nil
}

func (s *Seed) ignore(what string) {
	s.Ignored = append(s.Ignored, "the seed's "+what+" is not supported here and was left alone")
}

// maxLabel is the maximum length of a part of a name in DNS. Linux takes one more.
const maxLabel = 63

// setHostname takes a name that may have a domain. A host name that is too long is shortened: Linux would refuse it.
func (s *Seed) setHostname(name string) {
	if host, domain, _ := strings.Cut(name, "."); host != "" {
		s.Hostname, s.Domain = strings.TrimRight(host[:min(len(host), maxLabel)], "-"), domain
	}
}

type metaData struct {
	InstanceID    string   `yaml:"instance-id"`
	LocalHostname string   `yaml:"local-hostname"`
	PublicKeys    textList `yaml:"public-keys"`
}

func (s *Seed) readMetaData(content []byte) error {
	var meta metaData
	if err := yaml.Unmarshal(content, &meta); err != nil {
		return err
	}
	s.InstanceID = meta.InstanceID
	s.setHostname(meta.LocalHostname)
	s.addKeys(meta.PublicKeys)
	return nil
}

// addKeys keeps the keys in order, each once.
func (s *Seed) addKeys(keys []string) {
	for _, key := range keys {
		if key = strings.TrimSpace(key); key != "" && !slices.Contains(s.AuthorizedKeys, key) {
			s.AuthorizedKeys = append(s.AuthorizedKeys, key)
		}
	}
}

// textList is a list of texts, which may be written as one text of several lines or
// as a map whose values count.
type textList []string

// UnmarshalYAML takes all three forms.
func (l *textList) UnmarshalYAML(node *yaml.Node) error {
	switch node.Kind {
	case yaml.ScalarNode:
		var text string
		if err := node.Decode(&text); err != nil {
			return err
		}
		*l = strings.Split(strings.TrimSpace(text), "\n")
		return nil
	case yaml.MappingNode:
		var byName map[string]string
		if err := node.Decode(&byName); err != nil {
			return err
		}
		for _, value := range byName {
			*l = append(*l, value)
		}
		slices.Sort(*l)
		return nil
	}
	return node.Decode((*[]string)(l))
}

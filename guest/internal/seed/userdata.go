package seed

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxContent is the most that a compressed text may become, in bytes: the guest keeps
// it in memory.
const maxContent = 16 << 20

// userData are the keys of a #cloud-config that are honoured.
type userData struct {
	Hostname       string            `yaml:"hostname"`
	FQDN           string            `yaml:"fqdn"`
	AuthorizedKeys textList          `yaml:"ssh_authorized_keys"`
	Keys           map[string]string `yaml:"ssh_keys"`
	Users          []yaml.Node       `yaml:"users"`
	WriteFiles     []writeFile       `yaml:"write_files"`
	BootCommands   []command         `yaml:"bootcmd"`
	RunCommands    []command         `yaml:"runcmd"`
	// Rest is what is not.
	Rest map[string]yaml.Node `yaml:",inline"`
}

type user struct {
	AuthorizedKeys textList `yaml:"ssh_authorized_keys"`
	// OldKeys is how cloud-init called it once.
	OldKeys textList `yaml:"ssh-authorized-keys"`
}

type writeFile struct {
	Path        string `yaml:"path"`
	Content     string `yaml:"content"`
	Encoding    string `yaml:"encoding"`
	Permissions string `yaml:"permissions"`
	Append      bool   `yaml:"append"`
}

// command is a line for the shell or a list of words.
type command Command

// UnmarshalYAML takes both forms.
func (c *command) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&c.Line)
	}
	return node.Decode(&c.Args)
}

// harmless are keys whose meaning a guest that lives in memory and knows only root
// fulfils anyway, or that nobody misses.
var harmless = []string{
	"chpasswd", "disable_root", "final_message", "growpart", "manage_etc_hosts", "package_update", "package_upgrade",
	"preserve_hostname", "prefer_fqdn_over_hostname", "resize_rootfs", "ssh_deletekeys", "ssh_pwauth",
}

// readUserData reads a #cloud-config or a script.
func (s *Seed) readUserData(content []byte) error {
	text := bytes.TrimLeft(content, " \t\r\n")
	switch {
	case len(text) == 0:
		return nil
	case bytes.HasPrefix(text, []byte("#!")):
		s.Commands = append(s.Commands, Command{Script: text})
		return nil
	case !bytes.HasPrefix(text, []byte("#cloud-config")):
		first, _, _ := bytes.Cut(text, []byte("\n"))
		s.ignore(fmt.Sprintf("user-data, which begins with %.40q and not with #cloud-config or #!,", first))
		return nil
	}
	var data userData
	if err := yaml.Unmarshal(text, &data); err != nil {
		return err
	}
	s.setHostname(data.FQDN)
	if data.Hostname != "" {
		domain := s.Domain
		s.setHostname(data.Hostname)
		if s.Domain == "" {
			s.Domain = domain
		}
	}
	s.addKeys(data.AuthorizedKeys)
	if err := s.addUsers(data.Users); err != nil {
		return err
	}
	s.addHostKeys(data.Keys)
	for _, file := range data.WriteFiles {
		decoded, err := file.decode()
		if err != nil {
			return fmt.Errorf("write_files, %s: %w", file.Path, err)
		}
		s.Files = append(s.Files, decoded)
	}
	s.EarlyCommands = append(s.EarlyCommands, commands(data.BootCommands)...)
	s.Commands = append(s.Commands, commands(data.RunCommands)...)
	s.reportRest(data.Rest)
	return nil
}

// addUsers takes the keys of every user: here all of them are root. A user may also
// be a bare name, such as "default".
func (s *Seed) addUsers(nodes []yaml.Node) error {
	for _, node := range nodes {
		if node.Kind != yaml.MappingNode {
			continue
		}
		var u user
		if err := node.Decode(&u); err != nil {
			return fmt.Errorf("users: %w", err)
		}
		s.addKeys(u.AuthorizedKeys)
		s.addKeys(u.OldKeys)
	}
	return nil
}

// addHostKeys takes the private keys; the public ones follow from them.
func (s *Seed) addHostKeys(keys map[string]string) {
	for _, kind := range []string{"ed25519_private", "ecdsa_private", "rsa_private"} {
		if key := keys[kind]; key != "" {
			s.HostKeys = append(s.HostKeys, key)
		}
	}
}

func commands(list []command) []Command {
	var all []Command
	for _, c := range list {
		if c.Line != "" || len(c.Args) != 0 {
			all = append(all, Command(c))
		}
	}
	return all
}

func (s *Seed) reportRest(rest map[string]yaml.Node) {
	var names []string
	for name := range rest {
		if !slices.Contains(harmless, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		s.ignore(name)
	}
}

// decode returns the file that is meant. The encodings are those of cloud-init.
func (w writeFile) decode() (File, error) {
	if !strings.HasPrefix(w.Path, "/") {
		return File{}, errors.New("the path has to begin with a slash")
	}
	file := File{Path: w.Path, Content: []byte(w.Content), Mode: 0o644, Append: w.Append}
	if w.Permissions != "" {
		mode, err := strconv.ParseUint(strings.TrimPrefix(w.Permissions, "0o"), 8, 12)
		if err != nil {
			return File{}, fmt.Errorf("permissions %q are no octal number", w.Permissions)
		}
		file.Mode = fs.FileMode(mode & 0o777)
	}
	encoded, compressed := false, false
	for encoding := range strings.SplitSeq(strings.ToLower(w.Encoding), "+") {
		switch encoding {
		case "", "text/plain":
		case "b64", "base64":
			encoded = true
		case "gz", "gzip":
			compressed = true
		default:
			return File{}, fmt.Errorf("unknown encoding %q", w.Encoding)
		}
	}
	var err error
	if encoded {
		file.Content, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(w.Content), ""))
	}
	if err == nil && compressed {
		file.Content, err = decompress(file.Content)
	}
	return file, err
}

// decompress undoes gzip, if it is that.
func decompress(content []byte) ([]byte, error) {
	if !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		return content, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxContent+1))
	if err == nil && len(plain) > maxContent {
		err = fmt.Errorf("it is more than %d MiB when decompressed", maxContent>>20)
	}
	return plain, err
}

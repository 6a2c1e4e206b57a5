package seed

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func compressed(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read reads a seed of which all files that are not "" are there.
func read(t *testing.T, metaData, userData, networkConfig string) (*Seed, error) {
	t.Helper()
	files := fstest.MapFS{}
	for name, content := range map[string]string{
		MetaDataFile: metaData, UserDataFile: userData, NetworkConfigFile: networkConfig,
	} {
		if content != "" {
			files[name] = &fstest.MapFile{Data: []byte(content)}
		}
	}
	return Read(files)
}

func ignored(what string) string {
	return "the seed's " + what + " is not supported here and was left alone"
}

func TestRead(t *testing.T) {
	packed := base64.StdEncoding.EncodeToString(compressed(t, "packed"))
	tests := []struct {
		name                              string
		metaData, userData, networkConfig string
		want                              Seed
	}{
		{name: "no files"},
		{
			name:     "meta-data",
			metaData: "instance-id: i-1\nlocal-hostname: one.example.org\npublic-keys:\n- ssh-ed25519 A\n",
			want: Seed{InstanceID: "i-1", Hostname: "one", Domain: "example.org",
				AuthorizedKeys: []string{"ssh-ed25519 A"}},
		},
		{
			name:     "keys by name, as some clouds have them",
			metaData: "public-keys: {b: ssh-ed25519 B, a: ssh-ed25519 A}\n",
			want:     Seed{AuthorizedKeys: []string{"ssh-ed25519 A", "ssh-ed25519 B"}},
		},
		{
			name:     "user-data wins over meta-data",
			metaData: "local-hostname: one\n",
			userData: "#cloud-config\nhostname: two\nfqdn: two.example.org\n",
			want:     Seed{Hostname: "two", Domain: "example.org"},
		},
		{
			name:     "a fqdn alone",
			userData: "#cloud-config\nfqdn: two.example.org\n",
			want:     Seed{Hostname: "two", Domain: "example.org"},
		},
		{
			name:     "a name that is longer than Linux takes",
			metaData: "local-hostname: " + strings.Repeat("a", 62) + "-cd.example.org\n",
			want:     Seed{Hostname: strings.Repeat("a", 62), Domain: "example.org"},
		},
		{
			name:     "a name in user-data that is longer than Linux takes",
			userData: "#cloud-config\nhostname: " + strings.Repeat("b", 70) + "\n",
			want:     Seed{Hostname: strings.Repeat("b", 63)},
		},
		{
			name: "keys of everybody, each once",
			userData: `#cloud-config
ssh_authorized_keys: [ssh-ed25519 A]
users:
- default
- name: x
  ssh_authorized_keys: [ssh-ed25519 B, ssh-ed25519 A]
- name: y
  ssh-authorized-keys: ssh-ed25519 C
`,
			want: Seed{AuthorizedKeys: []string{"ssh-ed25519 A", "ssh-ed25519 B", "ssh-ed25519 C"}},
		},
		{
			name:     "the host key",
			userData: "#cloud-config\nssh_keys: {ed25519_private: secret, ed25519_public: open}\n",
			want:     Seed{HostKeys: []string{"secret"}},
		},
		{
			name: "files",
			userData: `#cloud-config
write_files:
- {path: /plain, content: text}
- {path: /b64, content: dGV4dA==, encoding: b64, permissions: '0755'}
- {path: /gz, content: ` + packed + `, encoding: gz+b64, append: true}
- {path: /binary, content: !!binary ` + packed + `, encoding: gzip}
`,
			want: Seed{Files: []File{
				{Path: "/plain", Content: []byte("text"), Mode: 0o644},
				{Path: "/b64", Content: []byte("text"), Mode: 0o755},
				{Path: "/gz", Content: []byte("packed"), Mode: 0o644, Append: true},
				{Path: "/binary", Content: []byte("packed"), Mode: 0o644},
			}},
		},
		{
			name:     "commands",
			userData: "#cloud-config\nbootcmd: [early]\nruncmd:\n- echo a b\n- [echo, a b]\n-\n",
			want: Seed{
				EarlyCommands: []Command{{Line: "early"}},
				Commands:      []Command{{Line: "echo a b"}, {Args: []string{"echo", "a b"}}},
			},
		},
		{
			name:     "a script",
			userData: "#!/bin/sh\necho a\n",
			want:     Seed{Commands: []Command{{Script: []byte("#!/bin/sh\necho a\n")}}},
		},
		{
			name:     "compressed",
			userData: string(compressed(t, "#cloud-config\nhostname: two\n")),
			want:     Seed{Hostname: "two"},
		},
		{
			name:     "what is not supported is told, what is fulfilled anyway is not",
			userData: "#cloud-config\npackages: [vim]\nntp: {}\nssh_pwauth: false\n",
			want:     Seed{Ignored: []string{ignored("ntp"), ignored("packages")}},
		},
		{
			name:     "another format",
			userData: "Content-Type: multipart/mixed\n\n",
			want: Seed{Ignored: []string{
				ignored(`user-data, which begins with "Content-Type: multipart/mixed" and not with #cloud-config or #!,`)}},
		},
		{
			name:          "network of version 1",
			networkConfig: "version: 1\nconfig: []\n",
			want:          Seed{Ignored: []string{ignored("network-config of version 1")}},
		},
		{
			name: "network of version 2",
			networkConfig: `network:
  version: 2
  bonds: {}
  ethernets:
    lan:
      match: {macaddress: "52:54:00:00:00:01"}
      addresses: [192.0.2.7/24, "2001:db8::7/64"]
      gateway4: 192.0.2.1
      mtu: 1400
      nameservers: {addresses: [192.0.2.53], search: [example.org]}
      routes: [{to: 198.51.100.0/24, via: 192.0.2.2}, {to: default, via: "2001:db8::1"}]
    "eth*": {dhcp4: true}
`,
			want: Seed{
				Network: &NetworkConfig{Interfaces: []InterfaceConfig{
					{Name: "eth*", DHCP: true},
					{
						HardwareAddress: "52:54:00:00:00:01",
						Addresses:       []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
						Routes: []RouteConfig{
							{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("192.0.2.1")},
							{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("192.0.2.2")},
							{netip.MustParsePrefix("::/0"), netip.MustParseAddr("2001:db8::1")},
						},
						Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
						Search:      []string{"example.org"}, MTU: 1400,
					},
				}},
				Ignored: []string{ignored("network-config bonds")},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read(t, tt.metaData, tt.userData, tt.networkConfig)
			if err != nil {
				t.Fatal(err)
			}
			same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
			sameAddress := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			if diff := cmp.Diff(&tt.want, got, same, sameAddress); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	tests := []struct{ name, userData, networkConfig string }{
		{name: "no YAML", userData: "#cloud-config\n{"},
		{name: "a relative path", userData: "#cloud-config\nwrite_files: [{path: x}]\n"},
		{name: "no octal number", userData: "#cloud-config\nwrite_files: [{path: /x, permissions: rwx}]\n"},
		{name: "an unknown encoding", userData: "#cloud-config\nwrite_files: [{path: /x, encoding: rot13}]\n"},
		{name: "no base64", userData: "#cloud-config\nwrite_files: [{path: /x, encoding: b64, content: '*'}]\n"},
		{name: "too much", userData: string(compressed(t, "#"+string(make([]byte, maxContent))))},
		{name: "no address", networkConfig: "version: 2\nethernets: {e: {addresses: [here]}}\n"},
		{name: "a route to nowhere", networkConfig: "version: 2\nethernets: {e: {routes: [{to: default}]}}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := read(t, "", tt.userData, tt.networkConfig); err == nil {
				t.Errorf("was read as %+v", got)
			}
		})
	}
}

func TestNetworkFor(t *testing.T) {
	config := &NetworkConfig{Interfaces: []InterfaceConfig{
		{HardwareAddress: "52:54:00:AA:00:01", MTU: 1},
		{Name: "eth*", MTU: 2},
	}}
	tests := []struct {
		name, device, address string
		config                *NetworkConfig
		want                  int
	}{
		{"the address counts, not the name", "eth0", "52:54:00:aa:00:01", config, 1},
		{"a pattern", "eth1", "52:54:00:aa:00:02", config, 2},
		{"no other", "wlan0", "52:54:00:aa:00:02", config, 0},
		{"no configuration", "eth0", "52:54:00:aa:00:01", nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := 0
			if found := tt.config.For(tt.device, tt.address); found != nil {
				got = found.MTU
			}
			if got != tt.want {
				t.Errorf("got the configuration %d, want %d", got, tt.want)
			}
		})
	}
}

// Nothing that is on a disk may bring the first process down.
func FuzzRead(f *testing.F) {
	f.Add([]byte("instance-id: x"), []byte("#cloud-config\nruncmd: [a, [b]]\nusers: [default, {name: x}]\n"), []byte("version: 2\nethernets: {a: {routes: [{to: default, via: 192.0.2.1}]}}"))
	f.Add([]byte("public-keys: {a: b}"), []byte("#!/bin/sh"), []byte("network: {version: 2}"))
	f.Fuzz(func(_ *testing.T, metaData, userData, networkConfig []byte) {
		found, err := Read(fstest.MapFS{
			MetaDataFile: {Data: metaData}, UserDataFile: {Data: userData}, NetworkConfigFile: {Data: networkConfig},
		})
		if err == nil {
			found.Network.For("eth0", "52:54:00:aa:00:01")
		}
	})
}

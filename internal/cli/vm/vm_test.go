package vm

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/sshkey"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// execute runs the command, with a home directory of its own.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	t.Setenv("XDG_DATA_HOME", "")
	return harness.Execute(t, New(nil), args...)
}

// newMachines returns the machines of the namespace team.
func newMachines(c ctrlclient.Client, server string) *machines {
	api := &target.API{Config: &rest.Config{Host: server}, Namespace: "team"}
	return &machines{&object.Objects[*v1alpha1.VirtualMachine]{Client: c, API: api, Kind: machineKind}}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE177V39mWn6FBZEwLurytfQxk0J4BxTu/aItms6SnPN"

func TestManifest(t *testing.T) {
	key := write(t, "key.pub", "# mine\n"+publicKey+" me@home\n")
	out, err := execute(t, "create", "web", "--dry-run=client", "-o", "yaml", "--image", "debian-13", "--cpu", "2", "--memory", "2Gi",
		"--disk", "20Gi", "--snapshot-schedule", "@daily", "--snapshot-keep", "3", "--snapshot-memory", "--snapshot-allow-namespace", "b", "--ssh-key", key, "--port", "80", "--port", "dns=53/udp", "-n", "team")
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata:
  name: web
  namespace: team
spec:
  cloudInit:
    userData: |
      #cloud-config
      ssh_authorized_keys:
      - "` + publicKey + ` me@home"
  image:
    name: debian-13
  ports:
  - name: tcp-80
    port: 80
    protocol: TCP
  - name: dns
    port: 53
    protocol: UDP
  resource:
    cpu: "2"
    memory: 2Gi
    rootDisk: 20Gi
  snapshots:
    allowedNamespaces:
    - b
    keep: 3
    memory: true
    schedule: '@daily'
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestImages(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]v1alpha1.Image{
		"debian-13":                   {Name: "debian-13"},
		"tiny":                        {Name: "tiny"},
		"/srv/a.qcow2":                {ImageSource: v1alpha1.ImageSource{Path: "/srv/a.qcow2"}},
		"a.img":                       {ImageSource: v1alpha1.ImageSource{Path: filepath.Join(here, "a.img")}},
		"./a":                         {ImageSource: v1alpha1.ImageSource{Path: filepath.Join(here, "a")}},
		"https://example.org/a.qcow2": {ImageSource: v1alpha1.ImageSource{URL: "https://example.org/a.qcow2", Sha256: "f00"}},
	} {
		c := createFlags{image: image}
		if isURL(image) {
			c.sha256 = "f00"
		}
		got, err := c.source()
		if err != nil || *got != want {
			t.Errorf("%s: %+v, %v; want %+v", image, got, err, want)
		}
	}
}

// A machine of a snapshot has the size of its root disk.
func TestSnapshots(t *testing.T) {
	for given, want := range map[string]v1alpha1.Image{"before": {Snapshot: "before"}, "shared/gold": {Snapshot: "gold", SnapshotNamespace: "shared"}} {
		c := createFlags{snapshot: given, cpu: "1", memory: "1Gi", keys: []string{write(t, "key.pub", publicKey)}}
		got, err := c.machine("web")
		if err != nil || *got.Spec.Image != want || got.Spec.Resource.RootDisk != nil {
			t.Errorf("%s: %+v, %v; want %+v", given, got, err, want)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	private := write(t, "key", "-----BEGIN OPENSSH PRIVATE KEY-----\n")
	for _, test := range []struct {
		args, want string
	}{
		{"create", "takes one NAME"},
		{"create web --dry-run=perhaps", "must be none, client or server"},
		{"create web -o wide", "must be yaml, json or name"},
		{"create web --image https://example.org/a", "needs --sha256"},
		{"create web --sha256 f00", "goes with an image at a URL"},
		{"create web --display=hdmi", "--display=hdmi: must be None or VGA"},
		{"create web --cpu two", "--cpu=two: must be a number"},
		{"create web --port 0", "--port=0: must be"},
		{"create web --port =80", "--port==80: must be"},
		{"create web --port 80/sctp", "--port=80/sctp: must be"},
		{"create web --user-data a --ssh-key b", "cannot be combined"},
		{"stop", "takes one or more NAMEs"},
		{"ssh", "takes one NAME"},
		{"ssh web uptime", "a command after --"},
		{"scp a b", "NAME:PATH"},
		{"scp web:a db:b", "one machine, not web and db"},
		{"scp web:a", "NAME:PATH"},
		{"port-forward web", "[LOCAL:]PORT"},
		{"port-forward web 80:0", `"80:0" is not`},
		{"port-forward web 80:90:100", `"80:90:100" is not`},
		{"create web --snapshot-keep 0", "--snapshot-keep=0: must be"},
		{"create web --snapshot-keep 3", "--snapshot-keep goes with --snapshot-schedule"},
		{"create web --snapshot-memory", "--snapshot-memory goes with --snapshot-schedule"},
		{"create web --snapshot-allow-namespace b", "--snapshot-allow-namespace goes with --snapshot-schedule"},
		{"create web --snapshot a --image b", "--snapshot and --image cannot be combined"},
		{"create web --snapshot /a", "--snapshot=/a: must be NAME, or NAMESPACE/NAME"},
		{"create web --snapshot a/b/c", "--snapshot=a/b/c: must be NAME, or NAMESPACE/NAME"},
		{"serial", "takes one NAME"},
		{"list web", "takes no argument"},
		{"list -o xml", "must be wide, json, yaml or name"},
		{"delete", "takes one or more NAMEs"},
		{"snapshot delete", "takes one or more NAMEs"},
		{"stop web --dry-run=perhaps", "must be none, client or server"},
		{"restore web db --snapshot before", "takes one NAME"},
	} {
		_, err := execute(t, strings.Fields(test.args)...)
		if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
	for args, want := range map[string]string{
		"create web --dry-run=client --ssh-key " + private:           "this is a private key",
		"create web --dry-run=client --ssh-key " + write(t, "e", ""): "there is no public SSH key",
		"create web --dry-run=client --ssh-key /nowhere":             "no such file",
		"create web --dry-run=client --user-data /nowhere":           "no such file",
		"list":              "no keelson is running in",
		"ssh web -- uptime": "no keelson is running in",
	} {
		if _, err := execute(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// Several commands at once make one key, which nobody else can read.
func TestOwnKey(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	keys := make([]string, 8)
	var running sync.WaitGroup
	for i := range keys {
		running.Go(func() {
			key, err := sshkey.Public()
			if err != nil {
				t.Error(err)
			}
			keys[i] = key
		})
	}
	running.Wait()
	for _, key := range keys {
		if key != keys[0] || !strings.HasPrefix(key, "ssh-ed25519 ") {
			t.Errorf("the keys are %q", keys)
			break
		}
	}
	dir, err := sshkey.Dir()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A second restart within a second is later than the first one.
func TestRestart(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 500, time.UTC)
	second := metav1.NewTime(now.Truncate(time.Second))
	for _, test := range []struct {
		name       string
		last, want *metav1.Time
	}{
		{"first", nil, &second},
		{"again", &second, &metav1.Time{Time: second.Add(time.Second)}},
		{"later", &metav1.Time{Time: second.Add(-time.Minute)}, &second},
	} {
		vm := &v1alpha1.VirtualMachine{Status: v1alpha1.VirtualMachineStatus{LastRestartRequestedAt: test.last}}
		restart(vm, now)
		if !vm.Spec.RestartRequestedAt.Equal(test.want) {
			t.Errorf("%s: %v, want %v", test.name, vm.Spec.RestartRequestedAt, test.want)
		}
	}
}

func TestUsualUser(t *testing.T) {
	for _, test := range []struct {
		image *v1alpha1.Image
		want  string
	}{
		{nil, "root"}, {&v1alpha1.Image{Name: "tiny"}, "root"}, {&v1alpha1.Image{Name: "fedora-42"}, "fedora"}, {&v1alpha1.Image{Name: "gone"}, ""},
		{&v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/a"}}, ""},
	} {
		fedora := imageOf("fedora-42", v1alpha1.VirtualMachineImageSpec{LoginUser: "fedora"})
		got, err := newMachines(newAPI(t, fedora), "").usualUser(t.Context(), &v1alpha1.VirtualMachine{Spec: v1alpha1.VirtualMachineSpec{Image: test.image}})
		if err != nil || got != test.want {
			t.Errorf("%+v: %q, %v, want %q", test.image, got, err, test.want)
		}
	}
}

// A machine may answer after the end of the input.
func TestPipe(t *testing.T) {
	ours, guest := net.Pipe()
	asked, answered := make(chan struct{}), make(chan error, 1)
	go func() {
		request := make([]byte, len("request"))
		_, err := io.ReadFull(guest, request)
		<-asked
		_, writeErr := io.WriteString(guest, "answer to "+string(request))
		answered <- errors.Join(err, writeErr, guest.Close())
	}()
	var out bytes.Buffer
	if err := pipe(&halfClosed{ours, asked}, strings.NewReader("request"), &out); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil || out.String() != "answer to request" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// halfClosed is a connection that tells when its side was ended.
type halfClosed struct {
	net.Conn
	ended chan<- struct{}
}

func (c *halfClosed) CloseWrite() error {
	close(c.ended)
	return nil
}

func TestPrintUsage(t *testing.T) {
	unknown := math.NaN()
	var out bytes.Buffer
	err := printUsage(&out, &client.MachineUsage{
		UnixMilliseconds: []int64{0, 15_000, 30_000}, CPUPercent: client.Series{10, 20, unknown}, MemoryPercent: client.Series{50, 50, 51},
		GuestMemoryBytes: client.Series{1 << 20, 3 << 20, 2 << 20}, ResidentBytes: client.Series{200 << 20, 200 << 20, 200 << 20},
		DiskReadBytesPerSecond: client.Series{unknown, 0, 100}, DiskWrittenBytesPerSecond: client.Series{unknown, unknown, unknown},
	})
	want := `RESOURCE              LAST      MEAN      MAX
CPU                   -         15%       20%
Memory                51%       50%       51%
Memory of the guest   2.0 MiB   2.0 MiB   3.0 MiB
Memory of the host    200 MiB   200 MiB   200 MiB
Disk read             100 B/s   50 B/s    100 B/s
Disk written          -         -         -
`
	if err != nil || !strings.HasPrefix(out.String(), want) || !strings.Contains(out.String(), "3 samples") {
		t.Errorf("got %v\n%s", err, out.String())
	}
}

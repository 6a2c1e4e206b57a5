package controlplane

import (
	"crypto"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/cert"

	"github.com/keelson-dev/keelson/internal/pki"
)

var (
	t0   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	year = 365 * 24 * time.Hour
)

// newLayout returns a data directory with nothing but its folders.
func newLayout(t *testing.T) layout {
	t.Helper()
	dir := layout(filepath.Join(t.TempDir(), "data"))
	if err := dir.create(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustEnsure(t *testing.T, dir layout, now time.Time) (changed bool) {
	t.Helper()
	changed, err := ensureCertificates(dir, certificates, now)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// contents returns all files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(data)
	}
	return files
}

// differences returns the names of the files that differ, sorted.
func differences(before, after map[string]string) []string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	return names
}

func readCert(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	crts, err := cert.CertsFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return crts[0]
}

// requireTrust fails the test unless the holder of the authority's certificate trusts the other one.
func requireTrust(t *testing.T, authority, crt *x509.Certificate, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	_, err := crt.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		t.Errorf("%s is not trusted: %v", crt.Subject.CommonName, err)
	}
}

// requireConsistent fails the test unless every certificate belongs to its key and is trusted by its authority.
func requireConsistent(t *testing.T, dir layout, now time.Time) {
	t.Helper()
	for _, c := range certificates {
		crt := readCert(t, dir.pki(c.Name+".crt"))
		key, err := pki.EnsureKey(files(dir), c.Name+".key", "")
		if err != nil {
			t.Fatal(err)
		}
		public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
		if !ok || !public.Equal(crt.PublicKey) {
			t.Errorf("the key of %s is not that of its certificate", c.Name)
		}
		issuer := c.Issuer
		if issuer == "" {
			issuer = c.Name
		}
		requireTrust(t, readCert(t, dir.pki(issuer+".crt")), crt, now)
	}
}

// leaves are the files of the certificates that a CA has signed.
func leaves(issuer string) []string {
	var names []string
	for _, c := range certificates {
		if c.Issuer == issuer {
			names = append(names, c.Name+".crt")
		}
	}
	slices.Sort(names)
	return names
}

func TestCertificatesAreRenewedAtHalfLife(t *testing.T) {
	t.Parallel()
	allLeaves := append(leaves("ca"), leaves("front-proxy-ca")...)
	slices.Sort(allLeaves)
	everything := append([]string{"ca.crt", "front-proxy-ca.crt"}, allLeaves...)
	slices.Sort(everything)
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  []string
	}{
		{name: "the same moment", after: 0, want: nil},
		{name: "just before the half of a year", after: year/2 - time.Hour, want: nil},
		{name: "just after the half of a year: keys and authorities stay", after: year/2 + time.Hour, want: allLeaves},
		{name: "long after the end, a machine that was off for two years", after: 2 * year, want: allLeaves},
		{name: "just after the half life of the authorities", after: 5*year + time.Hour, want: everything},
		{name: "the clock was wrong before: certificates of the future", after: -time.Hour, want: everything},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := newLayout(t)
			mustEnsure(t, dir, t0)
			before := contents(t, dir.path("pki"))
			changed := mustEnsure(t, dir, t0.Add(tt.after))
			got := differences(before, contents(t, dir.path("pki")))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("files that changed (-want +got):\n%s", diff)
			}
			if changed != (len(tt.want) > 0) {
				t.Errorf("changed = %t", changed)
			}
			requireConsistent(t, dir, t0.Add(tt.after))
		})
	}
}

// A kubeconfig that somebody has copied holds the old certificate of the authority, and a component that has not read
// its new files yet an old certificate of its own: both go on working when the authority is renewed.
func TestRenewedAuthorityTrustsAndIsTrusted(t *testing.T) {
	t.Parallel()
	dir := newLayout(t)
	mustEnsure(t, dir, t0)
	mustEnsure(t, dir, t0.Add(5*year-24*time.Hour))
	oldCA, oldLeaf := readCert(t, dir.pki("ca.crt")), readCert(t, dir.pki("apiserver.crt"))

	now := t0.Add(5*year + 24*time.Hour)
	mustEnsure(t, dir, now)
	newCA := readCert(t, dir.pki("ca.crt"))
	if newCA.Equal(oldCA) {
		t.Fatal("the authority was not renewed")
	}
	requireTrust(t, newCA, oldLeaf, now)

	now = t0.Add(5*year + year/2)
	mustEnsure(t, dir, now)
	newLeaf := readCert(t, dir.pki("apiserver.crt"))
	if newLeaf.Equal(oldLeaf) {
		t.Fatal("the certificate was not renewed")
	}
	requireTrust(t, oldCA, newLeaf, now)
}

func TestDamagedPKI(t *testing.T) {
	t.Parallel()
	remove := func(name string) func(*testing.T, layout) {
		return func(t *testing.T, dir layout) {
			if err := os.Remove(dir.pki(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(name, text string) func(*testing.T, layout) {
		return func(t *testing.T, dir layout) {
			if err := os.WriteFile(dir.pki(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	strange := func(names ...string) func(*testing.T, layout) {
		return func(t *testing.T, dir layout) {
			other := newLayout(t)
			mustEnsure(t, other, t0)
			for _, name := range names {
				data, err := os.ReadFile(other.pki(name))
				if err != nil {
					t.Fatal(err)
				}
				write(name, string(data))(t, dir)
			}
		}
	}
	const garbage = "\x00garbage\n"
	for _, tt := range []struct {
		name    string
		damage  func(*testing.T, layout)
		want    []string // the files that differ from before the damage
		wantErr []string // what the error says
	}{
		{name: "certificate lost", damage: remove("admin.crt"), want: []string{"admin.crt"}},
		{name: "certificate damaged", damage: write("admin.crt", garbage), want: []string{"admin.crt"}},
		{name: "certificate empty, after a full disk", damage: write("admin.crt", ""), want: []string{"admin.crt"}},
		{name: "certificate of another authority", damage: strange("admin.crt", "admin.key"), want: []string{"admin.crt", "admin.key"}},
		{name: "certificate of somebody else", damage: func(t *testing.T, dir layout) {
			data, err := os.ReadFile(dir.pki("kwok.crt"))
			if err != nil {
				t.Fatal(err)
			}
			write("admin.crt", string(data))(t, dir)
		}, want: []string{"admin.crt"}},
		{name: "key lost", damage: remove("admin.key"), want: []string{"admin.crt", "admin.key"}},
		{name: "key damaged, and only its owner needs it", damage: write("admin.key", garbage), want: []string{"admin.crt", "admin.key"}},
		{name: "certificate of the authority damaged, made again with its key", damage: write("ca.crt", garbage), want: []string{"ca.crt"}},
		{name: "key of the authority lost: all is new", damage: remove("ca.key"), want: append([]string{"ca.crt", "ca.key"}, leaves("ca")...)},
		{
			name: "key of the authority damaged: copies of the kubeconfig depend on it", damage: write("ca.key", garbage),
			wantErr: []string{"pki/ca.key is damaged", "delete it", "copies of the kubeconfig stop working"},
		},
		{
			name: "key of the tokens damaged", damage: write("sa.key", garbage),
			wantErr: []string{"pki/sa.key is damaged", "delete it", "tokens of ServiceAccounts become invalid"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := newLayout(t)
			mustEnsure(t, dir, t0)
			before := contents(t, dir.path("pki"))
			tt.damage(t, dir)
			_, err := ensureCertificates(dir, certificates, t0)
			if len(tt.wantErr) > 0 {
				for _, text := range tt.wantErr {
					if err == nil || !strings.Contains(err.Error(), text) {
						t.Errorf("error %v does not say %q", err, text)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, differences(before, contents(t, dir.path("pki")))); diff != "" {
				t.Errorf("files that changed (-want +got):\n%s", diff)
			}
			requireConsistent(t, dir, t0)
		})
	}
}

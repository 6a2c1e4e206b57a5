package manager

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// With the Secret of a Certificate of cert-manager as a volume, the manager neither makes certificates nor writes caBundle,
// takes those that replace the first, and refuses all along.
func TestWebhookWithCertificatesOfSomebodyElse(t *testing.T) {
	c := newWebhookClient(t)
	namespace := env.Namespace(t)
	o := webhookOptions(t, c, namespace)
	volume, issuer := &secretVolume{dir: t.TempDir()}, newIssuer(t)
	o.Webhook.CertDir = volume.dir
	first := volume.renew(t, issuer)
	m := start(t, o, controllers...)
	within(t, "the manager to be ready", m.Ready())

	// What the CA injector of cert-manager fills in.
	configuration, err := admission.Configuration(o.Webhook.ConfigurationName, []string{cronTabs}, o.Namespaces, m.WebhookAddress())
	if err != nil {
		t.Fatal(err)
	}
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig.CABundle = issuer.bundle
	}
	if err := c.Create(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, c, namespace, true)
	serves := func() string {
		connection, err := tls.Dial("tcp", m.WebhookAddress(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close() //nolint:errcheck // nothing was sent
		return connection.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	if got := serves(); got != first {
		t.Errorf("it serves the certificate %s, want %s", got, first)
	}
	for range 2 {
		next := volume.renew(t, issuer)
		harness.Eventually(t, "it serves the next certificate", func() bool {
			if err := c.Create(t.Context(), newCronTab(namespace, "probe", backwards), client.DryRunAll); !apierrors.IsInvalid(err) {
				t.Fatalf("got %v, want a refusal", err)
			}
			return serves() == next
		})
	}
	err = c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: admission.SecretName}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("there is a Secret of its own: %v", err)
	}
	present := configuration.DeepCopy()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(present), present); err != nil || present.Generation != configuration.Generation {
		t.Errorf("the configuration was changed: generation %d, %v", present.Generation, err)
	}
}

// issuer signs certificates, as an Issuer of cert-manager with an authority does.
type issuer struct {
	pki.Pair
	bundle []byte // the authority, as PEM
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	made, err := pki.Template{CommonName: "an authority", IsCA: true, Lifetime: time.Hour}.Issue(key, pki.Pair{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := cert.EncodeCertificates(made.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{Pair: made, bundle: bundle}
}

// secret returns what is in the Secret of a new Certificate for this host, and its serial number.
func (i *issuer) secret(t *testing.T) (data map[string][]byte, serial string) {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	made, err := pki.Template{Names: []string{"127.0.0.1"}, Lifetime: time.Hour}.Issue(key, i.Pair, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.EncodeCertificates(made.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"ca.crt": i.bundle, "tls.crt": certificate, "tls.key": rawKey}, made.Certificate.SerialNumber.String()
}

// secretVolume is a Secret as the kubelet mounts it: the files are links through ..data, which leads to a folder, so that
// all of them change at once.
type secretVolume struct {
	dir    string
	folder string // the present one
	turn   int
}

// renew mounts the Secret of a new Certificate instead of the one before, and returns its serial number.
func (v *secretVolume) renew(t *testing.T, by *issuer) string {
	t.Helper()
	data, serial := by.secret(t)
	v.turn++
	folder, before := fmt.Sprintf("..2026_11_22_00_00_00.%d", v.turn), v.folder
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(v.dir, folder), 0o700))
	for name, content := range data {
		must(os.WriteFile(filepath.Join(v.dir, folder, name), content, 0o600))
	}
	must(os.Symlink(folder, filepath.Join(v.dir, "..data_tmp")))
	must(os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")))
	if v.folder = folder; before != "" {
		must(os.RemoveAll(filepath.Join(v.dir, before)))
		return serial
	}
	for name := range data {
		must(os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
	}
	return serial
}

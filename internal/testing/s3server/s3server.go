// Package s3server gives tests a server of the S3 protocol, of test/s3server. It has one bucket, and a user with the permissions of
// docs/cluster-snapshot-store.md.
package s3server

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// Bucket is the name of the bucket.
const Bucket = "snapshots"

// Server is a server, which is stopped at the end of the test.
type Server struct {
	// Address is its host:port.
	Address string
	// Credentials and CA are the files for snapshotStore.credentials and snapshotStore.ca.
	Credentials, CA string

	t           testing.TB
	dir, secret string
	client      *http.Client
	// process is nil while the server does not run.
	process *exec.Cmd
	log     *bytes.Buffer
}

// Start returns a server that runs.
func Start(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{t: t, dir: dir, secret: rand.Text(), Credentials: filepath.Join(dir, "credentials"), CA: filepath.Join(dir, "tls.crt")}
	s.issue()
	s.SetSecret(s.secret)
	if err := os.MkdirAll(s.Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.Restart()
	s.allow()
	return s
}

// issue writes the certificate of the server, which is its own authority.
func (s *Server) issue() {
	s.t.Helper()
	example := httptest.NewTLSServer(nil)
	defer example.Close()
	s.client = example.Client()
	pair := example.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		s.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		s.CA: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, filepath.Join(s.dir, "tls.key"): {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// SetSecret writes the file of credentials. Any other secret than that of the server is refused.
func (s *Server) SetSecret(secret string) {
	s.t.Helper()
	content := "[default]\naws_access_key_id = keelson\naws_secret_access_key = " + secret + "\n"
	if err := os.WriteFile(s.Credentials, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Secret returns the secret of the user.
func (s *Server) Secret() string { return s.secret }

// Location returns a location for --snapshot-store: a prefix in a bucket.
func (s *Server) Location(bucket, prefix string) string {
	return "s3://" + bucket + "/" + prefix + "?endpoint=https://" + s.Address
}

// Path returns the path of the file with an object, or of the folder of several. It is not there if there is none.
func (s *Server) Path(key ...string) string {
	return filepath.Join(append([]string{s.dir, "buckets", Bucket}, key...)...)
}

// Incomplete returns the number of uploads that have parts and are not complete.
func (s *Server) Incomplete() int {
	s.t.Helper()
	found, err := s.root().ListMultipartUploads(s.t.Context(), Bucket, "", "", "", "", 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(found.Uploads)
}

// root returns a client that may do everything.
func (s *Server) root() *minio.Core {
	s.t.Helper()
	client, err := minio.NewCore(s.Address, &minio.Options{
		Creds: credentials.NewStaticV4("root", s.secret, ""), Secure: true, Transport: s.client.Transport,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// allow gives the user the permissions of docs/cluster-snapshot-store.md.
func (s *Server) allow() {
	s.t.Helper()
	root, err := env.Root()
	if err != nil {
		s.t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/cluster-snapshot-store.md"))
	if err != nil {
		s.t.Fatal(err)
	}
	_, policy, found := strings.Cut(string(page), "```json\n")
	policy, _, _ = strings.Cut(policy, "```")
	policy = strings.NewReplacer(`"Effect": "Allow"`, `"Effect": "Allow", "Principal": {"AWS": ["keelson"]}`,
		":::backups/keelson/*", ":::"+Bucket+"/*", ":::backups", ":::"+Bucket).Replace(policy)
	if err := s.root().SetBucketPolicy(s.t.Context(), Bucket, policy); err != nil || !found {
		s.t.Fatalf("the policy of docs/cluster-snapshot-store.md: %v", err)
	}
}

// Restart starts a server that is stopped, with all objects, at the address it had.
func (s *Server) Restart() {
	s.t.Helper()
	program, err := env.Binary("s3server")
	if err != nil {
		s.t.Fatalf("No S3 server for this test, run make s3server: %v", err)
	}
	s.log = &bytes.Buffer{}
	s.process = exec.Command(program, s.Address, s.dir)
	s.process.Env = append(os.Environ(), "SECRET="+s.secret)
	s.process.Stdout, s.process.Stderr = s.log, s.log
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	harness.Eventually(s.t, "the S3 server responds", func() bool {
		response, err := s.client.Get("https://" + s.Address + "/health")
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
}

// Stop kills the server. Its connections are cut.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	if err := s.process.Process.Kill(); err != nil {
		s.t.Error(err)
	}
	_ = s.process.Wait() // it was killed
	s.process = nil
	if s.t.Failed() {
		s.t.Logf("the S3 server: %s", s.log)
	}
}

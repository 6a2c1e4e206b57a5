package objectstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// partSize is how much of an object is in memory while it is written.
	partSize = 16 << 20
	// attempts of one request. Callers try again later.
	attempts = 3
	// connectTimeout is how long a server has to accept a connection.
	connectTimeout = 10 * time.Second
	// stallTimeout is how long a server may neither take nor send anything. It has to put the parts of an object together meanwhile.
	stallTimeout = 2 * time.Minute
)

// s3 is a prefix in a bucket.
type s3 struct {
	bucket
	client      minio.Core
	credentials *credentials.Credentials
	// file has the credentials.
	file string
}

func newS3(o Options, stall time.Duration) (*s3, error) {
	place, err := parseBucket(o.Location)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(o.CA, stall)
	if err != nil {
		return nil, err
	}
	host, secure := "s3.amazonaws.com", true
	if place.endpoint != nil {
		host, secure = place.endpoint.Host, place.endpoint.Scheme == "https"
	}
	keys := credentials.New(&keyFile{FileAWSCredentials: credentials.FileAWSCredentials{Filename: o.Credentials}})
	client, err := minio.NewCore(host, &minio.Options{Creds: keys, Secure: secure, Region: place.region, Transport: transport, MaxRetries: attempts})
	if err != nil {
		return nil, fmt.Errorf("snapshotStore.location: %w", err)
	}
	return &s3{bucket: place, client: *client, credentials: keys, file: o.Credentials}, nil
}

// newTransport returns the connections to a server, which trust the authorities of a file besides those of the system.
func newTransport(ca string, stall time.Duration) (*http.Transport, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the certificates of authorities of this host: %w", err)
	}
	if ca != "" {
		content, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("snapshotStore.ca: %w", err)
		}
		if !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("snapshotStore.ca: %s contains no certificate in PEM format", ca)
		}
	}
	dialer := net.Dialer{Timeout: connectTimeout}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return stallConn{conn, stall}, nil
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: connectTimeout,
		IdleConnTimeout: stall / 2, ForceAttemptHTTP2: false, DisableCompression: true, // what was stored is what is read
	}, nil
}

// stallConn fails when nothing moves for a time. A server that is away, or hangs, must not hold a worker.
type stallConn struct {
	net.Conn
	timeout time.Duration
}

func (c stallConn) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write also extends the deadline of the Read that waits for the response.
func (c stallConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// keyFile provides the credentials of a file. It is read when they are needed first, and again after the server has refused them.
type keyFile struct{ credentials.FileAWSCredentials }

// errKeys is an error of a file with credentials. It never quotes what is in the file.
type errKeys struct{ error }

// RetrieveWithCredContext implements credentials.Provider.
func (f *keyFile) RetrieveWithCredContext(ctx *credentials.CredContext) (credentials.Value, error) {
	keys, err := f.FileAWSCredentials.RetrieveWithCredContext(ctx)
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return credentials.Value{}, errKeys{fmt.Errorf("read the credentials for the bucket: %w", file)}
	case err != nil || keys.AccessKeyID == "" || keys.SecretAccessKey == "":
		return credentials.Value{}, errKeys{fmt.Errorf("%s has no credentials for the bucket: it must have the lines [default], aws_access_key_id = ID, and aws_secret_access_key = KEY", f.Filename)}
	}
	return keys, nil
}

// Retrieve implements credentials.Provider.
func (f *keyFile) Retrieve() (credentials.Value, error) { return f.RetrieveWithCredContext(nil) }

// Location implements Store.
func (s *s3) Location(name string) string {
	location := s3Scheme + path.Join(s.name, s.prefix, name)
	if s.endpoint != nil {
		location += "?endpoint=" + s.endpoint.Scheme + "://" + s.endpoint.Host
	}
	return location
}

func (s *s3) key(name string) string { return path.Join(s.prefix, name) }

// Put implements Store. The server verifies a checksum of each part.
func (s *s3) Put(ctx context.Context, name string, content io.Reader, size int64) error {
	if err := s.abort(ctx, name); err != nil {
		return err
	}
	source, options := &sourceReader{Reader: content}, minio.PutObjectOptions{PartSize: partSize}
	var body io.Reader = source
	if size < partSize {
		// It is one request. Some servers store what they have got of a request that is cut off, unless a checksum came first.
		whole := make([]byte, size)
		if _, err := io.ReadFull(content, whole); err != nil {
			return fmt.Errorf("read the %d bytes for %s: %w", size, s.Location(name), err)
		}
		body, options.SendContentMd5 = bytes.NewReader(whole), true // and the client makes no copy
	}
	_, err := s.client.Client.PutObject(ctx, s.name, s.key(name), body, size, options)
	if err != nil && source.err != nil {
		return source.err
	}
	return s.explain(err, name)
}

// sourceReader remembers an error of reading, which is none of the server.
type sourceReader struct {
	io.Reader
	err error
}

func (r *sourceReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// abort deletes the parts of Puts that were interrupted. Nobody sees them, but they take space.
func (s *s3) abort(ctx context.Context, name string) error {
	err := s.explain(s.client.RemoveIncompleteUpload(ctx, s.name, s.key(name)), name)
	if errors.Is(err, ErrNotFound) {
		return nil // another program has done so
	}
	return err
}

// Get implements Store.
func (s *s3) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	object, _, _, err := s.client.GetObject(ctx, s.name, s.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, s.explain(err, name)
	}
	return object, nil
}

// Delete implements Store.
func (s *s3) Delete(ctx context.Context, name string) error {
	if err := s.abort(ctx, name); err != nil {
		return err
	}
	err := s.explain(s.client.RemoveObject(ctx, s.name, s.key(name), minio.RemoveObjectOptions{}), name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// explain returns an error of the client with what to do about it. It contains nothing that changes with each attempt, such as a port
// of this host, because it becomes a status. After a refusal, the credentials are read again.
func (s *s3) explain(err error, name string) error {
	var answer minio.ErrorResponse
	var keys errKeys
	var certificate *tls.CertificateVerificationError
	server := cmp.Or(s.endpoint, &url.URL{Scheme: "https", Host: "s3.amazonaws.com"})
	switch {
	case err == nil:
		return nil
	case errors.As(err, &keys):
		return keys
	case errors.As(err, &certificate):
		return fmt.Errorf("the certificate of the S3 server %s is not trusted (%w): give its authority with snapshotStore.ca", server, certificate.Err)
	case !errors.As(err, &answer):
		return fmt.Errorf("no connection to the S3 server %s (%w): check the network, the endpoint of snapshotStore.location, and the server", server, steady(err))
	case answer.Code == minio.NoSuchKey || answer.Code == minio.NoSuchUpload:
		return fmt.Errorf("%w: %s", ErrNotFound, s.Location(name))
	case answer.Code == minio.NoSuchBucket:
		return fmt.Errorf("the S3 server %s has no bucket %s: create it, or check snapshotStore.location", server, s.name)
	case answer.Code == "RequestTimeTooSkewed":
		return fmt.Errorf("the S3 server %s has another time than this host: set the clocks", server)
	case answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized:
		s.credentials.Expire()
		return fmt.Errorf("the S3 server %s denies access to the bucket %s (%s): check the credentials in %s and what they allow", server, s.name, answer.Code, s.file)
	}
	return fmt.Errorf("the S3 server %s reports %s: %s", server, cmp.Or(answer.Code, http.StatusText(answer.StatusCode)), answer.Message)
}

// steady returns the part of an error of a connection that is the same at each attempt.
func steady(err error) error {
	var operation *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &operation):
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	case errors.As(err, &request):
		return request.Err
	}
	return err
}

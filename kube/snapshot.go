package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// etcdSnapshot writes a snapshot of a running etcd to its standard output: etcdctl writes files only, and there may be no room for one
// beside etcd. As with etcdctl, the SHA-256 sum of the database follows it.
func etcdSnapshot() {
	withEtcd(func(ctx context.Context, client *clientv3.Client) error {
		snapshot, err := client.SnapshotWithVersion(ctx)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, snapshot.Snapshot)
		return err
	})
}

// etcdLoad replaces the objects in a running etcd by those in its standard input.
func etcdLoad() {
	adapt := func(_, value string) (string, bool) { return value, true }
	flag.BoolFunc("foreign", "the objects are of another cluster: omit its nodes, and the tokens that it has signed", func(string) error {
		adapt = adaptForeign
		return nil
	})
	withEtcd(func(ctx context.Context, client *clientv3.Client) error {
		return loadObjects(ctx, client, bufio.NewReader(os.Stdin), adapt)
	})
}

// foreignKeys begin the keys of objects that belong to the nodes, the API servers and the credentials of a cluster.
var foreignKeys = []string{
	"/registry/minions/", "/registry/csinodes/", "/registry/leases/kube-node-lease/", "/registry/leases/kube-system/apiserver-",
	"/registry/certificatesigningrequests/",
}

// adaptForeign returns an object of another cluster without its token; false if it is to be omitted. kube-controller-manager fills in a new
// token, and would take the nodes for ones that do not respond.
func adaptForeign(key, value string) (adapted string, keep bool) {
	if slices.ContainsFunc(foreignKeys, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
		return "", false
	}
	if !strings.HasPrefix(key, "/registry/secrets/") {
		return value, true
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(value), nil, nil)
	secret, isSecret := object.(*corev1.Secret)
	if err != nil || !isSecret || secret.Type != corev1.SecretTypeServiceAccountToken {
		return value, true
	}
	delete(secret.Data, corev1.ServiceAccountTokenKey)
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(secret, &encoded); err != nil {
		return value, true
	}
	return encoded.String(), true
}

// connectTimeout limits the time to connect to etcd.
const connectTimeout = 10 * time.Second

// withEtcd does something with the etcd of the flags, and ends the process.
func withEtcd(do func(context.Context, *clientv3.Client) error) {
	endpoint := flag.String("endpoint", "https://127.0.0.1:2379", "URL of etcd")
	files := transport.TLSInfo{}
	flag.StringVar(&files.TrustedCAFile, "cacert", "", "file of the CA of etcd")
	flag.StringVar(&files.CertFile, "cert", "", "file of the client certificate")
	flag.StringVar(&files.KeyFile, "key", "", "file of the key of the client certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	client, err := connect(ctx, *endpoint, files)
	if err == nil {
		err = errors.Join(do(ctx, client), client.Close())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// connect returns a client of an etcd that answers. Without that, the client would try to connect forever.
func connect(ctx context.Context, endpoint string, files transport.TLSInfo) (*clientv3.Client, error) {
	config := clientv3.Config{Endpoints: []string{endpoint}, Context: ctx}
	if files.TrustedCAFile != "" {
		var err error
		if config.TLS, err = files.ClientConfig(); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	reachable, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := client.Status(reachable, endpoint); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to etcd at %s: %w", endpoint, err), client.Close())
	}
	return client, nil
}

// objectsPrefix begins the keys of the objects of kube-apiserver.
const objectsPrefix = "/registry/"

// Limits of a transaction of etcd, below its defaults of 128 operations and 1.5 MiB.
const (
	maxPuts  = 100
	maxBytes = 1 << 20
)

// loaderKey is the key of the process that replaces the objects. It ends the one before, whose manager may have been killed: it must not
// write when the objects are replaced, and used again.
const loaderKey = "keelson.dev/loader"

// loader replaces objects as long as no other one has begun.
type loader struct {
	client *clientv3.Client
	id     string
}

func (l loader) do(ctx context.Context, ops ...clientv3.Op) (revision int64, err error) {
	response, err := l.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(loaderKey), "=", l.id)).Then(ops...).Commit()
	switch {
	case err != nil:
		return 0, err
	case !response.Succeeded:
		return 0, errors.New("another process replaces the objects")
	}
	return response.Header.Revision, nil
}

// loadObjects replaces all objects in etcd by those of a stream: for each the lengths of key and value as varints, each followed by its
// bytes, and a zero at the end. The function adapts each, or omits it. No API server may run meanwhile. If it fails, it has to be repeated:
// some objects are missing.
func loadObjects(ctx context.Context, client *clientv3.Client, from *bufio.Reader, adapt func(key, value string) (string, bool)) error {
	l := loader{client, rand.Text()}
	if _, err := client.Put(ctx, loaderKey, l.id); err != nil {
		return err
	}
	revision, err := l.do(ctx, clientv3.OpDelete(objectsPrefix, clientv3.WithPrefix()))
	if err != nil {
		return err
	}
	// The space of what was removed is used again, so that there is enough for the rest.
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	var puts []clientv3.Op
	size := 0
	put := func() error {
		_, err := l.do(ctx, puts...)
		puts, size = nil, 0
		return err
	}
	for {
		key, err := readField(from)
		if err != nil {
			return err
		}
		if len(key) == 0 {
			puts = append(puts, clientv3.OpDelete(loaderKey))
			return put()
		}
		value, err := readField(from)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(key, objectsPrefix) {
			return fmt.Errorf("the key %q is not one of an object", key)
		}
		value, keep := adapt(key, value)
		if !keep {
			continue
		}
		if len(puts) == maxPuts || size+len(key)+len(value) > maxBytes && len(puts) > 0 {
			if err := put(); err != nil {
				return err
			}
		}
		puts, size = append(puts, clientv3.OpPut(key, value)), size+len(key)+len(value)
	}
}

// readField reads a length and as many bytes.
func readField(from *bufio.Reader) (string, error) {
	length, err := binary.ReadUvarint(from)
	if err == nil && length > 64<<20 {
		err = errors.New("its content is damaged")
	}
	if err != nil {
		return "", fmt.Errorf("read the objects: %w", err)
	}
	field := make([]byte, length)
	if _, err := io.ReadFull(from, field); err != nil {
		return "", fmt.Errorf("read the objects: %w", err)
	}
	return string(field), nil
}

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdSnapshot writes a snapshot of a running etcd to its standard output: etcdctl writes files only, and there may be no room for one
// beside etcd. As with etcdctl, the SHA-256 sum of the database follows it.
func etcdSnapshot() {
	endpoint := flag.String("endpoint", "https://127.0.0.1:2379", "URL of etcd")
	files := transport.TLSInfo{}
	flag.StringVar(&files.TrustedCAFile, "cacert", "", "file of the CA of etcd")
	flag.StringVar(&files.CertFile, "cert", "", "file of the client certificate")
	flag.StringVar(&files.KeyFile, "key", "", "file of the key of the client certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := streamSnapshot(ctx, *endpoint, files, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}

// connectTimeout limits the time to connect to etcd.
const connectTimeout = 10 * time.Second

// streamSnapshot copies a snapshot of etcd to a writer.
func streamSnapshot(ctx context.Context, endpoint string, files transport.TLSInfo, to io.Writer) error {
	tls, err := files.ClientConfig()
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: tls, Context: ctx})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it was only read
	// The client would try to connect forever.
	reachable, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := client.Status(reachable, endpoint); err != nil {
		return fmt.Errorf("connect to etcd at %s: %w", endpoint, err)
	}
	snapshot, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, snapshot.Snapshot)
	return err
}

// Command s3server is a server of the S3 protocol for tests: the gateway of Versity with the files of a directory. It verifies
// signatures, and writes an object as a whole. The test starts it with a port, so that it comes back at the same address:
//
//	SECRET=… s3server HOST:PORT DIR
//
// The user root may do everything, the user keelson what the policy of a bucket allows. Both have the same secret. A folder of
// DIR/buckets is a bucket. With DIR/tls.crt and DIR/tls.key, it serves TLS.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: s3server HOST:PORT DIR")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run serves the buckets of a directory until ctx ends.
func run(ctx context.Context, address, dir string) error {
	// Not every file system has extended attributes for the metadata.
	buckets, about, accounts := filepath.Join(dir, "buckets"), filepath.Join(dir, "metadata"), filepath.Join(dir, "accounts")
	for _, path := range []string{buckets, about, accounts} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	metadata, err := meta.NewSideCar(about)
	if err != nil {
		return err
	}
	files, err := posix.New(buckets, metadata, posix.PosixOpts{SideCarDir: about, Concurrency: 16})
	if err != nil {
		return err
	}
	root := auth.Account{Access: "root", Secret: os.Getenv("SECRET"), Role: auth.RoleAdmin}
	users, err := auth.NewInternal(root, accounts)
	if err != nil {
		return err
	}
	err = users.CreateAccount(auth.Account{Access: "keelson", Secret: root.Secret, Role: auth.RoleUser})
	if err != nil && !errors.Is(err, auth.ErrUserExists) {
		return err
	}
	config := &embedgw.Config{
		RootUserAccess: root.Access, RootUserSecret: root.Secret, IAMService: users,
		Ports: []string{address}, MaxConnections: 64, MaxRequests: 64, MultipartMaxParts: 10000, HealthPath: "/health",
	}
	if certificate := filepath.Join(dir, "tls.crt"); exists(certificate) {
		config.CertFile, config.KeyFile = certificate, filepath.Join(dir, "tls.key")
	}
	return embedgw.RunVersityGW(ctx, files, config)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

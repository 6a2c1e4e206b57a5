package main

import (
	"os"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

// etcd runs etcd until it is told to stop.
func etcd() {
	etcdmain.Main(os.Args)
}

// etcdVersion returns the version of the etcd server that is built in.
func etcdVersion() string {
	return version.Version
}

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	etcdutlcmd "go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

// The packages of etcdctl turn this on in an init function, for every cobra command of the process: kubectl would
// accept "kubectl del".
func init() { cobra.EnablePrefixMatching = false }

// etcd runs etcd until it is told to stop.
func etcd() {
	etcdmain.Main(os.Args)
}

// etcdctl is the client of a running etcd: keelson saves snapshots, compacts and defragments with it.
func etcdctl() {
	ctlv3.MustStart()
}

// etcdutl works on etcd's files: keelson restores snapshots with it. The upstream root command is in a main package,
// which cannot be imported.
func etcdutl() {
	root := &cobra.Command{Use: "etcdutl", Short: "An administrative command line tool for etcd3."}
	root.PersistentFlags().StringVarP(&etcdutlcmd.OutputFormat, "write-out", "w", "simple", "set the output format (fields, json, protobuf, simple, table)")
	root.AddCommand(
		etcdutlcmd.NewDefragCommand(),
		etcdutlcmd.NewSnapshotCommand(),
		etcdutlcmd.NewHashKVCommand(),
		etcdutlcmd.NewVersionCommand(),
		etcdutlcmd.NewMigrateCommand(),
	)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(128) // as upstream
	}
}

// etcdVersion returns the version of the etcd server that is built in.
func etcdVersion() string {
	return version.Version
}

package life

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/files"
	"github.com/keelson-dev/keelson/internal/testing/s3server"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const localCluster = `{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: inner}}`

// TestLongBackup saves a running instance, deletes it, and restores it with the commands of
// docs/backup.md, including the objects of its local Cluster.
func TestLongBackup(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	blocks := backupCommands(t)
	transcript.Contains(t, m.Fails(t, 1, "keelson", "backup", m.path("nothing")), "error: no keelson data in "+m.data())
	m.OK(t, "keelson", "up", "--detach")
	user := m.withCluster()
	user.OK(t, "kubectl", "create", "configmap", "kept", "--from-literal=a=b")
	user.Stdin = localCluster
	user.OK(t, "kubectl", "create", "-f", "-")
	user.OK(t, "kubectl", "wait", "--for=condition=Ready", "cluster/inner", "--timeout", transcript.WaitTimeout.String())
	inner := m.inner(t, "inner")
	inner.OK(t, "kubectl", "create", "configmap", "inside", "--from-literal=a=b")

	user.OK(t, "keelson", "cluster", "snapshot", "inner", "--name", "before", "--wait")

	file := m.path("keelson.backup")
	m.typed(t, blocks[0])
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the backup: %v, %v", info.Mode(), err)
	}
	transcript.Contains(t, m.Fails(t, 1, "keelson", "backup", file), "already exists: choose another file")
	transcript.Contains(t, m.Fails(t, 1, "keelson", "restore", file), "error: keelson is running in "+m.data()+": stop it with `keelson down`")
	user.OK(t, "kubectl", "create", "configmap", "later", "--from-literal=a=b")
	m.OK(t, "keelson", "down")
	transcript.Contains(t, m.Fails(t, 1, "keelson", "restore", file), m.data()+" is not empty: move it away")

	m.killedRestore(t, file)
	m.damagedRestore(t, file)
	m.typed(t, blocks[1])
	isClosedToOthers(t, m.data())
	if _, err := os.Stat(m.data() + ".restore"); err == nil {
		t.Error("leftover workspace of the restore")
	}
	user.OK(t, "kubectl", "get", "configmap", "kept")
	transcript.Contains(t, user.Fails(t, 1, "kubectl", "get", "configmap", "later"), "not found")
	user.OK(t, "kubectl", "create", "configmap", "new", "--from-literal=a=b")
	inner.Until(t, "the local cluster has its objects", transcript.Is("configmap/inside"), "kubectl", "get", "configmap", "inside", "-o", "name")
	user.OK(t, "kubectl", "wait", "--for=condition=Ready", "clustersnapshot/before", "--timeout", transcript.WaitTimeout.String())
	user.OK(t, "keelson", "cluster", "create", "copy", "--from", "before", "--wait")
	m.OK(t, "keelson", "down", "--delete-data")
}

// TestLongSnapshotStore copies the snapshot of a Cluster to a directory, and, with other flags, to a bucket. It loses the host, and makes
// the Cluster again on another one from the copy in the bucket.
func TestLongSnapshotStore(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	store := m.path("store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	server := s3server.Start(t)
	toBucket := []string{"keelson", "up", "--detach", "--snapshot-store", server.Location(s3server.Bucket, "a/prefix"),
		"--config", m.config(t, fmt.Sprintf("snapshotStore: {credentials: %q, ca: %q}", server.Credentials, server.CA))}
	m.OK(t, "keelson", "up", "--detach", "--snapshot-store", store)
	user := m.withCluster()
	user.OK(t, "keelson", "cluster", "create", "inner", "--wait")
	m.inner(t, "inner").OK(t, "kubectl", "create", "configmap", "inside", "--from-literal=a=b")
	user.OK(t, "keelson", "cluster", "snapshot", "inner", "--name", "before", "--wait")
	user.OK(t, "kubectl", "wait", "--for=condition=Stored", "clustersnapshot/before", "--timeout", transcript.WaitTimeout.String())
	locationOf := []string{"kubectl", "get", "clustersnapshot/before", "-o", "jsonpath={.status.location}"}
	location := user.OK(t, locationOf...)
	isClosedToOthers(t, location)

	m.OK(t, toBucket...)
	inBucket := user.Until(t, "it is in the bucket", func(l string) bool { return strings.HasPrefix(l, "s3://") }, locationOf...)
	copied := server.Path("a", "prefix", "inner", filepath.Base(location))
	if !strings.HasPrefix(inBucket, "s3://"+s3server.Bucket+"/a/prefix/inner/"+filepath.Base(location)+"?endpoint=") {
		t.Errorf("the location: %s", inBucket)
	}
	for _, place := range []string{location, copied} {
		if _, err := os.Stat(filepath.Join(place, "snapshot.json")); err != nil {
			t.Errorf("the copy: %v", err)
		}
	}
	for _, file := range []string{filepath.Join(m.data(), "logs", "keelson.log"), filepath.Join(m.data(), "up.json")} {
		if strings.Contains(files.Read(t, file), server.Secret()) {
			t.Errorf("%s contains the secret of the bucket", file)
		}
	}
	m.OK(t, "keelson", "down", "--delete-data")

	m.OK(t, toBucket...)
	user.Stdin = `{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: ClusterSnapshot, metadata: {name: found}, spec: {clusterName: inner, stored: ` + filepath.Base(location) + `}}`
	user.OK(t, "kubectl", "create", "-f", "-")
	user.OK(t, "keelson", "cluster", "create", "again", "--from", "found", "--wait")
	m.inner(t, "again").OK(t, "kubectl", "get", "configmap", "inside")
	user.OK(t, "kubectl", "delete", "clustersnapshot/found")
	if _, err := os.Stat(filepath.Join(copied, "snapshot.json")); err != nil {
		t.Errorf("the copy, which is not of this host: %v", err)
	}
	m.OK(t, "keelson", "down", "--delete-data")
}

// inner returns a shell with the kubeconfig of a Cluster.
func (m *machine) inner(t *testing.T, name string) transcript.Shell {
	t.Helper()
	user := m.withCluster()
	uid := user.OK(t, "kubectl", "get", "cluster/"+name, "-o", "jsonpath={.metadata.uid}")
	return transcript.Shell{Env: map[string]string{"HOME": m.home, "KUBECONFIG": filepath.Join(m.data(), "clusters", uid, "kubeconfig")}}
}

// killedRestore kills a restore while it prepares the data directory.
func (m *machine) killedRestore(t *testing.T, file string) {
	t.Helper()
	reached, block := m.path("reached"), m.path("block")
	script := "#!/bin/sh\necho $$ > " + reached + ".new\nmv " + reached + ".new " + reached + "\nexec sleep 600\n"
	if err := os.WriteFile(block, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	other := m.path("other", "data")
	slow := m.Shell
	slow.Env = map[string]string{"HOME": m.home, "KEELSON_KUBE": block}
	restore := slow.Start(t, "keelson", "restore", "--data-dir", other, file)
	transcript.Eventually(t, "the restore is running", func() bool { _, err := os.Stat(reached); return err == nil })
	transcript.Contains(t, m.Fails(t, 1, "keelson", "restore", "--data-dir", other, file), "another restore is running")
	restore.Signal(t, syscall.SIGKILL)
	tool, err := strconv.Atoi(strings.TrimSpace(files.Read(t, reached)))
	if err != nil {
		t.Fatal(err)
	}
	kill(t, tool)
	restore.Wait(t)
	transcript.Contains(t, m.Fails(t, 1, "keelson", "status", "--data-dir", other), "Keelson was never started in "+other)
	if _, err := os.Lstat(other); err == nil {
		t.Error("leftover data directory of a killed restore")
	}
	m.OK(t, "keelson", "restore", "--data-dir", other, file)
	m.OK(t, "keelson", "down", "--data-dir", other, "--delete-data")
}

// damagedRestore restores a truncated backup.
func (m *machine) damagedRestore(t *testing.T, file string) {
	t.Helper()
	whole, other := files.Read(t, file), m.path("other", "data")
	if err := os.WriteFile(m.path("part.backup"), []byte(whole[:len(whole)-100]), 0o600); err != nil {
		t.Fatal(err)
	}
	transcript.Contains(t, m.Fails(t, 1, "keelson", "restore", "--data-dir", other, m.path("part.backup")), "is not a backup of keelson, or is damaged")
	if entries, err := os.ReadDir(m.path("other")); err != nil || len(entries) > 0 {
		t.Errorf("leftovers: %v, %v", entries, err)
	}
}

// typed runs a block of commands.
func (m *machine) typed(t *testing.T, block string) {
	t.Helper()
	for line := range strings.Lines(block) {
		var words []string
		for word := range strings.FieldsSeq(line) {
			switch {
			case strings.HasPrefix(word, "~/"):
				word = m.path(word[2:])
			case word == "keelson.backup":
				word = m.path(word)
			}
			words = append(words, word)
		}
		if words[0] != "mv" {
			m.OK(t, words...)
		} else if err := os.Rename(words[1], words[2]); err != nil {
			t.Fatal(err)
		}
	}
}

// backupCommands returns the blocks of commands about keelson up in docs/backup.md.
func backupCommands(t *testing.T) []string {
	t.Helper()
	const page = "../../../docs/backup.md"
	_, section, found := strings.Cut(files.Read(t, page), "\n## An instance of keelson up\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := slices.DeleteFunc(transcript.Commands(t, page), func(block string) bool { return !strings.Contains(section, block) })
	if !found || len(blocks) != 2 {
		t.Fatalf("docs/backup.md has %d blocks of commands about keelson up", len(blocks))
	}
	return blocks
}

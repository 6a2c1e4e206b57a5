//go:build linux && versions

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/testing/writer"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestVersionsHosted upgrades a Cluster with three API servers and three members of etcd in Pods to the next minor version, while
// something writes.
func TestVersionsHosted(t *testing.T) {
	older, newer := versions(t)
	u := newUser(t)
	c := &tenant{user: u, kubeconfig: filepath.Join(u.home, "demo.kubeconfig")}
	config := filepath.Join(u.home, "keelson.yaml")
	images := fmt.Sprintf("apiVersion: config.keelson.dev/v1alpha1\nkind: KeelsonConfiguration\nclusters:\n  hostedImages: {%s: docker.io/library/kube:older, %s: docker.io/library/kube:newer}\n", older, newer)
	if err := os.WriteFile(config, []byte(images), 0o600); err != nil {
		t.Fatal(err)
	}
	u.OK(t, "keelson", "up", "--detach", "--node=real", "--vm-driver=fake", "--data-dir", u.data, "--config", config)
	u.loadKubeAs(t, "kube:older", "keelson-kube-"+older)
	u.loadKubeAs(t, "kube:newer", "keelson-kube")
	u.kubectl(t, "create", "namespace", "team")
	u.apply(t, strings.Replace(hostedCluster, "spec: {engine: hosted, hosted: {namespace: team}}", "spec: {engine: hosted, version: "+older+", hosted: {namespace: team, replicas: 3}}", 1))
	c.awaitCondition(t, "Ready")
	if err := os.WriteFile(c.kubeconfig, []byte(c.cluster(t, "kubeconfig", "demo")), 0o600); err != nil {
		t.Fatal(err)
	}
	u.allServe(t)
	w := writer.Start(t, func() kubernetes.Interface { return c.connect(t) }, "written")
	w.AwaitProgress(t)
	w.LongestPause()
	began := time.Now()
	c.patchSpec(t, `{"version":"`+newer+`"}`)
	c.awaitCondition(t, "Provisioned")
	u.Until(t, "it is upgraded", transcript.Is(newer), "kubectl", "get", "cluster", "demo", "-o", "jsonpath={.status.version}")
	t.Logf("upgraded after %.1f s", time.Since(began).Seconds())
	c.awaitCondition(t, "Ready")
	w.AwaitProgress(t)
	if pause := w.LongestPause(); pause > longestPause {
		t.Errorf("no write was acknowledged for %.1f s", pause.Seconds())
	} else {
		t.Logf("the longest pause is %.1f s, after %d writes", pause.Seconds(), w.Count())
	}
	if version := c.in(t, "version"); !strings.Contains(version, "Server Version: "+newer) {
		t.Errorf("the API says %s", version)
	}
	w.RequireAll(t, c.connect(t))
	c.patchSpec(t, `{"version":"`+older+`"}`)
	c.awaitCondition(t, "Provisioned=False")
	if said := c.field(t, "cluster/demo", `{.status.conditions[?(@.type=="Provisioned")]}`); !strings.Contains(said, "whose data "+older+" cannot read") {
		t.Errorf("a downgrade is refused with %s", said)
	}
	c.awaitCondition(t, "Ready")
}

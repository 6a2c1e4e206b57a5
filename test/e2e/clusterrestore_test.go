package e2e

import (
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A cluster gets its objects back from a snapshot, with the kubeconfig that it had, and again those that it had before. Its schedule makes
// snapshots, and keeps the last one.
func TestLongClusterRestore(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)
	keelson := func(verb string, args ...string) []string {
		return append([]string{"keelson", "cluster", verb, "--kubeconfig", kubeconfig}, args...)
	}
	s.OK(t, keelson("create", "rewound", "--wait")...)
	user := s.user(t, "rewound")
	user.kubectl(t, "create", "configmap", "kept", "--from-literal", "a=b")
	s.OK(t, keelson("snapshot", "rewound", "--name", "rewound-before", "--wait")...)
	user.kubectl(t, "delete", "configmap", "kept")
	user.kubectl(t, "create", "configmap", "later", "--from-literal", "a=b")
	transcript.Contains(t, s.Fails(t, 1, keelson("restore", "rewound", "--snapshot", "missing", "--wait", "--timeout", "20s")...), "there is no ClusterSnapshot missing")

	began := time.Now()
	s.OK(t, keelson("restore", "rewound", "--snapshot", "rewound-before", "--wait")...)
	t.Logf("restored after %v", time.Since(began).Round(time.Millisecond))
	user.kubectl(t, "get", "configmap", "kept")
	transcript.Contains(t, user.Fails(t, 1, "kubectl", "get", "configmap", "later"), "not found")
	s.wait(t, "condition=Restored", "cluster/rewound")
	previous := s.field(t, "cluster/rewound", "{.status.restore.previous}")
	s.OK(t, keelson("restore", "rewound", "--snapshot", previous, "--wait")...)
	user.kubectl(t, "get", "configmap", "later")
	user.kubectl(t, "create", "deployment", "web", "--image", "nginx")
	user.wait(t, "condition=Available", "deployment/web")

	s.kubectl(t, "patch", "cluster", "rewound", "--type=merge", "-p", `{"spec":{"snapshots":{"schedule":"@every 2s","keep":1}}}`)
	const name = "{.status.snapshots.lastSnapshot}"
	s.kubectl(t, "wait", "cluster/rewound", "--for=jsonpath="+name, "--timeout", transcript.WaitTimeout.String())
	first := s.field(t, "cluster/rewound", name)
	s.kubectl(t, "wait", "clustersnapshot/"+first, "--for=delete", "--timeout", transcript.WaitTimeout.String()) // after the next one
	s.kubectl(t, "patch", "cluster", "rewound", "--type=merge", "-p", `{"spec":{"snapshots":{"suspend":true}}}`)
	s.OK(t, keelson("delete", "rewound", "--wait")...)
	s.kubectl(t, "delete", "clustersnapshots", "--selector", "cluster.x-k8s.io/cluster-name=rewound")
	s.kubectl(t, "delete", "clustersnapshot", "rewound-before")
}

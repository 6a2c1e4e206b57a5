package e2e

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A user with the permission reaches the API of a Cluster through the API that has it, and is its admin there.
func TestLongAccessToAClusterByProxy(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)
	const cluster, user = "proxied", "proxy-user"
	s.Stdin = `apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata: {name: ` + cluster + `}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ` + user + `}
rules: [{apiGroups: [access.cloudnative.tw], resources: [clusters/proxy], verbs: [create, delete, get, patch, update]}]
`
	s.kubectl(t, "create", "-f", "-")
	s.Stdin = ""
	t.Cleanup(func() { s.Run(t, "kubectl", "delete", "cluster/"+cluster, "clusterrole/"+user, "--wait=false") })
	s.kubectl(t, "create", "clusterrolebinding", user, "--clusterrole="+user, "--user="+user)
	t.Cleanup(func() { s.Run(t, "kubectl", "delete", "clusterrolebinding", user) })
	server := s.kubectl(t, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}") +
		"/apis/access.cloudnative.tw/v1alpha1/clusters/" + cluster + "/proxy"
	through := func(args ...string) []string {
		return append([]string{"kubectl", "--server", server, "--as", user}, args...)
	}

	s.wait(t, "condition=Ready", "cluster/"+cluster)
	s.Until(t, "the user reaches the Cluster", func(text string) bool { return strings.Contains(text, cluster+"-admin") },
		through("auth", "whoami")...)
	if result := s.Run(t, "kubectl", "--server", server, "--as", "nobody", "get", "--raw", "/version"); !strings.Contains(result.Stderr, "cannot get resource \"clusters/proxy\"") {
		t.Errorf("a user without the permission: %+v", result)
	}
	watch := s.Start(t, through("get", "configmaps", "--watch", "--no-headers")...)
	watch.Await(t, "kube-root-ca.crt")
	s.OK(t, through("create", "configmap", "seen", "--from-literal=key=value")...)
	watch.Await(t, "seen")
	transcript.Contains(t, s.OK(t, through("patch", "configmap", "seen", "-p", `{"data":{"key":"changed"}}`)...), "patched")
	s.OK(t, through("delete", "configmap", "seen")...)

	// The Pod is on a simulated node, which says so when a connection for exec is upgraded.
	s.OK(t, through("run", "pod", "--image=busybox")...)
	s.OK(t, through("wait", "--for=condition=Ready", "pod/pod", "--timeout=2m")...)
	if result := s.Run(t, through("exec", "pod", "--", "true")...); !strings.Contains(result.Stderr, "simulated node") {
		t.Errorf("exec: %+v", result)
	}
	transcript.Contains(t, s.OK(t, through("logs", "pod", "--follow")...), "simulated node")

	if result := s.Run(t, "kubectl", "--server", strings.Replace(server, cluster, "nothing", 1), "--as", user, "get", "--raw", "/version"); !strings.Contains(result.Stderr, "Cluster nothing does not exist") {
		t.Errorf("a Cluster that does not exist: %+v", result)
	}
	s.kubectl(t, "patch", "cluster", cluster, "--type=merge", "-p", `{"spec":{"running":false}}`)
	s.wait(t, "jsonpath={.status.phase}=Stopped", "cluster/"+cluster)
	if result := s.Run(t, through("get", "nodes")...); !strings.Contains(result.Stderr, "its API cannot be reached now: The cluster is stopped") {
		t.Errorf("a Cluster that is stopped: %+v", result)
	}
}

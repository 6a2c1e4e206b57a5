package controlplane

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestKubeconfigs(t *testing.T) {
	t.Parallel()
	dir := newLayout(t)
	mustEnsure(t, dir, t0)
	if err := writeKubeconfigs(dir, defaultName, serverURL("", 20001), 0); err != nil {
		t.Fatal(err)
	}
	files := contents(t, dir.path("pki"))
	cluster := &clientcmdapi.Cluster{Server: "https://127.0.0.1:20001", CertificateAuthorityData: []byte(files["ca.crt"])}
	want := map[string]*clientcmdapi.AuthInfo{
		// The administrator's can be copied to where the files are not.
		dir.kubeconfig(): {ClientCertificateData: []byte(files["admin.crt"]), ClientKeyData: []byte(files["admin.key"])},
		// The components' refer to files, which they read again when these change.
		dir.userFile(nameControllerManager): {ClientCertificate: dir.pki("kube-controller-manager.crt"), ClientKey: dir.pki("kube-controller-manager.key")},
		dir.userFile(nameScheduler):         {ClientCertificate: dir.pki("kube-scheduler.crt"), ClientKey: dir.pki("kube-scheduler.key")},
		dir.userFile(nameKwok):              {ClientCertificate: dir.pki("kwok.crt"), ClientKey: dir.pki("kwok.key")},
	}
	for path, user := range want {
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := clientcmd.ConfirmUsable(*config, ""); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		current := config.Contexts[config.CurrentContext]
		got := struct {
			Cluster *clientcmdapi.Cluster
			User    *clientcmdapi.AuthInfo
		}{config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]}
		got.Cluster.LocationOfOrigin, got.User.LocationOfOrigin = "", ""
		got.Cluster.Extensions, got.User.Extensions = nil, nil
		if diff := cmp.Diff(cluster, got.Cluster); diff != "" {
			t.Errorf("cluster in %s (-want +got):\n%s", path, diff)
		}
		if diff := cmp.Diff(user, got.User); diff != "" {
			t.Errorf("user in %s (-want +got):\n%s", path, diff)
		}
	}
}

// A kubeconfig that says the right thing is left alone, so that nobody who watches the file is woken.
func TestKubeconfigsAreOnlyWrittenWhenTheyChange(t *testing.T) {
	t.Parallel()
	dir := newLayout(t)
	mustEnsure(t, dir, t0)
	var infos []os.FileInfo
	for _, port := range []int{20001, 20001, 20002} {
		if err := writeKubeconfigs(dir, defaultName, serverURL("", port), 0); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir.kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if !os.SameFile(infos[0], infos[1]) {
		t.Error("the kubeconfig was written again although nothing has changed")
	}
	if os.SameFile(infos[1], infos[2]) {
		t.Error("the kubeconfig was not written again although the port has changed")
	}
	config, err := clientcmd.BuildConfigFromFlags("", dir.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if own := clientConfig(dir, serverURL("", 20002), 0); config.Host != "https://127.0.0.1:20002" || own.Host != config.Host || own.QPS != -1 {
		t.Errorf("host %s, and %s with %v requests a second for us; want the new port and no throttling", config.Host, own.Host, own.QPS)
	}
}

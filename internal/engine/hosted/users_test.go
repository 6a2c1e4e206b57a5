package hosted

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// trusts reports whether kube-apiserver trusts the CA in a file of the Secret.
func (f found) trusts(file string) bool {
	authority := f.secret.Data[file]
	return len(authority) > 0 && bytes.Contains(f.secret.Data[clientsKey], authority)
}

// filesOf returns the names of the files of users in the Secret.
func (f found) filesOf(user string) (all []string) {
	for file := range f.secret.Data {
		if strings.HasPrefix(file, "user-"+user+"-") {
			all = append(all, file)
		}
	}
	slices.Sort(all)
	return all
}

func TestUsersComeAndGo(t *testing.T) {
	f := newFixture(t)
	f.request.Name = strings.Repeat("a", 253)
	before := f.apply()
	if !before.trusts("ca.crt") || !before.trusts(administrator("").Authority()+".crt") {
		t.Error("the components and the administrator have no access")
	}
	f.request.Spec.Users = []v1alpha1.ClusterUser{{Name: "alice", Groups: []string{"dev"}}, {Name: "bob"}}
	if f.observe().Attended {
		t.Error("nobody is asked to make credentials")
	}
	with := f.apply()
	alice := with.filesOf("alice")
	if len(alice) != 4 || !with.trusts(alice[0]) || len(with.filesOf("bob")) != 4 {
		t.Errorf("the Secret has %v", alice)
	}
	if seen := f.observe(); !seen.Attended || len(seen.Users) > 0 || seen.Poll != poll {
		t.Errorf("an API that does not run yet has accepted nobody, but Observe returns %+v", seen)
	}
	f.request.Spec.Users = []v1alpha1.ClusterUser{{Name: "alice", Groups: []string{"dev"}, RotateRequestedAt: &metav1.Time{Time: noon}}}
	f.observe() // not attended either
	without := f.apply()
	if files := without.filesOf("alice"); len(files) != 4 || slices.Contains(alice, files[0]) || len(without.filesOf("bob")) > 0 {
		t.Errorf("the Secret has %v of the new alice, %v of the old one, %v of bob", files, alice, without.filesOf("bob"))
	}
	if bytes.Contains(without.secret.Data[clientsKey], with.secret.Data[alice[0]]) {
		t.Error("the credentials of before are trusted")
	}
	if diff := cmp.Diff(before.deployment.Spec.Template, without.deployment.Spec.Template); diff != "" {
		t.Errorf("users restart the API (-before +after):\n%s", diff)
	}
}

func TestRotation(t *testing.T) {
	f := newFixture(t)
	f.apply()
	first := administrator("").Authority() + ".crt"
	rotate := func(token string) found {
		t.Helper()
		f.request.Rotation = token
		now := f.apply()
		if seen := f.observe(); seen.Rotated != token || !seen.Attended {
			t.Errorf("after the rotation %q Observe returns %+v", token, seen)
		}
		return now
	}
	second := rotate("a")
	if !second.trusts(first) || !second.trusts(administrator("a").Authority()+".crt") {
		t.Error("during the overlap, not both credentials are trusted")
	}
	if _, kept := second.secret.Data[administrator("").Certificate()+".key"]; kept {
		t.Error("the key of before is kept")
	}
	f.clock.SetTime(noon.Add(v1alpha1.DefaultCredentialsOverlap + time.Second))
	if f.observe().Attended {
		t.Error("the overlap is over, and nobody is asked to end it")
	}
	if after := f.apply(); after.trusts(first) {
		t.Error("the credentials of before are trusted after the overlap")
	}
	if third := rotate("b"); third.trusts(first) || !third.trusts(administrator("a").Authority()+".crt") {
		t.Error("the second rotation trusts others than the first two credentials")
	}
	f.request.Rotation = "" // who removes the request does not go back
	if seen := f.observe(); seen.Rotated != "b" || !seen.Attended {
		t.Errorf("Observe returns %+v", seen)
	}
}

package vm

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no source", []string{"add", "a"}, "one of --url and --file"},
		{"two sources", []string{"add", "a", "--url", "https://a/b", "--file", "c"}, "one of --url and --file"},
		{"an unverified download", []string{"add", "a", "--url", "https://a/b"}, "--url needs --sha256"},
		{"a verified file", []string{"add", "a", "--file", "b", "--sha256", digest}, "--sha256 goes with --url"},
		{"no name", []string{"add", "--file", "b"}, "takes one NAME"},
		{"an unknown distribution", []string{"build", "gentoo"}, "takes one distribution: debian"},
		{"an unknown release", []string{"build", "debian", "--suite", "buzz"}, "must be trixie or bookworm"},
		{"a package that is an option", []string{"build", "debian", "--package", "git,--hook=x"}, `"--hook=x" is not the name of a package`},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := New(&Builder{})
			cmd.SetArgs(append([]string{"image"}, test.args...))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: %v, want %q", err, test.want)
			}
		})
	}
}

func TestStoppedInstance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cmd := New(&Builder{})
	cmd.SetArgs([]string{"image", "list", "--data-dir", dir})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "start it with `keelson up --data-dir "+dir+"`") {
		t.Errorf("error: %v", err)
	}
}

func TestImageName(t *testing.T) {
	for _, test := range []struct {
		suite    string
		packages []string
		want     string
	}{
		{"trixie", nil, "debian-13"},
		{"bookworm", nil, "debian-12"},
		{"trixie", []string{"git", "g++", "libstdc++6"}, "debian-13-custom"},
	} {
		if got, err := imageName(test.suite, test.packages); err != nil || got != test.want {
			t.Errorf("%s %v: %s, %v, want %s", test.suite, test.packages, got, err, test.want)
		}
	}
}

// newAPI returns a client of an API with these objects.
func newAPI(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func image(name string, status metav1.ConditionStatus, reason, message string) *v1alpha1.VirtualMachineImage {
	size, disk := resource.MustParse("306Mi"), resource.MustParse("4Gi")
	return &v1alpha1.VirtualMachineImage{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0))},
		Spec:       v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{Path: "/" + name}},
		Status: v1alpha1.VirtualMachineImageStatus{
			Size: &size, VirtualSize: &disk, Users: 2,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message}},
		},
	}
}

func TestAdd(t *testing.T) {
	ready, failed := image("ready", "True", "Imported", "It is"), image("failed", "False", "ImportFailed", "No route to host")
	for _, test := range []struct {
		name   string
		image  string
		path   string
		waits  bool
		output string
		failed string
	}{
		{"a new one", "new", "/new", false, "virtualmachineimage/new created\n", ""},
		{"repeated", "ready", "/ready", false, "virtualmachineimage/ready unchanged\n", ""},
		{"it is ready", "ready", "/ready", true, "virtualmachineimage/ready unchanged\nvirtualmachineimage/ready is ready, 306Mi\n", ""},
		{"another source", "ready", "/other", false, "", "another source"},
		{"it has failed", "failed", "/failed", true, "virtualmachineimage/failed unchanged\n", "ImportFailed: No route to host"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, progress bytes.Buffer
			spec := v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{Path: test.path}}
			images := &object.Objects[*v1alpha1.VirtualMachineImage]{Client: newAPI(t, ready.DeepCopy(), failed.DeepCopy()), Kind: imageKind}
			err := add(t.Context(), images, imageOf(test.image, spec), test.waits, &object.Output{}, &out, &progress)
			if (err == nil) != (test.failed == "") || err != nil && !strings.Contains(err.Error(), test.failed) {
				t.Errorf("error: %v, want %q", err, test.failed)
			}
			if diff := cmp.Diff(test.output, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	user := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "work", Name: "one"},
		Spec:       v1alpha1.VirtualMachineSpec{Image: &v1alpha1.Image{Name: "used"}},
	}
	api := newAPI(t, image("used", "True", "Imported", "It is"), image("unused", "True", "Imported", "It is"), user)
	for name, want := range map[string]string{"used": "work/one. Delete them first", "unused": "", "none": `there is no image "none"`} {
		var out bytes.Buffer
		err := remove(t.Context(), api, name, &out)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
		if want == "" && out.String() != "virtualmachineimage/unused deleted\n" {
			t.Errorf("%s: output %q", name, out.String())
		}
	}
}

package rke_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

func TestRemoval(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(*user)
		calls   []string
		note    string
	}{
		{"of a cluster that was made", func(*user) {}, []string{"rke remove --force --config aws.yml"}, ""},
		{
			"the configuration was deleted: it is put back", func(u *user) { u.must(os.Remove(u.config)) },
			[]string{"rke remove --force --config aws.yml"}, "",
		},
		{
			"everything of the user's was deleted", func(u *user) { u.must(os.RemoveAll(u.dir)) },
			[]string{"rke remove --force --config aws.yml"}, "",
		},
		{
			"the engine's part was deleted", func(u *user) {
				u.must(u.engine.Close())
				u.must(os.RemoveAll(u.opts.Dir))
				u.restart()
			},
			[]string{"rke remove --force --config aws.yml"}, "",
		},
		{
			"both were deleted", func(u *user) {
				u.must(u.engine.Close())
				u.must(os.RemoveAll(u.opts.Dir))
				u.must(os.RemoveAll(u.dir))
				u.restart()
			},
			nil, "the hosts of the cluster were not cleaned",
		},
		{
			"a host cannot be reached", func(u *user) { u.write("unreachable: 10.18.74.175") },
			[]string{"rke remove --force --config aws.yml"}, "hosts may not be clean: Failed to set up SSH tunneling for host [10.18.74.175]",
		},
		{
			"the record of an earlier removal cannot be read", func(u *user) {
				u.must(u.engine.Close())
				record := filepath.Join(u.opts.Dir, string(u.request.UID), "processes", "remove", "record.json")
				u.must(os.MkdirAll(filepath.Dir(record), 0o700))
				u.must(os.WriteFile(record, []byte("{"), 0o600))
				u.restart()
			},
			[]string{"rke remove --force --config aws.yml"}, "",
		},
		{"by a manager that was started again", func(u *user) { u.restart() }, []string{"rke remove --force --config aws.yml"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUser(newSite(t))
			if seen := u.up(); !seen.Applied {
				t.Fatalf("%+v", seen.Operation)
			}
			u.must(os.Remove(filepath.Join(u.dir, "aws.calls")))
			tt.prepare(u)
			seen := u.remove()
			if seen.Exists {
				t.Errorf("something exists: %+v", seen)
			}
			u.expectCalls(tt.calls...)
			if notes := strings.Join(seen.Notes, "\n"); !strings.Contains(notes, tt.note) || tt.note == "" && notes != "" {
				t.Errorf("the notes are %q, want %q", notes, tt.note)
			}
			// Once, also when it is asked for again.
			u.must(u.engine.Delete(t.Context(), u.request))
			u.settle()
			u.expectCalls(tt.calls...)
			u.must(u.engine.Abandon(t.Context(), u.request))
			if left := u.left(u.request); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if strings.Contains(tt.name, "put back") {
				if _, err := os.Stat(u.config); !os.IsNotExist(err) {
					t.Errorf("the configuration that was put back is still there: %v", err)
				}
			}
		})
	}
}

func TestARemovalThatFailsIsTold(t *testing.T) {
	u := newUser(newSite(t))
	u.up()
	u.write(`removeFail: "Failed to remove etcd"`)
	seen := u.remove()
	if o := seen.Operation; !seen.Exists || o == nil || !o.Delete || o.State != v1alpha1.OperationFailed || !strings.Contains(o.Description, "Failed to remove etcd") {
		t.Errorf("%+v, %+v", seen, o)
	}
	u.write("")
	if seen := u.remove(); seen.Exists {
		t.Errorf("another attempt: %+v, %+v", seen, seen.Operation)
	}
}

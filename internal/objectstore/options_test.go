package objectstore

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	const keys = "/etc/keelson/s3"
	for _, test := range []struct {
		options Options
		want    string // part of the error; empty means that there is none
	}{
		{Options{}, ""},
		{Options{Location: "/mnt/backup/keelson"}, ""},
		{Options{Location: "/mnt/backup/"}, ""},
		{Options{Location: "backup"}, "absolute path"},
		{Options{Location: "/"}, "directory of its own"},
		{Options{Location: "//"}, "directory of its own"},
		{Options{Location: "ftp://host/a"}, "s3://BUCKET/PREFIX"},
		{Options{Location: "/mnt/backup", Credentials: keys}, "only for a bucket"},
		{Options{CA: keys}, "only for a bucket"},
		{Options{Location: "s3://backups", Credentials: keys}, ""},
		{Options{Location: "s3://backups/a/b/", Credentials: keys, CA: "/etc/ca.pem"}, ""},
		{Options{Location: "s3://backups/a?region=eu-central-1&endpoint=https://s3.example.com:9000", Credentials: keys}, ""},
		{Options{Location: "s3://backups?endpoint=http://10.0.0.1:9000/", Credentials: keys}, ""},
		{Options{Location: "s3://backups"}, "snapshotStore.credentials: is required"},
		{Options{Location: "s3://backups", Credentials: "s3"}, "snapshotStore.credentials: must be an absolute path"},
		{Options{Location: "s3://backups", Credentials: keys, CA: "ca.pem"}, "snapshotStore.ca: must be an absolute path"},
		{Options{Location: "s3://", Credentials: keys}, "name of a bucket"},
		{Options{Location: "s3://Up_per/a", Credentials: keys}, "name of a bucket"},
		{Options{Location: "s3://backups/../a", Credentials: keys}, "prefix"},
		{Options{Location: "s3://backups/a//b", Credentials: keys}, "prefix"},
		{Options{Location: "s3://id:secret@backups/a", Credentials: keys}, "must not contain credentials"},
		{Options{Location: "s3://backups?endpoint=secret.example.com", Credentials: keys}, "endpoint must be"},
		{Options{Location: "s3://backups?endpoint=https://id:secret@host", Credentials: keys}, "endpoint must be"},
		{Options{Location: "s3://backups?endpoint=https://host/secret", Credentials: keys}, "endpoint must be"},
		{Options{Location: "s3://backups?key=secret", Credentials: keys}, "the query may have"},
		{Options{Location: "s3://backups?region=a&region=b", Credentials: keys}, "the query may have"},
		{Options{Location: "s3://backups?region=%zz", Credentials: keys}, "query"},
	} {
		err := test.options.Validate()
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%+v: %v, want %q", test.options, err, test.want)
		case err != nil && (strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "snapshotStore.")):
			t.Errorf("the message: %v", err)
		}
	}
}

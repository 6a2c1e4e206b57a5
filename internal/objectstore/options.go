package objectstore

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/spf13/pflag"
)

// Options select a store.
type Options struct {
	// Location is the absolute path of a directory, or s3://BUCKET/PREFIX, with endpoint=URL and region=REGION as the query. Without an
	// endpoint, it is a bucket of AWS. Empty: there is no store.
	Location string
	// Credentials is the absolute path of a file with the credentials for a bucket, in the format of the AWS tools.
	Credentials string
	// CA is the absolute path of a file with the certificates of authorities that sign that of the server, besides those of the system.
	CA string
}

// AddFlag adds the flag of the location, with the present value as default.
func (o *Options) AddFlag(fs *pflag.FlagSet) {
	fs.StringVar(&o.Location, "snapshot-store", o.Location,
		"`location` off this host to which ClusterSnapshots are copied: an existing directory, such as one in a mount, or a bucket, "+
			"s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION (default of endpoint: AWS; of region: the server is asked)")
}

// Validate returns what is wrong with the options; nil if nothing is. It looks at nothing but the text. Errors do not quote a location:
// somebody may have put credentials in it.
func (o Options) Validate() error {
	if strings.HasPrefix(o.Location, s3Scheme) {
		for flag, file := range map[string]string{"credentials": o.Credentials, "ca": o.CA} {
			if file != "" && !filepath.IsAbs(file) {
				return fmt.Errorf("snapshotStore.%s: must be an absolute path", flag)
			}
		}
		if o.Credentials == "" {
			return errors.New("snapshotStore.credentials: is required for a bucket")
		}
		_, err := parseBucket(o.Location)
		return err
	}
	if o.Credentials != "" || o.CA != "" {
		return errors.New("snapshotStore.credentials, snapshotStore.ca: are only for a bucket, snapshotStore.location: s3://BUCKET/PREFIX")
	}
	if o.Location == "" {
		return nil
	}
	return checkDir(o.Location)
}

// Open returns the store; nil if there is none. It reads the file of CA, and looks at nothing else.
func (o Options) Open() (Store, error) {
	if err := o.Validate(); err != nil || o.Location == "" {
		return nil, err
	}
	if strings.HasPrefix(o.Location, s3Scheme) {
		return newS3(o, stallTimeout)
	}
	return newDir(o.Location), nil
}

const s3Scheme = "s3://"

// bucket is the place that a location of a bucket names.
type bucket struct {
	name, prefix, region string
	// endpoint is the URL of the server; nil means that of AWS.
	endpoint *url.URL
}

func parseBucket(location string) (bucket, error) {
	wrong := func(why string) (bucket, error) { return bucket{}, errors.New("snapshotStore.location: " + why) }
	place, err := url.Parse(location)
	if err != nil || place.User != nil || place.Fragment != "" || place.Opaque != "" {
		return wrong("must be s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION, and must not contain credentials")
	}
	b := bucket{name: place.Host, prefix: strings.Trim(place.Path, "/")}
	if s3utils.CheckValidBucketNameStrict(b.name) != nil {
		return wrong("the part after s3:// is not a valid name of a bucket")
	}
	if b.prefix != "" && (path.Clean("/"+b.prefix) != "/"+b.prefix || s3utils.CheckValidObjectName(b.prefix) != nil) {
		return wrong("the prefix after the name of the bucket must be a path without ., .. and empty parts")
	}
	query, err := url.ParseQuery(place.RawQuery)
	if err != nil {
		return wrong("the query is not valid")
	}
	b.region = query.Get("region")
	for name, values := range query {
		if name != "endpoint" && name != "region" || len(values) != 1 || values[0] == "" {
			return wrong("the query may have endpoint=URL and region=REGION, once each")
		}
	}
	if query.Has("endpoint") {
		b.endpoint, err = url.Parse(query.Get("endpoint"))
		if err != nil || b.endpoint.Host == "" || b.endpoint.User != nil || b.endpoint.Scheme != "https" && b.endpoint.Scheme != "http" ||
			strings.Trim(b.endpoint.Path, "/") != "" || b.endpoint.RawQuery != "" {
			return wrong("endpoint must be https://HOST:PORT, without a path and credentials (http:// for a connection without TLS)")
		}
	}
	return b, nil
}

package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/confine"
)

// The version and the kind of the file of --config.
const (
	ConfigurationVersion = "config.keelson.dev/v1alpha1"
	ConfigurationKind    = "KeelsonConfiguration"
)

// AddConfigFlag adds --config to fs. ReadConfig reads the file.
func (o *Options) AddConfigFlag(fs *pflag.FlagSet) {
	fs.StringVar(&o.Config, "config", o.Config, "`file` with a "+ConfigurationKind+", the options that have no flag; see keelson config")
}

// ReadConfig sets the options in the file of --config. Flags that are given come before the file.
func (o *Options) ReadConfig(given *pflag.FlagSet) error {
	if o.Config == "" {
		return nil
	}
	data, err := os.ReadFile(o.Config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	restore := keepFlags(given)
	if err := o.decode(data); err != nil {
		return fmt.Errorf("--config=%s: %w", o.Config, err)
	}
	return restore()
}

// keepFlags returns a function that sets the flags that are given to their present values again.
func keepFlags(fs *pflag.FlagSet) func() error {
	lists, texts := map[pflag.SliceValue][]string{}, map[pflag.Value]string{}
	fs.Visit(func(flag *pflag.Flag) {
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			lists[list] = append([]string{}, list.GetSlice()...)
			return
		}
		if flag.Value.Type() != "strings" { // --namespaces adds to what there is, and is not in the file
			texts[flag.Value] = flag.Value.String()
		}
	})
	return func() error {
		for list, values := range lists {
			if err := list.Replace(values); err != nil {
				return err
			}
		}
		for value, text := range texts {
			if err := value.Set(text); err != nil {
				return err
			}
		}
		return nil
	}
}

// decode sets the options in the text of a configuration, which must not have other fields.
func (o *Options) decode(data []byte) error {
	kind := metav1.TypeMeta{}
	if err := yaml.Unmarshal(data, &kind); err != nil {
		return err
	}
	if kind.APIVersion != ConfigurationVersion || kind.Kind != ConfigurationKind {
		return fmt.Errorf("must begin with apiVersion: %s and kind: %s; got %q and %q", ConfigurationVersion, ConfigurationKind, kind.APIVersion, kind.Kind)
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(text, o.configuration())
	return errors.Join(append(unknown, err)...)
}

// Configuration returns the options as the text of a configuration.
func (o *Options) Configuration() ([]byte, error) { return yaml.Marshal(o.configuration()) }

// configuration is the file of --config. Its fields are those of Options, to which they point: a field that is not in the file
// keeps its default.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	VirtualMachines machinesFile `json:"virtualMachines"`
	Clusters        clustersFile `json:"clusters"`
	CronTabs        cronTabsFile `json:"crontabs"`
	SnapshotStore   storeFile    `json:"snapshotStore"`
	Access          accessFile   `json:"access"`
	Metrics         metricsFile  `json:"metrics"`
	Tracing         tracingFile  `json:"tracing"`
	Preflight       timeoutFile  `json:"preflight"`
	Logging         loggingFile  `json:"logging"`
}

type machinesFile struct {
	Accelerator        *string            `json:"accelerator"`
	CPUAllocationRatio *int64             `json:"cpuAllocationRatio"`
	DockerHost         *string            `json:"dockerHost"`
	Egress             *string            `json:"egress"`
	EgressNetworks     *[]string          `json:"egressNetworks"`
	GuestDir           *string            `json:"guestDir"`
	ImageDirs          *confine.Dirs      `json:"imageDirs"`
	ImageKeep          *duration          `json:"imageKeep"`
	ImageMaxSize       *resource.Quantity `json:"imageMaxSize"`
	ImageNetworks      *[]string          `json:"imageNetworks"`
	ImageTimeout       *duration          `json:"imageTimeout"`
	InstantStart       *string            `json:"instantStart"`
	KVMGroup           *int64             `json:"kvmGroup"`
	KVMResource        *string            `json:"kvmResource"`
	MaxRootDisk        *resource.Quantity `json:"maxRootDisk"`
	NetworkRange       *[]string          `json:"networkRange"`
	PublishAddress     *string            `json:"publishAddress"`
	ServiceAddress     *string            `json:"serviceAddress"`
	StateMax           *resource.Quantity `json:"stateMax"`
	UIDRange           *string            `json:"uidRange"`
}

type clustersFile struct {
	AddressAllow  *[]string          `json:"addressAllow"`
	HostedImages  *map[string]string `json:"hostedImages"`
	RealNodes     *bool              `json:"realNodes"`
	RKEConfigDirs *confine.Dirs      `json:"rkeConfigDirs"`
	RKETimeout    *duration          `json:"rkeTimeout"`
}

type cronTabsFile struct {
	PingNetworks *[]string `json:"pingNetworks"`
}

type storeFile struct {
	Location    *string `json:"location"`
	Credentials *string `json:"credentials"`
	CA          *string `json:"ca"`
}

type accessFile struct {
	ServiceNamespace *string `json:"serviceNamespace"`
}

type metricsFile struct {
	CertDir   *string `json:"certDir"`
	Profiling *bool   `json:"profiling"`
	Secure    **bool  `json:"secure"`
}

type tracingFile struct {
	Endpoint *string `json:"endpoint"`
}

type loggingFile struct {
	Format *string `json:"format"`
}

type timeoutFile struct {
	Timeout *duration `json:"timeout"`
}

func (o *Options) configuration() *configuration {
	m := &o.Machines
	return &configuration{
		TypeMeta: metav1.TypeMeta{APIVersion: ConfigurationVersion, Kind: ConfigurationKind},
		VirtualMachines: machinesFile{
			Accelerator: &m.Accelerator, CPUAllocationRatio: &m.CPUAllocationRatio, DockerHost: &m.DockerHost, Egress: &m.Egress, EgressNetworks: own(&m.EgressNetworks),
			GuestDir: &m.GuestDir, ImageDirs: own(&m.ImageDirs), ImageKeep: (*duration)(&m.ImageKeep), ImageMaxSize: &m.MaxImageSize,
			ImageNetworks: own(&m.ImageNetworks), ImageTimeout: (*duration)(&m.ImageTimeout), InstantStart: &m.InstantStart, KVMGroup: &m.KVMGroup,
			KVMResource: &m.KVMResource, MaxRootDisk: &m.MaxRootDisk, NetworkRange: own(&m.NetworkRange), PublishAddress: &m.PublishAddress,
			ServiceAddress: &m.ServiceAddress, StateMax: &m.MaxSaved, UIDRange: &m.Users,
		},
		Clusters: clustersFile{
			AddressAllow: own(&o.ClusterAddresses), HostedImages: &o.ClusterHostedImages, RealNodes: &o.ClusterRealNodes, RKEConfigDirs: own(&o.RKEConfigDirs), RKETimeout: (*duration)(&o.RKETimeout),
		},
		CronTabs:      cronTabsFile{PingNetworks: own(&o.PingNetworks)},
		SnapshotStore: storeFile{Location: &o.SnapshotStore.Location, Credentials: &o.SnapshotStore.Credentials, CA: &o.SnapshotStore.CA},
		Access:        accessFile{ServiceNamespace: &o.Access.ServiceNamespace},
		Metrics:       metricsFile{CertDir: &o.Serving.CertDir, Profiling: &o.Serving.Profiling, Secure: &o.Serving.Secure},
		Tracing:       tracingFile{Endpoint: &o.TracingEndpoint},
		Preflight:     timeoutFile{Timeout: (*duration)(&o.PreflightTimeout)},
		Logging:       loggingFile{Format: &o.Logging.Format},
	}
}

// own gives a list an array of its own: decoding writes into the array, and defaults such as confine.Anywhere share theirs. An
// empty list is [] in a file, not null.
func own[L ~[]string](list *L) *L {
	*list = append(L{}, *list...)
	return list
}

// duration is a time.Duration that JSON has as a text, such as 6h.
type duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is not a duration such as 30m", data)
	}
	parsed, err := time.ParseDuration(text)
	*d = duration(parsed)
	return err
}

package election

import (
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/manager/flags"
)

// Options configure leader election. NewOptions returns the defaults.
type Options struct {
	// Enabled turns leader election on. Nil: on if the manager runs in the cluster that it manages, otherwise off.
	// Complete sets it.
	Enabled *bool
	// LockName and LockNamespace name the Lease. An empty namespace means that of the
	// manager's Pod, and outside of a Pod keelson-system.
	LockName      string
	LockNamespace string
	// Identity is the unique name of this replica in the Lease. Empty: host name and a random suffix.
	Identity string
	// LeaseDuration is how long other replicas wait after the last renewal before they take over.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader retries a renewal of its Lease before it stops.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two attempts to acquire or renew the Lease.
	RetryPeriod time.Duration
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{
		LockName:      "keelson",
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
	}
}

// AddFlags adds a flag for every option to fs, with the present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	flags.OptionalBool(fs, &o.Enabled, "leader-elect",
		"run the controllers in only one of several replicas (default: true in a Pod, otherwise false)")
	fs.StringVar(&o.LockName, "lease-lock-name", o.LockName, "name of the Lease of the leader election")
	fs.StringVar(&o.LockNamespace, "lease-lock-namespace", o.LockNamespace,
		"namespace of the Lease (default: the namespace of the Pod, otherwise keelson-system)")
	fs.StringVar(&o.Identity, "holder-identity", o.Identity,
		"name of this replica in the Lease (default: host name and a random suffix)")
	fs.DurationVar(&o.LeaseDuration, "lease-duration", o.LeaseDuration,
		"how long other replicas wait after the last renewal before they take over")
	fs.DurationVar(&o.RenewDeadline, "renew-deadline", o.RenewDeadline,
		"how long a leader retries a renewal of its Lease before it stops")
	fs.DurationVar(&o.RetryPeriod, "retry-period", o.RetryPeriod,
		"time between two attempts to acquire or renew the Lease")
}

// Complete sets Enabled to enabled, and Identity to a unique one, unless they are set.
func (o *Options) Complete(enabled bool) error {
	if o.Enabled == nil {
		o.Enabled = &enabled
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the name of this host for --holder-identity: %w", err)
		}
		o.Identity = host + "_" + uuid.NewString()
	}
	return nil
}

// Validate calls report for each invalid option, with the name and the value of its flag and a format of the reason.
func (o *Options) Validate(report func(flag string, value any, why string, args ...any)) {
	if problems := validation.IsDNS1123Subdomain(o.LockName); len(problems) > 0 {
		report("lease-lock-name", o.LockName, "is not a valid name of a Lease: %s", problems[0])
	}
	if o.LockNamespace != "" {
		if problems := validation.IsDNS1123Label(o.LockNamespace); len(problems) > 0 {
			report("lease-lock-namespace", o.LockNamespace, "is not a valid namespace: %s", problems[0])
		}
	}
	if o.RetryPeriod <= 0 {
		report("retry-period", o.RetryPeriod, "must be more than 0")
	}
	// The elector requires this: it multiplies the retry period by a jitter of up to 1.2.
	if o.RenewDeadline <= o.RetryPeriod*6/5 {
		report("renew-deadline", o.RenewDeadline, "must be more than 1.2 times --retry-period=%v", o.RetryPeriod)
	}
	// Otherwise two leaders could be active at the same time.
	if o.LeaseDuration <= o.RenewDeadline {
		report("lease-duration", o.LeaseDuration, "must be more than --renew-deadline=%v", o.RenewDeadline)
	}
	if o.LeaseDuration < time.Second {
		report("lease-duration", o.LeaseDuration, "must be 1s or more: a Lease counts whole seconds")
	}
}

package object

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/names"
)

// TimedName returns the default name of a snapshot: that of its source, shortened if it must be, and the time in UTC.
func TimedName(source string, now time.Time) string {
	suffix := now.UTC().Format("-20060102-150405")
	return names.Shorten(source, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

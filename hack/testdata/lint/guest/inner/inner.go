// Package inner is a part of the guest's module and may import the rest of it.
package inner

import _ "github.com/keelson-dev/keelson/guest" // the guest's own

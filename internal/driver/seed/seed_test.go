package seed

import (
	"strings"
	"testing"
)

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62)
	for _, test := range []struct{ reason, name, want string }{
		{"usual", "vm", "vm"},
		{"with a domain", "vm.example.org", "vm.example.org"},
		{"as long as a guest accepts", long + "b", long + "b"},
		{"longer", long + "bcd", long + "b"},
		{"no hyphen at the end", long + "-bcd", long},
		{"longer, with a domain", long + "bcd.example.org", long + "b.example.org"},
		{"a long domain is not part of the host name", "vm." + long + "." + long, "vm." + long + "." + long},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := hostname(test.name); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

package host

import "testing"

func TestUnifiedCgroup(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"version 2", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope\n", "user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"},
		{"both versions", "1:cpu:/a\n0::/b\n", "b"},
		{"version 1", "1:cpu:/a\n", ""},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := unifiedCgroup(test.text)
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

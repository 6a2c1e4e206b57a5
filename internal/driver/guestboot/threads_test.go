package guestboot

import "testing"

func TestThreads(t *testing.T) {
	for _, test := range []struct {
		reason, version string
		cpus            int64
		want            string
	}{
		{"one processor does not race", "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", 1, "multi"},
		{"Debian 12", "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", 2, "single"},
		{"the last version with the race", "QEMU emulator version 8.0.5", 4, "single"},
		{"the first version without it", "QEMU emulator version 8.1.0", 4, "multi"},
		{"Debian 13", "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", 2, "multi"},
		{"a version that is not known", "", 2, "single"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := Threads(test.version, test.cpus); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

package cron

import "testing"

func TestLoadLocation(t *testing.T) {
	tests := []struct {
		name, zone, want string // want is empty if the zone is refused
	}{
		{"empty is UTC", "", "UTC"},
		{"UTC", "UTC", "UTC"},
		{"a city", "Europe/Berlin", "Europe/Berlin"},
		{"not on this planet", "Mars/Base", ""},
		{"depends on the machine", "Local", ""},
		{"a path", "../etc/passwd", ""},
		{"an absolute path", "/etc/localtime", ""},
		{"the zone of the machine by another name", "localtime", ""},
		{"with leap seconds", "right/Europe/Berlin", ""},
		{"another spelling of a path", "Europe//Berlin", ""},
		{"one more", "Europe/./Berlin", ""},
		{"with a slash behind", "Europe/Berlin/", ""},
		{"a folder", "Europe", ""},
		{"with a sign and digits", "Etc/GMT+12", "Etc/GMT+12"},
		{"three parts", "America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := LoadLocation(tt.zone)
			if (tt.want == "") != (err != nil) {
				t.Fatalf("LoadLocation(%q) = %v, %v", tt.zone, l, err)
			}
			if err == nil && l.String() != tt.want {
				t.Errorf("LoadLocation(%q) = %s, want %s", tt.zone, l, tt.want)
			}
		})
	}
	if a, b := mustLoad(t, "Asia/Tokyo"), mustLoad(t, "Asia/Tokyo"); a != b {
		t.Error("Two objects in one zone do not share it")
	}
}

package main

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every name in Go's database matches.
func TestZoneNameMatchesTheDatabase(t *testing.T) {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close() //nolint:errcheck // it was only read
	pattern, zones := regexp.MustCompile(zoneName), 0
	for _, file := range database.File {
		if strings.HasSuffix(file.Name, "/") {
			continue
		}
		zones++
		if !pattern.MatchString(file.Name) {
			t.Errorf("%s is a time zone but does not match", file.Name)
		}
	}
	if zones < 500 {
		t.Errorf("the database has only %d time zones", zones)
	}
}

func TestZoneName(t *testing.T) {
	pattern := regexp.MustCompile(zoneName)
	for _, tt := range []struct {
		zone   string
		want   bool
		reason string
	}{
		{"Europe/Berlin", true, "a location in an area"},
		{"America/Argentina/Buenos_Aires", true, "a location in a part of an area"},
		{"Etc/GMT+5", true, "an offset with a name"},
		{"Etc/GMT+13", false, "an offset that no zone has"},
		{"Etc/GMT-15", false, "an offset that no zone has"},
		{"Etc/GMT-14", true, "the largest offset"},
		{"UTC", true, "a name without an area"},
		{"Europe/Keelson", true, "a location that only the database can reject"},
		{"Mars/Base", false, "another area"},
		{"Berlin", false, "no area"},
		{"Europe", false, "no location"},
		{"Europe/", false, "no location"},
		{"europe/berlin", false, "names are case-sensitive paths"},
		{"PST", false, "an abbreviation"},
		{"Local", false, "the local time zone"},
		{"localtime", false, "a local file"},
		{"right/UTC", false, "a database with leap seconds"},
		{"Europe//Berlin", false, "a path, not a name"},
		{"Europe/../UTC", false, "a path, not a name"},
		{"+02:00", false, "an offset, which getHours would accept"},
		{"Europe/Berlin ", false, "a space"},
		{"Europe/Berlin\n", false, "a line end"},
	} {
		t.Run(tt.zone, func(t *testing.T) {
			if got := pattern.MatchString(tt.zone); got != tt.want {
				t.Errorf("%q matches: %t, want %t: %s", tt.zone, got, tt.want, tt.reason)
			}
		})
	}
}

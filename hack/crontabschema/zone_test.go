package main

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every name of the database that comes with Go can be one.
func TestZoneNameMatchesTheDatabase(t *testing.T) {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close() //nolint:errcheck // nothing was written
	pattern, zones := regexp.MustCompile(zoneName), 0
	for _, file := range database.File {
		if strings.HasSuffix(file.Name, "/") {
			continue
		}
		zones++
		if !pattern.MatchString(file.Name) {
			t.Errorf("%s is a time zone, and does not match", file.Name)
		}
	}
	if zones < 500 {
		t.Errorf("the database has %d time zones; that cannot be all", zones)
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
		{"UTC", true, "a name without an area"},
		{"Europe/Keelson", true, "only the database knows that there is none"},
		{"Mars/Base", false, "another area"},
		{"Berlin", false, "no area"},
		{"Europe", false, "no location"},
		{"Europe/", false, "no location"},
		{"europe/berlin", false, "the database is a directory, in which case counts"},
		{"PST", false, "an abbreviation"},
		{"Local", false, "the zone of the machine"},
		{"localtime", false, "a file of the machine"},
		{"right/UTC", false, "a database with leap seconds"},
		{"Europe//Berlin", false, "a path, and no name"},
		{"Europe/../UTC", false, "a path, and no name"},
		{"+02:00", false, "an offset, which getHours would take"},
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

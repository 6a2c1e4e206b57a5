package cron

import "testing"

func TestParseDateRange(t *testing.T) {
	tests := []struct {
		name, text string
		valid      bool
	}{
		{"a date", "2026-12-24", true},
		{"a range", "2026-12-24/2027-01-01", true},
		{"a leap day", "2028-02-29", true},
		{"long ago", "0001-01-01", true},
		{"not a leap year", "2026-02-29", false},
		{"backwards", "2027-01-01/2026-12-24", false},
		{"without an end", "2026-12-24/", false},
		{"three dates", "2026-12-24/2026-12-25/2026-12-26", false},
		{"another order", "24.12.2026", false},
		{"a time", "2026-12-24T00:00:00Z", false},
		{"the year zero", "0000-12-24", false},
		{"empty", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseDateRange(tt.text)
			if tt.valid != (err == nil) {
				t.Fatalf("ParseDateRange(%q) = %v, want valid %t", tt.text, err, tt.valid)
			}
			if tt.valid && got.String() != tt.text {
				t.Errorf("ParseDateRange(%q) reads as %q", tt.text, got)
			}
		})
	}
}

package crontab

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// schedule is the schedule of a CronTab with the hashes that its status records.
type schedule struct {
	*crontab.Schedule
	// hash is the scheduleHash.
	hash string
	// specHash is the specHash of a CronTab with suspendAfterFailures.
	specHash string
}

// newSchedule returns the schedule of a CronTab, suspended or not. It fails on an invalid spec that
// the CRD did not catch.
func newSchedule(cronTab *stablev1.CronTab) (*schedule, *crontab.SpecError) {
	times, mistakes := crontab.New(cronTab)
	if len(mistakes) > 0 {
		return nil, mistakes[0]
	}
	made := &schedule{Schedule: times, hash: scheduleHash(&cronTab.Spec)}
	if cronTab.Spec.SuspendAfterFailures != nil {
		made.specHash = specHash(cronTab)
	}
	return made, nil
}

// scheduleHash identifies all fields of a spec that determine the scheduled times. It must not
// change between versions of the controller: a CronTab with another hash restarts its progress.
func scheduleHash(spec *stablev1.CronTabSpec) string {
	made := struct {
		Schedules           []stablev1.Schedule
		TimeZone            string
		DaylightSaving      string
		NotBefore, NotAfter int64
		ExcludeDates        []stablev1.DateRange
		Suspend             bool
		After               []stablev1.Predecessor `json:",omitempty"`
	}{
		Schedules:      crontab.Schedules(spec),
		TimeZone:       string(spec.TimeZone),
		DaylightSaving: cmp.Or(string(spec.DaylightSaving), string(stablev1.DaylightSavingOnce)),
		ExcludeDates:   spec.ExcludeDates,
		Suspend:        ptr.Deref(spec.Suspend, false),
		After:          spec.After,
	}
	if spec.NotBefore != nil {
		made.NotBefore = spec.NotBefore.Unix()
	}
	if spec.NotAfter != nil {
		made.NotAfter = spec.NotAfter.Unix()
	}
	sum := sha256.Sum256(mustMarshal(made))
	return hex.EncodeToString(sum[:8])
}

package controlplane

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPlanUpkeep(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// five minutes of looks, with so many writes a second, at a database of 5 GiB of which 1 GiB is used
	looks := func(writes int64, change func(*storage)) []storage {
		var all []storage
		for i := range int64(historyLength) {
			s := storage{
				at: began.Add(time.Duration(i) * time.Minute), quota: 8 * gib, size: 5 * gib, used: gib,
				revision: 100_000 + i*60*writes, compacted: 100_000,
			}
			change(&s)
			all = append(all, s)
		}
		return all
	}
	full := func(used int64) func(*storage) {
		return func(s *storage) { s.alarm, s.size, s.used, s.compacted = alarmNoSpace, 8*gib, used, s.revision }
	}
	for _, test := range []struct {
		name  string
		looks []storage
		want  upkeep
	}{
		{"idle, and most of the file is free", looks(1, func(*storage) {}), upkeep{defragment: true}},
		{"kube-apiserver has not compacted: what is older than its history goes first", looks(1, func(s *storage) { s.compacted = 5 }), upkeep{compact: 100_000}},
		{"somebody works", looks(11, func(*storage) {}), upkeep{}},
		{"not known for long enough whether somebody works", looks(1, func(*storage) {})[:historyLength-1], upkeep{}},
		{"half of the quota is left", looks(0, func(s *storage) { s.size = 4 * gib }), upkeep{}},
		{"a defragmentation would free little", looks(0, func(s *storage) { s.used = 3 * gib }), upkeep{}},
		{"full: all history goes, whoever works", looks(100, func(s *storage) { s.alarm, s.compacted = alarmNoSpace, 5 })[:1], upkeep{compact: 100_000}},
		{"full, and that has made room", looks(100, full(7*gib))[:1], upkeep{defragment: true, disarm: true}},
		{"full of objects", looks(0, full(7.5*gib)), upkeep{}},
		{"a damaged database is not touched", looks(0, func(s *storage) { s.alarm = alarmCorrupt }), upkeep{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, planUpkeep(test.looks), cmp.AllowUnexported(upkeep{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

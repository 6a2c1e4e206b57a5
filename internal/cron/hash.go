package cron

import "time"

// hash returns a number that looks random and depends on its arguments only. Times of users
// depend on it: it is never to be changed.
//
// It is FNV-1a with the finalizer of SplitMix64, because the low bits of FNV alone repeat in
// keys that differ in their last character only.
func hash(key, salt string, n int64) uint64 {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	h *= prime // A zero byte, so that ("ab", "c") differs from ("a", "bc").
	for i := range len(salt) {
		h = (h ^ uint64(salt[i])) * prime
	}
	for shift := 0; shift < 64; shift += 8 {
		h = (h ^ uint64(n)>>shift&0xff) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Jitter returns how much later than its nominal time a run starts: from zero to limit, both
// included, in milliseconds, evenly spread. It is always the same for one key (namespace/name
// of the object) and nominal time. A limit below one millisecond gives zero.
func Jitter(key string, nominal time.Time, limit time.Duration) time.Duration {
	steps := limit.Milliseconds()
	if steps <= 0 {
		return 0
	}
	return time.Duration(hash(key, "jitter", nominal.Unix())%uint64(steps+1)) * time.Millisecond
}

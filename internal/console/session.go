package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"sync"
	"time"
)

const (
	// sessionIdle is the time after which an unused session ends. All end with the process.
	sessionIdle = 12 * time.Hour
	maxSessions = 64
	// maxSharedSessions is the number of sessions of a console of many users.
	maxSharedSessions = 1024
)

// digest is what is kept of a secret.
type digest = [sha256.Size]byte

// sessions are those that tokens have opened.
type sessions struct {
	now  func() time.Time
	link Link // it makes the one-time tokens

	mu   sync.Mutex
	used map[digest]time.Time // tokens that have opened a session, until they expire anyway
	open map[digest]*session  // by cookie
}

type session struct {
	key  digest
	used time.Time
	// token is that of a user of a shared console, "" if a proxy adds it to each request.
	token string
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, used: map[digest]time.Time{}, open: map[digest]*session{}}
}

// newSecret returns 256 random bits as text for URLs and headers.
func newSecret() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// begin exchanges a one-time token for the two secrets of a session. ok is false for a token that is unknown, used or expired.
func (s *sessions) begin(token string) (cookie, key string, ok bool) {
	made, ok := s.link.made(token)
	if !ok || s.hasExpired(made) {
		return "", "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.used, func(_ digest, made time.Time) bool { return s.hasExpired(made) })
	if _, found := s.used[digestOf(token)]; found {
		return "", "", false
	}
	s.used[digestOf(token)] = made
	cookie, key = s.add("", maxSessions)
	return cookie, key, true
}

func (s *sessions) hasExpired(made time.Time) bool { return s.now().Sub(made) > tokenLifetime }

// beginAs returns the two secrets of a session of a user with a token.
func (s *sessions) beginAs(token string) (cookie, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(token, maxSharedSessions)
}

// add begins a session. With too many, the one that was not used for longest ends.
func (s *sessions) add(token string, most int) (cookie, key string) {
	if len(s.open) >= most {
		delete(s.open, s.idlest())
	}
	cookie, key = newSecret(), newSecret()
	s.open[digestOf(cookie)] = &session{key: digestOf(key), used: s.now(), token: token}
	return cookie, key
}

// valid reports whether both secrets belong to one session, prolongs it, and returns its token.
func (s *sessions) valid(cookie, key string) (token string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, given := s.open[digestOf(cookie)], digestOf(key)
	if found == nil || subtle.ConstantTimeCompare(found.key[:], given[:]) != 1 {
		return "", false
	}
	if s.now().Sub(found.used) > sessionIdle {
		delete(s.open, digestOf(cookie))
		return "", false
	}
	found.used = s.now()
	return found.token, true
}

// idlest returns the cookie of the session that was not used for longest.
func (s *sessions) idlest() (first digest) {
	var earliest time.Time
	for cookie, x := range s.open {
		if earliest.IsZero() || x.used.Before(earliest) {
			first, earliest = cookie, x.used
		}
	}
	return first
}

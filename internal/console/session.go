package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"
)

const (
	// tokenLifetime is the time in which a URL with a token can be opened.
	tokenLifetime = time.Hour
	// sessionIdle is the time after which an unused session ends. All end with the process.
	sessionIdle = 12 * time.Hour
	maxTokens   = 64
	maxSessions = 64
	// maxSharedSessions is the number of sessions of a console of many users.
	maxSharedSessions = 1024
)

// digest is what is kept of a secret.
type digest = [sha256.Size]byte

// sessions are the one-time tokens and the sessions that they have opened.
type sessions struct {
	now func() time.Time

	mu     sync.Mutex
	tokens map[digest]time.Time // when they were made
	open   map[digest]*session  // by cookie
}

type session struct {
	key  digest
	used time.Time
	// token is that of a user of a shared console, "" if a proxy adds it to each request.
	token string
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, tokens: map[digest]time.Time{}, open: map[digest]*session{}}
}

// newSecret returns 256 random bits as text for URLs and headers.
func newSecret() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// newToken returns a token that opens one session. With too many, the oldest becomes invalid.
func (s *sessions) newToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tokens) >= maxTokens {
		delete(s.tokens, oldest(s.tokens, func(t time.Time) time.Time { return t }))
	}
	token := newSecret()
	s.tokens[digestOf(token)] = s.now()
	return token
}

// begin exchanges a token for the two secrets of a session. ok is false for a token that is unknown, used or expired.
func (s *sessions) begin(token string) (cookie, key string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made, found := s.tokens[digestOf(token)]
	delete(s.tokens, digestOf(token))
	if !found || s.now().Sub(made) > tokenLifetime {
		return "", "", false
	}
	cookie, key = s.add("", maxSessions)
	return cookie, key, true
}

// beginAs returns the two secrets of a session of a user with a token.
func (s *sessions) beginAs(token string) (cookie, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(token, maxSharedSessions)
}

// add begins a session. With too many, the one that was not used for longest ends.
func (s *sessions) add(token string, most int) (cookie, key string) {
	if len(s.open) >= most {
		delete(s.open, oldest(s.open, func(x *session) time.Time { return x.used }))
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

func oldest[T any](all map[digest]T, at func(T) time.Time) (first digest) {
	var earliest time.Time
	for d, value := range all {
		if t := at(value); earliest.IsZero() || t.Before(earliest) {
			first, earliest = d, t
		}
	}
	return first
}

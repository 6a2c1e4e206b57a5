package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	// sessionIdle is the time after which an unused session ends. All end with the process.
	sessionIdle = 12 * time.Hour
	// maxSessions is the number of sessions of a user.
	maxSessions = 16
	// maxAllSessions is the number of sessions of all users of a shared console.
	maxAllSessions = 1024
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
	// owner is whose session it is, see ownerOf.
	owner string
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
	cookie, key = s.add("", "")
	return cookie, key, true
}

func (s *sessions) hasExpired(made time.Time) bool { return s.now().Sub(made) > tokenLifetime }

// beginAs returns the two secrets of a session of a user with a token.
func (s *sessions) beginAs(user, token string) (cookie, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(ownerOf(user), token)
}

// ownerOf returns whose session one of a user is. The service accounts of a namespace are one, because who may create one may create many.
func ownerOf(user string) string {
	if account, found := strings.CutPrefix(user, "system:serviceaccount:"); found {
		namespace, _, _ := strings.Cut(account, ":")
		return "system:serviceaccounts:" + namespace
	}
	return user
}

// add begins a session. If its owner has too many, the owner's session that was not used for longest ends: nobody ends those of others by
// logging in often.
func (s *sessions) add(owner, token string) (cookie, key string) {
	isOwn := func(x *session) bool { return x.owner == owner }
	if count, idlest := s.idlest(isOwn); count >= maxSessions {
		delete(s.open, idlest)
	}
	if count, idlest := s.idlest(func(*session) bool { return true }); count >= maxAllSessions {
		delete(s.open, idlest)
	}
	cookie, key = newSecret(), newSecret()
	s.open[digestOf(cookie)] = &session{key: digestOf(key), used: s.now(), owner: owner, token: token}
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

// idlest returns how many sessions are among these, and the cookie of the one that was not used for longest.
func (s *sessions) idlest(among func(*session) bool) (count int, first digest) {
	var earliest time.Time
	for cookie, x := range s.open {
		if !among(x) {
			continue
		}
		if count++; count == 1 || x.used.Before(earliest) {
			first, earliest = cookie, x.used
		}
	}
	return count, first
}

package console

import (
	"encoding/base64"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestTokensOfALink(t *testing.T) {
	now := time.Now()
	link, other := newLink("http://127.0.0.1:1"), newLink("http://127.0.0.1:1")
	token := link.token(now)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	raw[timeSize-1]++ // a second later
	for name, tt := range map[string]struct {
		token string
		at    time.Time
		want  bool
	}{
		"a token":                       {token, now, true},
		"another token":                 {link.token(now), now.Add(tokenLifetime - time.Second), true},
		"an expired token":              {link.token(now), now.Add(tokenLifetime + 2*time.Second), false},
		"a token of another link":       {other.token(now), now, false},
		"a token that was made younger": {base64.RawURLEncoding.EncodeToString(raw), now, false},
		"a part of a token":             {token[:len(token)-4], now, false},
		"no token":                      {"", now, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSessions(func() time.Time { return tt.at })
			s.link = link
			if _, _, ok := s.begin(tt.token); ok != tt.want {
				t.Errorf("it opens a session: %t", ok)
			}
			if _, _, ok := s.begin(tt.token); ok {
				t.Error("it opens a second session")
			}
		})
	}
}

// What is kept of used tokens is bounded by their lifetime.
func TestUsedTokensAreForgotten(t *testing.T) {
	now := time.Now()
	s := newSessions(func() time.Time { return now })
	s.link = newLink("http://127.0.0.1:1")
	for range 3 {
		if _, _, ok := s.begin(s.link.token(now)); !ok {
			t.Fatal("a new token opens no session")
		}
		now = now.Add(tokenLifetime + time.Second)
	}
	if len(s.used) != 1 {
		t.Errorf("%d used tokens are kept", len(s.used))
	}
}

// Whoever logs in often ends only sessions of their own, also with many service accounts.
func TestSessionsOfOneUserEndNoOthers(t *testing.T) {
	now := time.Now()
	s := newSessions(func() time.Time { now = now.Add(time.Second); return now })
	cookie, key := s.beginAs("alice", "a")
	for i := range 2 * maxAllSessions {
		s.beginAs("mallory", "m")
		s.beginAs(fmt.Sprintf("system:serviceaccount:games:%d", i), "m")
	}
	if token, ok := s.valid(cookie, key); !ok || token != "a" {
		t.Errorf("the session of another user has ended")
	}
	if len(s.open) != 2*maxSessions+1 {
		t.Errorf("%d sessions are open", len(s.open))
	}
	for i := range maxAllSessions {
		s.beginAs(fmt.Sprint(i), "m")
	}
	if len(s.open) != maxAllSessions {
		t.Errorf("%d sessions are open", len(s.open))
	}
}

func TestLinkOfAnInstance(t *testing.T) {
	dir := t.TempDir()
	if link, err := ReadLink(dir, os.Getpid()); link != nil || err != nil {
		t.Errorf("without a console: %v, %v", link, err)
	}
	saved := newLink("http://127.0.0.1:1")
	if err := saved.Save(dir); err != nil {
		t.Fatal(err)
	}
	link, err := ReadLink(dir, os.Getpid())
	if err != nil || link == nil {
		t.Fatalf("%v, %v", link, err)
	}
	if _, ok := saved.made(link.token(time.Now())); !ok {
		t.Error("the console does not know its own link")
	}
	if link, err := ReadLink(dir, os.Getpid()+1); link != nil || err != nil {
		t.Errorf("of an earlier process: %v, %v", link, err)
	}
	if info, err := os.Stat(linkFile(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
}

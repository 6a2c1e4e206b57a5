package pki

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// User is a user of the API with a kubeconfig of its own.
//
// Kubernetes cannot revoke a certificate. Therefore each user has a CA of its own, which signs only certificates of that user, and
// kube-apiserver trusts the CAs of the present users. It reloads their file, so that a user is revoked by removing the CA. New
// groups, another lifetime and another rotation have a new CA: certificates of before are rejected.
type User struct {
	// Name is the name of the user, and Groups are its groups.
	Name   string
	Groups []string
	// TTL is the lifetime of the certificate. 0 means a year.
	TTL time.Duration
	// Rotation requests new credentials if it changes.
	Rotation string
}

// UserPrefix is the prefix of the names of the certificates of users.
const UserPrefix = "user-"

// Certificate returns the name of the certificate of a user.
func (u User) Certificate() string {
	sum := sha256.New()
	for _, part := range append([]string{u.Rotation, u.TTL.String()}, slices.Sorted(slices.Values(u.Groups))...) {
		fmt.Fprintf(sum, "%q ", part)
	}
	return UserPrefix + u.Name + "-" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// Authority returns the name of the CA of a user.
func (u User) Authority() string { return u.Certificate() + ".ca" }

// Lifetime returns the lifetime of the certificate of a user.
func (u User) Lifetime() time.Duration { return cmp.Or(u.TTL, LeafLifetime) }

// UserCertificates returns the certificates of users, each after its CA.
func UserCertificates(users []User) []Certificate {
	var all []Certificate
	for _, u := range users {
		own := NewClient(u.Certificate(), u.Authority(), u.Name, u.Groups...)
		own.Lifetime = u.Lifetime()
		all = append(all, NewAuthority(u.Authority(), "keelson-user-"+u.Name), own)
	}
	return all
}

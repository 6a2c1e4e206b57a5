package node

import (
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var scopes atomic.Int32

// testClaims are claims that no others meet.
func testClaims(t *testing.T) *Claims {
	t.Helper()
	c := &Claims{Scope: fmt.Sprintf("test/%d/%d/", os.Getpid(), scopes.Add(1))}
	t.Cleanup(c.Release)
	return c
}

// others returns the claims of another program that these meet.
func others(t *testing.T, c *Claims) *Claims {
	t.Helper()
	other := &Claims{Scope: c.Scope}
	t.Cleanup(other.Release)
	return other
}

func TestNetworksOfOthers(t *testing.T) {
	first, second := netip.MustParsePrefix("10.64.0.0/16"), netip.MustParsePrefix("10.65.0.0/16")
	candidates, none := []netip.Prefix{first, second}, func() ([]netip.Prefix, error) { return nil, nil }
	for _, test := range []struct {
		name string
		kept netip.Prefix
		used func(*testing.T, *Claims) func() ([]netip.Prefix, error) // what the other does, whose claims these are
		want netip.Prefix
		left []netip.Prefix // that the other can still have
	}{
		{
			"nobody else is there", netip.Prefix{},
			func(*testing.T, *Claims) func() ([]netip.Prefix, error) { return none }, first, []netip.Prefix{second},
		},
		{
			"another one claims the first", netip.Prefix{},
			func(t *testing.T, other *Claims) func() ([]netip.Prefix, error) {
				mustTake(t, other, first)
				return none
			}, second, []netip.Prefix{first},
		},
		{
			"another one has got its route and lets go after we have looked", netip.Prefix{},
			func(t *testing.T, other *Claims) func() ([]netip.Prefix, error) {
				mustTake(t, other, first)
				looks := 0
				return func() ([]netip.Prefix, error) {
					if looks++; looks == 1 {
						defer other.Release()
						return nil, nil
					}
					return []netip.Prefix{first}, nil
				}
			}, second, []netip.Prefix{first},
		},
		{
			"an earlier run of ours lets go of the kept one late", first,
			func(t *testing.T, other *Claims) func() ([]netip.Prefix, error) {
				mustTake(t, other, first)
				released, looks := make(chan struct{}), 0
				return func() ([]netip.Prefix, error) {
					switch looks++; looks {
					case 1:
						time.AfterFunc(50*time.Millisecond, func() {
							other.Release()
							close(released)
						})
					case 2: // it is ours now
						<-released
					}
					return nil, nil
				}
			}, first, []netip.Prefix{second},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			claims := testClaims(t)
			other := others(t, claims)
			got, err := claims.choose(test.kept, candidates, test.used(t, other))
			if err != nil || got != test.want {
				t.Fatalf("got %s, %v, want %s", got, err, test.want)
			}
			var left []netip.Prefix
			for _, network := range candidates {
				taken, err := other.take(network, 0)
				if err != nil {
					t.Fatal(err)
				}
				if taken {
					left = append(left, network)
				}
			}
			if diff := cmp.Diff(test.left, left, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("left to others (-want +got)\n%s", diff)
			}
			claims.Release()
			if taken, err := other.take(got, 0); err != nil || !taken {
				t.Errorf("what was let go cannot be had: %v", err)
			}
		})
	}
}

func mustTake(t *testing.T, c *Claims, network netip.Prefix) {
	t.Helper()
	if taken, err := c.take(network, 0); err != nil || !taken {
		t.Fatalf("%s cannot be had: %v", network, err)
	}
}

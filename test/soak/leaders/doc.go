// Package leaders runs three managers with leader election, over objects of all kinds, and takes
// out the leader in various ways: the next one must take over in time, and nothing may be done
// twice.
package leaders

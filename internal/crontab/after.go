package crontab

import (
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// Predecessors returns the names in spec.after.
func Predecessors(cronTab *stablev1.CronTab) []string {
	var names []string
	for _, p := range cronTab.Spec.After {
		names = append(names, p.Crontab)
	}
	return names
}

// Circle returns the CronTabs on a way from one by spec.after back to itself, in the order in which they would run; nil if there is
// none. The function after returns spec.after of a CronTab.
func Circle(name string, after func(string) []stablev1.Predecessor) []string {
	seen := map[string]bool{}
	var back func(string) []string
	back = func(from string) []string {
		for _, p := range after(from) {
			if p.Crontab == name {
				return []string{name, from}
			}
			if seen[p.Crontab] {
				continue
			}
			seen[p.Crontab] = true
			if way := back(p.Crontab); way != nil {
				return append(way, from)
			}
		}
		return nil
	}
	return back(name)
}

// Package docs has the pages about the kinds, for the console, which shows what they say about the reasons of conditions.
package docs

import "embed"

// Pages are the pages that have tables of reasons.
//
//go:embed virtualmachine-conditions.md disks.md virtual-disks.md images.md snapshots.md virtualmachinesets.md crontab.md cluster.md cluster-snapshots.md foo.md sampleresource.md
var Pages embed.FS

package crds_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/files"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// Every link of a page to another one, or to a file of this repository, leads somewhere, and to a heading that is there.
func TestLinksOfThePages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, below...), "../../README.md", "../../CONTRIBUTING.md", "../../charts/keelson/README.md")
	links, anchors := 0, map[string]map[string]bool{}
	for _, page := range pages {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(files.Read(t, page), ""), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(match[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if anchor == "" {
				continue
			}
			if anchors[target] == nil {
				anchors[target] = anchorsOf(t, target)
			}
			if !anchors[target][anchor] {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// anchorsOf returns the anchors of the headings of a page: lower case, dashes for spaces, no other punctuation.
func anchorsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	anchors := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(files.Read(t, page), ""), -1) {
		anchors[anchorOf(match[1])] = true
	}
	return anchors
}

// anchorOf returns the anchor of a heading.
func anchorOf(heading string) string {
	plain := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(plain, " ", "-")
}

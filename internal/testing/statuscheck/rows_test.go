package statuscheck

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/docs"
)

var (
	statusRow  = regexp.MustCompile(`(?m)^\| ((?:True|False|Unknown)(?:, (?:True|False|Unknown))*) \| ([^|]+) \|`)
	reasonName = regexp.MustCompile("`([A-Za-z]+)`")
)

// Each row of the pages, as an object: tools that use kstatus take it for healthy if and only if Ready is True, whatever the
// other conditions of the pages are.
func TestDocumentedRows(t *testing.T) {
	pages, err := fs.Glob(docs.Pages, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ page, condition, status, reason string }
	var rows []row
	for _, page := range pages {
		raw, err := docs.Pages.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for table := range strings.SplitSeq(string(raw), "\n\n") {
			head, _, _ := strings.Cut(strings.TrimPrefix(table, "| "), " |")
			if head == "status" {
				head = "Ready"
			}
			for _, found := range statusRow.FindAllStringSubmatch(table, -1) {
				for status := range strings.SplitSeq(found[1], ", ") {
					for _, reason := range reasonName.FindAllStringSubmatch(found[2], -1) {
						rows = append(rows, row{page, head, status, reason[1]})
					}
				}
			}
		}
	}
	condition := func(r row) any {
		return map[string]any{"type": r.condition, "status": r.status, "reason": r.reason, "message": "as documented"}
	}
	checked := map[string]int{}
	for _, r := range rows {
		if r.condition != "Ready" {
			continue
		}
		checked[r.page]++
		for _, other := range rows {
			if other.condition == "Ready" {
				other.condition = "Synchronized"
			}
			object := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"generation": int64(2)},
				"status":   map[string]any{"observedGeneration": int64(2), "conditions": []any{condition(r), condition(other)}},
			}}
			want := kstatus.InProgressStatus
			if r.status == "True" {
				want = kstatus.CurrentStatus
			}
			if is, err := kstatus.Compute(object); err != nil || is.Status != want {
				t.Fatalf("%v with %v: kstatus says %v, %v; want %s", r, other, is, err, want)
			}
		}
	}
	for _, page := range pages {
		if checked[page] == 0 && page != "cluster.md" { // its table has one row for several statuses
			t.Errorf("%s has no row of Ready", page)
		}
	}
}

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

// row is a row of a table of the pages: a status and a reason of a condition.
type row struct{ page, condition, status, reason string }

func (r row) toCondition() any {
	return map[string]any{"type": r.condition, "status": r.status, "reason": r.reason, "message": "as documented"}
}

// objectWith returns an object whose controller has seen its present generation.
func objectWith(conditions ...any) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"generation": int64(2)},
		"status":   map[string]any{"observedGeneration": int64(2), "conditions": conditions},
	}
}

// documentedRows returns the rows of all pages. Each page has one of Ready.
func documentedRows(t *testing.T) []row {
	t.Helper()
	pages, err := fs.Glob(docs.Pages, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, page := range pages {
		raw, err := docs.Pages.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		ready := 0
		for table := range strings.SplitSeq(string(raw), "\n\n") {
			head, _, _ := strings.Cut(strings.TrimPrefix(table, "| "), " |")
			if head == "status" {
				head = "Ready"
			}
			for _, found := range statusRow.FindAllStringSubmatch(table, -1) {
				for status := range strings.SplitSeq(found[1], ", ") {
					for _, reason := range reasonName.FindAllStringSubmatch(found[2], -1) {
						rows = append(rows, row{page, head, status, reason[1]})
						if head == "Ready" {
							ready++
						}
					}
				}
			}
		}
		// The table of Cluster has one row for several statuses, disks.md another condition of machines.
		if ready == 0 && page != "cluster.md" && page != "disks.md" {
			t.Errorf("%s has no row of Ready", page)
		}
	}
	return rows
}

// Each row of the pages, as an object: tools that use kstatus take it for healthy if and only if Ready is True, whatever the
// other conditions of the pages are.
func TestDocumentedRows(t *testing.T) {
	rows := documentedRows(t)
	for _, r := range rows {
		if r.condition != "Ready" {
			continue
		}
		for _, other := range rows {
			if other.condition == "Ready" {
				other.condition = "Synchronized"
			}
			want := kstatus.InProgressStatus
			if r.status == "True" {
				want = kstatus.CurrentStatus
			}
			object := &unstructured.Unstructured{Object: objectWith(r.toCondition(), other.toCondition())}
			if is, err := kstatus.Compute(object); err != nil || is.Status != want {
				t.Fatalf("%v with %v: kstatus says %v, %v; want %s", r, other, is, err, want)
			}
		}
	}
}

package object

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A value of an object cannot leave its cell.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, "NAME", "SCHEDULE", "AGE")
	table.Add("a", "0 0\n* * *\t", 1)
	table.Add("b", "\x1b[31m@daily", "")
	err := table.Flush()
	want := `NAME   SCHEDULE      AGE
a      0 0 * * *     1
b      �[31m@daily   -
`
	if diff := cmp.Diff(want, out.String()); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

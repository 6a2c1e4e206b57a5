package measure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	table := NewTable("what", "p50")
	table.Add("keelson", "1.5×")
	table.Add("floor")
	var got strings.Builder
	table.Write(&got)
	want := "" +
		"| what    |  p50 |\n" +
		"| ------- | ---: |\n" +
		"| keelson | 1.5× |\n" +
		"| floor   |      |\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWriteTargets(t *testing.T) {
	var got strings.Builder
	missed := WriteTargets(&got, []Target{
		{Name: "writes a Foo", Limit: 2, Value: 2},
		{Name: "repair", Limit: 30, Below: true, Value: 30, Unit: " ms"},
		{Name: "as fast as the other", Limit: 3, AtLeast: true, Value: 2.9, Unit: "×"},
		{Name: "as fast as another", Limit: 3, AtLeast: true, Value: 3, Unit: "×"},
	})
	if missed != 2 {
		t.Errorf("missed %d, want 2: a value below a limit must not be equal to it, and one at least must", missed)
	}
	for _, want := range []string{"≤ 2 |", "PASS", "< 30 ms |", "MISS", "≥ 3× |"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, got.String())
		}
	}
}

func TestMetrics(t *testing.T) {
	read := func(text string) Metrics {
		m, err := ParseMetrics(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	before := read("# TYPE requests counter\n" +
		"requests{verb=\"GET\",resource=\"foos\",code=\"200\"} 1\n" +
		"requests{verb=\"GET\",resource=\"foos\",code=\"404\"} 2\n")
	after := read("# TYPE requests counter\n" +
		"requests{verb=\"GET\",resource=\"foos\",code=\"200\"} 1\n" +
		"requests{verb=\"GET\",resource=\"foos\",code=\"404\"} 2\n" +
		"requests{verb=\"PUT\",resource=\"foos\",code=\"200\"} 5\n")
	got := Increase(before.By("requests", "verb", "resource"), after.By("requests", "verb", "resource"))
	if diff := cmp.Diff(map[string]float64{"PUT foos": 5}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := after.Value("requests"); got != 8 {
		t.Errorf("the sum is %v, want 8", got)
	}
	if got := after.Value("absent"); got != 0 {
		t.Errorf("an absent metric is %v, want 0", got)
	}
}

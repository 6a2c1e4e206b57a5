package cluster

import (
	"errors"
	"fmt"
	"io"

	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/names"
	"github.com/keelson-dev/keelson/internal/rehearsal"
)

// report is the result of a rehearsal.
type report struct {
	Cluster string `json:"cluster"`
	From    string `json:"from"`
	To      string `json:"to"`
	// Resources and Objects are the numbers of what was checked.
	Resources int                 `json:"resources"`
	Objects   int                 `json:"objects"`
	Findings  []rehearsal.Finding `json:"findings"`
}

// print prints the report in the format text or json.
func (r *report) print(out io.Writer, format string) error {
	if format == "json" {
		return object.WriteJSON(out, r)
	}
	var err error
	if len(r.Findings) > 0 {
		table := object.NewTable(out, "RESULT", "KIND", "OBJECTS", "WHAT", "REMEDY")
		for _, f := range r.Findings {
			table.Add(f.Result, f.Kind, describeObjects(f), f.What, f.Remedy)
		}
		err = table.Flush()
	}
	counts := map[rehearsal.Result]int{}
	for _, f := range r.Findings {
		counts[f.Result]++
	}
	_, printErr := fmt.Fprintf(out, "%s from %s to %s: %d objects of %d resources checked; refused: %d, warnings: %d, unchecked: %d\n",
		r.Cluster, r.From, r.To, r.Objects, r.Resources, counts[rehearsal.Refused], counts[rehearsal.Warning], counts[rehearsal.Unchecked])
	return errors.Join(err, printErr)
}

// describeObjects names some objects, or counts those without a name. The format json has all.
func describeObjects(f rehearsal.Finding) string {
	if len(f.Objects) == 0 {
		return fmt.Sprint(f.Count)
	}
	return names.Some(f.Objects)
}

package measure

import "fmt"

// Interleave runs each of the contestants once in every round, numbered from 0, and begins each round with another
// one: what else the machine does, and what an earlier contestant leaves behind, then meets all of them alike.
// It ends with the first error.
func Interleave(rounds int, contestants []string, run func(round int, contestant string) error) error {
	for round := range rounds {
		for i := range contestants {
			contestant := contestants[(round+i)%len(contestants)]
			if err := run(round, contestant); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, contestant, err)
			}
		}
	}
	return nil
}

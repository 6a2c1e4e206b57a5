package manager

import (
	"fmt"
	"slices"
	"strings"
)

// selectControllers returns the selected entries of all, in their order. The selector "*" enables all, "foo"
// enables foo and "-foo" disables foo; names take precedence over "*", in any order. Unknown names, names that
// are both enabled and disabled, and an empty selection are errors.
func selectControllers(all []Controller, selectors []string) ([]Controller, error) {
	wanted := map[string]bool{}
	everything := false
	for _, selector := range selectors {
		if selector == "*" {
			everything = true
			continue
		}
		name, excluded := strings.CutPrefix(selector, "-")
		if !slices.ContainsFunc(all, func(c Controller) bool { return c.Name == name }) {
			return nil, fmt.Errorf("there is no controller %q; there are %s", name, strings.Join(names(all), ", "))
		}
		if earlier, ok := wanted[name]; ok && earlier == excluded {
			return nil, fmt.Errorf("controller %q is both selected and excluded", name)
		}
		wanted[name] = !excluded
	}
	var selected []Controller
	for _, c := range all {
		if run, named := wanted[c.Name]; run || (everything && !named) {
			selected = append(selected, c)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("selects nothing; there are %s", strings.Join(names(all), ", "))
	}
	return selected, nil
}

func names(all []Controller) []string {
	result := make([]string, 0, len(all))
	for _, c := range all {
		result = append(result, c.Name)
	}
	return result
}

// Selected returns the names of the selected controllers; see Options.Controllers.
func Selected(selectors []string) ([]string, error) {
	selected, err := selectControllers(controllers, selectors)
	return names(selected), err
}

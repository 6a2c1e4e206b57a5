package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// axeFile is axe-core, as npm ci installs it with the other dependencies of the page.
const axeFile = "console/node_modules/axe-core/axe.min.js"

// axeRun asks for some rules, and keeps what violates them. Before, the page adapts to its new size in some frames.
const axeRun = `(() => {
	window.violations = undefined;
	const frame = () => new Promise(requestAnimationFrame);
	frame().then(frame).then(frame).then(frame).then(() => axe.run(document, {runOnly: %s})).then((found) => {
		window.violations = found.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary.replace(/\s+/g, " ")));
	}, (err) => { window.violations = [String(err)]; });
	return true;
})()`

// axeRules are the rules for each look: all of WCAG 2.2 AA, and those again that depend on colors or on the width.
var axeRules = []struct{ look, rules string }{
	{"light", `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]`},
	{"dark", `["color-contrast", "link-in-text-block"]`},
	{"narrow", `["scrollable-region-focusable", "target-size"]`},
}

// Accessible fails the test for each violation of WCAG 2.2 AA that axe-core finds in the page, in light and dark and on a
// phone. Without the dependencies of the page it only says so.
func (b *Tab) Accessible() {
	b.t.Helper()
	script, err := os.ReadFile(repositoryFile(axeFile))
	if err != nil {
		b.t.Logf("The accessibility is not tested: %v: run npm ci in console", err)
		return
	}
	if !Value[bool](b, "Boolean(window.axe)") {
		Value[bool](b, string(script)+"; true")
	}
	for _, run := range axeRules {
		b.look(run.look)
		Value[bool](b, fmt.Sprintf(axeRun, run.rules))
		b.Until("window.violations")
		if found := Value[[]string](b, "window.violations"); len(found) > 0 {
			b.t.Errorf("%s, %s: violations of WCAG:\n%s", Value[string](b, "location.pathname"), run.look, strings.Join(found, "\n"))
		}
		if too := Value[int](b, "document.documentElement.scrollWidth - innerWidth"); too > 0 {
			b.t.Errorf("%s, %s: the page is wider than its window by %d pixels", Value[string](b, "location.pathname"), run.look, too)
		}
	}
	b.look("")
}

// repositoryFile returns the path of a file of this repository, whose tests run in the directories of their packages.
func repositoryFile(name string) string {
	directory, err := os.Getwd()
	for err == nil && directory != "/" {
		if _, missing := os.Stat(filepath.Join(directory, "go.mod")); missing == nil {
			break
		}
		directory = filepath.Dir(directory)
	}
	return filepath.Join(directory, name)
}

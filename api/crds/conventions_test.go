package crds_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The rules below hold for every kind, so that who knows one knows all: where the state is, how it is called, and that
// the same thing has the same name everywhere. They look at the definitions and at the source, and need no list of kinds.

// Conditions are where every tool looks for them, and the columns are made from them in the same way.
func TestEveryKindHasTheSameStatus(t *testing.T) {
	columns := map[string]apiextensionsv1.CustomResourceColumnDefinition{
		"Ready":  {Type: "string", JSONPath: `.status.conditions[?(@.type=="Ready")].status`},
		"Reason": {Type: "string", JSONPath: `.status.conditions[?(@.type=="Ready")].reason`, Priority: 1},
		"Age":    {Type: "date", JSONPath: ".metadata.creationTimestamp"},
	}
	columnName := regexp.MustCompile(`^[A-Z]\w*([ -][A-Z]\w*)*(\(%\))?$`)
	for _, crd := range all(t) {
		for _, version := range crd.Spec.Versions {
			status := version.Schema.OpenAPIV3Schema.Properties["status"]
			if got := status.Properties["observedGeneration"]; got.Type != "integer" || got.Format != "int64" {
				t.Errorf("%s: status.observedGeneration is %s %s", crd.Name, got.Type, got.Format)
			}
			conditions := status.Properties["conditions"]
			if conditions.Type != "array" || conditions.XListType == nil || *conditions.XListType != "map" || !slices.Equal(conditions.XListMapKeys, []string{"type"}) {
				t.Errorf("%s: status.conditions is no list with the key type", crd.Name)
				continue
			}
			required := []string{"lastTransitionTime", "message", "reason", "status", "type"}
			if got := slices.Sorted(slices.Values(conditions.Items.Schema.Required)); !slices.Equal(got, required) {
				t.Errorf("%s: a condition has %v, want %v", crd.Name, got, required)
			}
			found := map[string]apiextensionsv1.CustomResourceColumnDefinition{}
			for _, column := range version.AdditionalPrinterColumns {
				if !columnName.MatchString(column.Name) {
					t.Errorf("%s: the column %q does not begin with a capital", crd.Name, column.Name)
				}
				found[column.Name] = column
			}
			for name, want := range columns {
				got := found[name]
				got.Name, got.Description = "", ""
				if name == "Reason" && crd.Spec.Names.Kind == "Cluster" {
					want.JSONPath = ".status.reason" // that of the phase, which explains more
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: column %s (-want +got):\n%s", crd.Name, name, diff)
				}
			}
		}
	}
}

// word is a constant Condition... or Reason... of an API.
type word struct {
	group, constant, value, comment string
}

// parse returns the files of a folder below the root of the repository, without tests.
func parse(t *testing.T, pattern string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob("../../" + pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
	}
	files := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = file
	}
	return files
}

// words returns the conditions and reasons of all APIs.
func words(t *testing.T) []word {
	t.Helper()
	var all []word
	for path, file := range parse(t, "api/*/*/conditions.go") {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if name := spec.Names[0].Name; ok && literal.Kind == token.STRING && (strings.HasPrefix(name, "Reason") || strings.HasPrefix(name, "Condition")) {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, word{filepath.Dir(path), name, value, strings.Join(strings.Fields(spec.Doc.Text()), " ")})
			}
			return true
		})
	}
	if len(all) < 60 {
		t.Fatalf("only %d conditions and reasons were found", len(all))
	}
	return all
}

func TestConditionsAndReasonsAreNamedAlike(t *testing.T) {
	form := regexp.MustCompile(`^[A-Z][A-Za-z]*$`)
	ready := map[string]bool{}
	seen := map[string]string{}
	for _, w := range words(t) {
		prefix := "Reason"
		if strings.HasPrefix(w.constant, "Condition") {
			prefix = "Condition"
			ready[w.group] = ready[w.group] || w.value == "Ready"
		}
		if !form.MatchString(w.value) || w.constant != prefix+w.value {
			t.Errorf("%s: %s is %q; the constant is called as its value, in camel case", w.group, w.constant, w.value)
		}
		if !strings.HasPrefix(w.comment, w.constant+" ") && !strings.HasPrefix(w.comment, w.constant+":") {
			t.Errorf("%s: %s has no comment that says what it means", w.group, w.constant)
		}
		if other := seen[w.group+w.value+prefix]; other != "" {
			t.Errorf("%s: %s and %s have the same value", w.group, w.constant, other)
		}
		seen[w.group+w.value+prefix] = w.constant
	}
	for path := range parse(t, "api/*/*/conditions.go") {
		if group := filepath.Dir(path); !ready[group] {
			t.Errorf("%s has no condition Ready", group)
		}
	}
}

// What happens to several kinds has one name. The meaning is in the comment, so that whoever adds a reason for the same
// thing hears of the name that there is.
func TestTheSameMeaningHasTheSameReason(t *testing.T) {
	for _, same := range []struct{ meaning, name string }{
		// JobNameTaken is about one run; the CronTab itself has no child of a certain name.
		{"has another owner", "^(ErrResourceExists|JobNameTaken)$"},
		{"the API rejected", "Rejected$"},
		{"could not be written|Job could not be created", "WriteFailed$"},
		{"does not support the spec", "^InvalidSpec$"},
		{"spec\\.paused is true|paused, as requested by spec", "^Paused$"},
		{"could not be (deleted|removed)", "^DeleteFailed$"},
	} {
		meaning, name, used := regexp.MustCompile(same.meaning), regexp.MustCompile(same.name), 0
		for _, w := range words(t) {
			if strings.HasPrefix(w.constant, "Condition") {
				continue
			}
			means, named := meaning.MatchString(w.comment), name.MatchString(w.value)
			if means {
				used++
			}
			if means != named {
				t.Errorf("%s: %s means %q; what means %q is called %s, and nothing else is", w.group, w.value, w.comment, same.meaning, same.name)
			}
		}
		if used == 0 {
			t.Errorf("no reason means %q", same.meaning)
		}
	}
}

// Events and conditions carry the words of the API and no others, and none of those is there for nothing.
func TestControllersUseTheWordsOfTheAPI(t *testing.T) {
	verb := regexp.MustCompile(`^([A-Z][a-z]+)+$`)
	used := map[string]bool{}
	events, conditions := 0, 0
	for _, pattern := range []string{"internal/controller/*/*.go", "internal/controller/*/*/*.go", "internal/engine/*/*.go", "internal/driver/*/*.go", "internal/manager/*.go", "internal/manager/*/*.go", "internal/snapshots/*.go", "internal/crontab/*.go"} {
		for path, file := range parse(t, pattern) {
			ast.Inspect(file, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.SelectorExpr:
					used[node.Sel.Name] = true
				case *ast.CallExpr:
					method, ok := node.Fun.(*ast.SelectorExpr)
					if !ok || len(node.Args) != 4 || method.Sel.Name != "Normal" && method.Sel.Name != "Warning" {
						return true
					}
					events++
					if text, isText := literal(node.Args[1]); isText {
						t.Errorf("%s: the event %q has a reason that is no constant of the API", path, text)
					}
					if text, isText := literal(node.Args[2]); isText && !verb.MatchString(text) {
						t.Errorf("%s: the action %q of an event is no verb in camel case", path, text)
					}
				case *ast.CompositeLit:
					if kind, ok := node.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "Condition" {
						return true
					}
					conditions++
					for _, element := range node.Elts {
						field, ok := element.(*ast.KeyValueExpr)
						if !ok {
							continue
						}
						name, _ := field.Key.(*ast.Ident)
						if text, isText := literal(field.Value); isText && name != nil && (name.Name == "Type" || name.Name == "Reason") {
							t.Errorf("%s: the %s %q of a condition is no constant of the API", path, name.Name, text)
						}
					}
				}
				return true
			})
		}
	}
	if events < 20 || conditions < 5 {
		t.Errorf("only %d events and %d conditions were found", events, conditions)
	}
	for _, w := range words(t) {
		if !used[w.constant] {
			t.Errorf("%s: nobody uses %s", w.group, w.constant)
		}
	}
}

// literal returns the text of an expression that is one.
func literal(e ast.Expr) (string, bool) {
	basic, ok := e.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(basic.Value)
	return text, err == nil
}

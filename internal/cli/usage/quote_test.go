package usage

import (
	"os/exec"
	"testing"
)

// A real shell reads quoted words unchanged.
func TestQuote(t *testing.T) {
	for _, word := range []string{"", "plain", "/a/b-c_d.e:f", "a b", "it's", `"$HOME"`, "a\nb", `\`, "~", "*", "a;b", "#", "-n", "ü"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q was quoted as %s, and came out as %q, %v", word, Quote(word), out, err)
		}
	}
	if got := Quote("/plain/path"); got != "/plain/path" {
		t.Errorf("a plain word became %s", got)
	}
}

package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/klog/v2"
)

func TestLoggerFormats(t *testing.T) {
	timestamp := regexp.MustCompile(`time=\S+`)
	tests := []struct {
		name      string
		verbosity int
		want      string
	}{
		{
			name: "what an operator needs", verbosity: 0,
			want: "time=T level=INFO msg=Started controller=foo\ntime=T level=ERROR msg=\"It broke\" controller=foo err=reason\n",
		},
		{
			name: "details too", verbosity: 2,
			want: "time=T level=INFO msg=Started controller=foo\ntime=T level=DEBUG msg=Detail controller=foo n=2\n" +
				"time=T level=ERROR msg=\"It broke\" controller=foo err=reason\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			logging := Logging{Format: "text", Verbosity: tt.verbosity}
			log := logging.NewLogger(&out).WithValues("controller", "foo")
			log.Info("Started")
			log.V(2).Info("Detail", "n", 2)
			log.V(3).Info("Too much")
			log.Error(errors.New("reason"), "It broke")
			if diff := cmp.Diff(tt.want, timestamp.ReplaceAllString(out.String(), "time=T")); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
	var out bytes.Buffer
	logging := Logging{Format: "json"}
	log := logging.NewLogger(&out)
	log.Info("Started", "controller", "foo")
	got := map[string]any{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("parse %q: %v", out.String(), err)
	}
	want := map[string]any{"level": "INFO", "msg": "Started", "controller": "foo"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreMapEntries(func(key string, _ any) bool { return key == "time" })); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestLibrariesLogToTheSameLogger runs in a process of its own: the logger of client-go is one variable of the process,
// which goroutines that other tests left behind read without a lock.
func TestLibrariesLogToTheSameLogger(t *testing.T) {
	const itself = "KEELSON_TEST_INSTALL_LOGGER"
	if os.Getenv(itself) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		again := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), itself+"=yes")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	var out bytes.Buffer
	logging := Logging{Format: "text", Verbosity: 3}
	if err := logging.InstallLogger(logging.NewLogger(&out)); err != nil {
		t.Fatal(err)
	}
	klog.V(3).InfoS("From client-go")
	klog.V(4).InfoS("Too much")
	stdlog.Print("http: TLS handshake error")
	want := "time=T level=DEBUG msg=\"From client-go\"\ntime=T level=INFO msg=\"http: TLS handshake error\"\n"
	if diff := cmp.Diff(want, regexp.MustCompile(`time=\S+`).ReplaceAllString(out.String(), "time=T")); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

func TestLibraryLogger(t *testing.T) {
	say := func(verbosity int) string {
		var out bytes.Buffer
		logging := Logging{Format: "text", Verbosity: verbosity}
		log := libraryLogger(logging.NewLogger(&out)).WithName("n").WithValues("k", "v")
		log.Info("Stopping")
		log.Error(errors.New("leader election lost"), afterStop)
		log.Error(fmt.Errorf("post: %w", context.Canceled), "Unable to write event")
		log.Error(errors.New("reason"), "It broke")
		return regexp.MustCompile(`time=\S+ `).ReplaceAllString(out.String(), "")
	}
	quiet := "level=ERROR msg=\"It broke\" k=v logger=n err=reason\n"
	verbose := "level=DEBUG msg=Stopping k=v logger=n\n" +
		"level=DEBUG msg=\"" + afterStop + "\" k=v logger=n reason=\"leader election lost\"\n" +
		"level=DEBUG msg=\"Unable to write event\" k=v logger=n reason=\"post: context canceled\"\n" + quiet
	if diff := cmp.Diff([]string{quiet, verbose}, []string{say(0), say(1)}); diff != "" {
		t.Errorf("at -v=0 and -v=1 (-want +got):\n%s", diff)
	}
}

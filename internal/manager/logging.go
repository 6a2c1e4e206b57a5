package manager

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Logging configures the logs of the process.
type Logging struct {
	// Format is text (key=value) or json, with one line per entry.
	Format string
	// Verbosity is the highest level that is logged, as in Kubernetes components: 0 for operators, 2 for state
	// changes, 4 and more for debugging.
	Verbosity int
}

// AddFlags adds --logging-format and -v to fs.
func (l *Logging) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&l.Format, "logging-format", l.Format, "format of the logs: text or json")
	fs.IntVarP(&l.Verbosity, "v", "v", l.Verbosity, "verbosity `level` of the logs, 0 to 10")
}

func (l *Logging) validate(wrong func(flag string, value any, why string, args ...any)) {
	if l.Format != "text" && l.Format != "json" {
		wrong("logging.format", l.Format, "must be text or json")
	}
	if l.Verbosity < 0 || l.Verbosity > 10 {
		wrong("v", l.Verbosity, "must be from 0 to 10")
	}
}

// NewLogger returns a logger that writes one line per entry to w.
func (l *Logging) NewLogger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{
		// logr's V(n) is slog's level -n.
		Level:       slog.Level(-l.Verbosity),
		ReplaceAttr: nameLevel,
	}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if l.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	return logr.FromSlogHandler(handler)
}

// InstallLogger redirects the logs of libraries to logger: klog (client-go) at the given verbosity,
// controller-runtime, and package log, where net/http reports broken connections. This is global state: only a
// command may call it, once, before anything logs.
func (l *Logging) InstallLogger(logger logr.Logger) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	// klog filters by V(n) before it calls any logger.
	if err := flags.Set("v", strconv.Itoa(l.Verbosity)); err != nil {
		return fmt.Errorf("set the verbosity of client-go's logs to %d: %w", l.Verbosity, err)
	}
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	ctrllog.SetLogger(logger)
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelInfo).Writer())
	return nil
}

// nameLevel writes INFO for V(0) and DEBUG for higher levels, where slog would write DEBUG+3 for V(1).
func nameLevel(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 || attr.Key != slog.LevelKey {
		return attr
	}
	level, ok := attr.Value.Any().(slog.Level)
	if !ok {
		return attr
	}
	switch {
	case level < slog.LevelInfo:
		attr.Value = slog.StringValue("DEBUG")
	case level < slog.LevelError:
		attr.Value = slog.StringValue("INFO")
	default:
		attr.Value = slog.StringValue("ERROR")
	}
	return attr
}

// libraryLogger returns the logger for controller-runtime's messages about start and stop, which are only for
// debugging.
func libraryLogger(logger logr.Logger) logr.Logger {
	return logger.WithSink(librarySink{logger.GetSink()}).V(1)
}

// afterStop is controller-runtime's message for errors of goroutines during a stop. With leader election there
// is always one, "leader election lost", even if the Lease was released cleanly.
const afterStop = "error received after stop sequence was engaged"

// librarySink does not log errors after a stop as errors, nor those of requests that a stop cancels, such as the
// one for the last event. An error that stops the manager is returned, not logged.
type librarySink struct{ logr.LogSink }

func (s librarySink) Error(err error, message string, keysAndValues ...any) {
	if message == afterStop || errors.Is(err, context.Canceled) {
		if s.Enabled(1) {
			s.Info(1, message, append(keysAndValues, "reason", err.Error())...)
		}
		return
	}
	s.LogSink.Error(err, message, keysAndValues...)
}

func (s librarySink) WithValues(keysAndValues ...any) logr.LogSink {
	return librarySink{s.LogSink.WithValues(keysAndValues...)}
}

func (s librarySink) WithName(name string) logr.LogSink {
	return librarySink{s.LogSink.WithName(name)}
}

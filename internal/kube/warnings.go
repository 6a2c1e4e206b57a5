package kube

import "context"

// warningsKey is the key of where the warnings of a context go.
type warningsKey struct{}

// WithWarnings returns a context for requests whose warnings are added to those. The client must have WarningsToContext
// as the handler of its warnings, and the requests must not run at the same time.
func WithWarnings(ctx context.Context, to *[]string) context.Context {
	return context.WithValue(ctx, warningsKey{}, to)
}

// WarningsToContext is a rest.WarningHandlerWithContext for a client that makes requests for others: they should hear
// what the API server warns of, and no log.
type WarningsToContext struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext. 299 is the code of warnings that last.
// https://kubernetes.io/docs/reference/using-api/deprecation-policy/ and RFC 7234, 5.5.7
func (WarningsToContext) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	if to, ok := ctx.Value(warningsKey{}).(*[]string); ok && code == 299 && text != "" {
		*to = append(*to, text)
	}
}

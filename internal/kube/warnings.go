package kube

import "context"

// warningsKey is the context key of the slice that collects warnings.
type warningsKey struct{}

// WithWarnings returns a context for requests whose warnings are appended to to. The client must use WarningsToContext as its
// warning handler, and the requests must not run concurrently.
func WithWarnings(ctx context.Context, to *[]string) context.Context {
	return context.WithValue(ctx, warningsKey{}, to)
}

// WarningsToContext is a rest.WarningHandlerWithContext that returns the warnings of the API server to the caller of a request
// instead of logging them.
type WarningsToContext struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext. 299 is the code of persistent warnings.
// https://kubernetes.io/docs/reference/using-api/deprecation-policy/ and RFC 7234, 5.5.7
func (WarningsToContext) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	if to, ok := ctx.Value(warningsKey{}).(*[]string); ok && code == 299 && text != "" {
		*to = append(*to, text)
	}
}

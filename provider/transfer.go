package provider

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/redact"
)

// Control is a request to a path that is not an [Endpoint], such as a path of a Batch API.
type Control struct {
	Method  string
	Path    string // path with the API version, such as /v1/batches or /v1beta/batches
	Query   url.Values
	Dialect Dialect // dialect of the API at this path

	// Open returns the request body. Open is called each time the body is sent. If Open is nil, the request has no body.
	Open func() (io.ReadCloser, error)
	Size int64  // size of the body in bytes
	Type string // content type of the body (default application/json)
}

// NewControl returns a request to a path of the provider under the target's base URL, with the target's key and headers. NewControl ignores
// the target's Endpoint and Model.
func (p Provider) NewControl(ctx context.Context, t Target, c Control) (*http.Request, error) {
	if t.BaseURL == "" && p.BaseURL == "" {
		return nil, fmt.Errorf("provider %q has no default base URL: set the base URL", p.Name)
	}
	req, err := p.request(ctx, t, c.Method, p.address(t.BaseURL, c.Path, c.Query.Encode(), c.Dialect), c.Dialect, nil)
	if err != nil || c.Open == nil {
		return req, err
	}
	if _, own := t.Header["Content-Type"]; !own || c.Type != "" { // of a form, it says where its parts end
		req.Header.Set("Content-Type", cmp.Or(c.Type, "application/json"))
	}
	req.ContentLength, req.GetBody = c.Size, c.Open
	req.Body, err = c.Open()
	return req, err
}

// TransferConfig configures a [Transfer].
type TransferConfig struct {
	Provider Provider
	Key      string        // API key to remove from all texts, in addition to secrets in the request header
	Timeout  time.Duration // maximum time from the last byte of the request to the first byte of the response (default 10 min)
	Idle     time.Duration // maximum time between two parts of the request or of the response (default 2 min)
	MaxBytes int64         // maximum size of a response that is kept in memory (default 64 MiB)
	To       io.Writer     // writer for the body of a 2xx response; if nil, Answer.Body contains the body
}

// Transfer makes one attempt at a Batch API request or a file transfer. Transfer does not retry or follow redirects, because a redirect
// could send the key to another host. Transfer does not look for errors in the body of a 2xx response. The total time is unlimited, but the
// attempt fails after a pause of TransferConfig.Idle.
//
// Transfer sets Outcome.Err as [Exchange] does. If writing to TransferConfig.To fails, Outcome.Err is the write error, and the kind is
// Internal. Answer.Status is 0 if no response was received.
func Transfer(ctx context.Context, base http.RoundTripper, req *http.Request, cfg TransferConfig) (Answer, sluice.Outcome) {
	ex := ExchangeConfig{Provider: cfg.Provider, Key: cfg.Key, MaxBytes: cmp.Or(cfg.MaxBytes, defaultBytes)}
	ex.keys = secretsOf(req.Header, cfg.Key)
	first, idle := cmp.Or(cfg.Timeout, defaultTimeout), cmp.Or(cfg.Idle, defaultIdle)
	resp, f, o := launch(ctx, base, nil, req, allowance{first: first, idle: idle, sending: true}, ex.keys)
	if resp == nil {
		return Answer{}, o
	}
	defer f.land()
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, RequestID: Redact(requestID(resp.Header), ex.keys...), Header: resp.Header}
	switch {
	case resp.StatusCode/100 != 2:
		o = ex.read(ctx, f, resp, &a)
	case packed(resp.Header):
		o = sluice.Outcome{Kind: sluice.ServerError, Err: fmt.Errorf("the response has the content encoding %s, which the request did not accept",
			Redact(clip(resp.Header.Get("Content-Encoding"), 20)))}
	case cfg.To != nil:
		o = ex.pass(ctx, f, resp, cfg.To)
	default:
		body, err := readAll(parts{resp.Body, f}, resp.ContentLength, ex.MaxBytes)
		if a.Body = body; err != nil {
			o = ex.broken(ctx, f, err)
		}
	}
	o.Readings = cfg.Provider.Readings(resp.Header, time.Now())
	a.Body = ex.strike(a.Body, o.Kind)
	return a, o
}

// pass writes the body of an answer to w, with "*" for each byte of the keys.
func (cfg ExchangeConfig) pass(ctx context.Context, f *flight, resp *http.Response, w io.Writer) sluice.Outcome {
	out := redactedWriter{w: w, stream: redact.New(cfg.keys...).Stream()}
	n, err := io.Copy(&out, parts{resp.Body, f})
	if out.err == nil {
		out.put(out.stream.End())
	}
	switch {
	case out.err != nil:
		return sluice.Outcome{Kind: sluice.Internal, Err: out.err}
	case err == nil && resp.ContentLength > n:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return cfg.broken(ctx, f, err)
	}
	return sluice.Outcome{}
}

// redactedWriter writes a stream without its secrets.
type redactedWriter struct {
	w      io.Writer
	stream redact.Stream
	err    error // of w
}

// Write takes all of p, and may change it, unless w fails. Only io.Copy calls it.
func (r *redactedWriter) Write(p []byte) (int, error) {
	r.put(r.stream.Next(p))
	return len(p), r.err
}

func (r *redactedWriter) put(p []byte) {
	if len(p) > 0 && r.err == nil {
		_, r.err = r.w.Write(p)
	}
}

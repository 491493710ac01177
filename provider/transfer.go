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

// Control is a request to a path of a provider that is no Endpoint, one of its Batch API say.
type Control struct {
	Method  string
	Path    string // as the provider's documents have it, with its version: /v1/batches, /v1beta/batches
	Query   url.Values
	Dialect Dialect // whose path it is

	// Open begins the body, of Size bytes and of a Type. It is called once for each time that the body is sent.
	Open func() (io.ReadCloser, error) // nil is none
	Size int64
	Type string // default application/json
}

// NewControl makes a request to a path of the provider at the target's address, with its key and headers. What the target
// says of an endpoint and model is not looked at.
func (p Provider) NewControl(ctx context.Context, t Target, c Control) (*http.Request, error) {
	if t.BaseURL == "" && p.BaseURL == "" {
		return nil, fmt.Errorf("provider %q has no base URL of its own: give one", p.Name)
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

// TransferConfig shapes a Transfer.
type TransferConfig struct {
	Provider Provider
	Key      string        // struck out of every text, as are the secrets in the request's header
	Timeout  time.Duration // from the last byte of the request to the first of the answer. Default 10 minutes
	Idle     time.Duration // in which some byte of the request, and then of the answer, must move. Default 2 minutes
	MaxBytes int64         // of an answer that is not written To. Default 64 MiB
	To       io.Writer     // what the body of a good answer is written to as it comes; nil keeps it in the Answer
}

// Transfer makes one attempt of a request to a Batch API or of a file. It retries nothing and follows no redirection, which
// would take the key elsewhere. Every good status is OK; the body is not evidence. However large the request and the response
// are, they have no time limit as a whole, but must not stand still.
//
// Outcome.Err is as of Exchange, or the error of To, which is of kind Internal. Answer.Status is 0 if no answer began.
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

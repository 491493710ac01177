package batchjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

const (
	// askTimeout is how long the answer about a batch or file may take to begin: such questions are answered at once. What is
	// handed over is looked at first, and has the time of a live call.
	askTimeout = 2 * time.Minute

	// answerBytes is the most that is read of an answer that is no file: a page of a hundred batches is 100 kB.
	answerBytes = 16 << 20

	// pages bounds how many pages of a list are read: of a hundred batches each, they are more than two days' at 2,000 an hour.
	pages = 1000

	// skew is how far a provider's clock may be behind ours, besides what its answers say of it, or ours behind what it was
	// when a batch was begun: one that bears an earlier instant is found all the same.
	skew = 15 * time.Minute
)

// NewAPI returns the Batch API of an account: to says its address, key and headers, as it does for live calls, and base makes the
// exchanges. It fails with ErrNone for a provider of which no Batch API is known.
func NewAPI(p provider.Provider, to provider.Target, base http.RoundTripper) (API, error) {
	if err := p.Check(to); err != nil {
		return nil, err
	}
	c := caller{p: p, to: to, base: base}
	switch p.Batches.API {
	case "openai":
		return &openAI{c}, nil
	case "anthropic":
		c.dialect = provider.Anthropic
		return &anthropic{c}, nil
	case "gemini":
		c.dialect = provider.Gemini
		return &gemini{c}, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNone, p.Name)
}

// caller makes the calls of an API, each once.
type caller struct {
	p       provider.Provider
	to      provider.Target
	base    http.RoundTripper
	dialect provider.Dialect
}

// Limits returns the limits in the row of the provider.
func (c *caller) Limits() provider.BatchAPI { return c.p.Batches }

// call is a request that is answered with JSON.
type call struct {
	provider.Control
	missing error // what a status of 404 means besides; nil is nothing
}

// get is the call that asks for what is at a path.
func get(path string, query url.Values, missing error) call {
	return call{provider.Control{Method: http.MethodGet, Path: path, Query: query}, missing}
}

// post is the call that sends v as JSON to a path; nil sends nothing.
func post(path string, v any, missing error) call {
	c := call{provider.Control{Method: http.MethodPost, Path: path}, missing}
	if v != nil {
		body, err := json.Marshal(v)
		c.Size = int64(len(body))
		c.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), err }
	}
	return c
}

// ask makes a call, and reads the answer into out, unless that is nil. Its errors are as an API's.
func (c *caller) ask(ctx context.Context, of call, out any) error {
	a, err := c.send(ctx, of, nil)
	if err != nil || out == nil {
		return err
	}
	return c.read(a, out)
}

// read reads an answer into out.
func (c *caller) read(a provider.Answer, out any) error {
	if err := json.Unmarshal(a.Body, out); err != nil {
		return c.senseless(a, "")
	}
	return nil
}

// fetch writes what is at a path to w. An answer that breaks off is io.ErrUnexpectedEOF, besides what a *sluice.CallError says.
func (c *caller) fetch(ctx context.Context, path string, query url.Values, w io.Writer) error {
	a, err := c.send(ctx, get(path, query, ErrGone), w)
	failed, ok := errors.AsType[*sluice.CallError](err)
	if ok && a.Status/100 == 2 && failed.Kind != sluice.ServerError && ctx.Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		failed.Err = fmt.Errorf("the results are incomplete: %w: %w", io.ErrUnexpectedEOF, failed.Err)
	}
	return err
}

// send makes a call. The body of a good answer is written to w, unless that is nil.
func (c *caller) send(ctx context.Context, of call, w io.Writer) (provider.Answer, error) {
	of.Dialect = c.dialect
	req, err := c.p.NewControl(ctx, c.to, of.Control)
	if err != nil {
		return provider.Answer{}, err
	}
	cfg := provider.TransferConfig{Provider: c.p, Key: c.to.Key, MaxBytes: answerBytes, To: w}
	if of.Open == nil {
		cfg.Timeout = askTimeout
	}
	a, o := provider.Transfer(ctx, c.base, req, cfg)
	switch {
	case o.Kind == sluice.OK:
		return a, nil
	case o.Kind == sluice.Internal && a.Status/100 == 2:
		return a, o.Err // of w
	case of.missing != nil && a.Status == http.StatusNotFound && json.Valid(a.Body):
		o.Err = fmt.Errorf("%w: %w", of.missing, o.Err)
	}
	return a, &sluice.CallError{Outcome: o}
}

// senseless is the error of a good answer that is not what was asked for. An error that stands in it is read as one.
func (c *caller) senseless(a provider.Answer, lacks string) error {
	if v := provider.Classify(c.p, a.Status, a.Header, a.Body, time.Now()); v.Kind != sluice.OK {
		v.Message = provider.Redact(v.Message, c.to.Key)
		return &sluice.CallError{Outcome: v.Outcome(c.p, a.Status, a.RequestID)}
	}
	what := "the response is not JSON in the expected format"
	if lacks != "" {
		what = "the response has no " + lacks
	}
	text := a.Body[:min(len(a.Body), 200)]
	return &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.ServerError,
		Err: fmt.Errorf("%s: %s", what, provider.Redact(string(text), c.to.Key))}}
}

// segment is an id as a part of a path. Ids are the provider's, and stand in files: none leads elsewhere.
func segment(id string) string {
	if id == "." || id == ".." {
		return "%2E"
	}
	return url.PathEscape(id)
}

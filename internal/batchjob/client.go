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
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

const (
	askTimeout = 2 * time.Minute // until the response to a request without a body of unknown size starts
	pageBytes  = 16 << 20        // maximum size of a response that is not a file: a page of 100 batches has 100 kB
	maxPages   = 1000            // of a list, with 100 batches each

	// skew is the maximum difference between two clocks, in addition to the difference that a Date header shows.
	skew = 15 * time.Minute
)

// form describes the Batch API of a provider.
type form struct {
	dialect   provider.Dialect
	endpoints []provider.Endpoint
	frame     Frame
	id        string                           // member with the ID in requests and results
	before    func(e provider.Endpoint) string // text between the ID and the body of a request

	path, cancel string // path of batches, and the end of the path that cancels one
	size, after  string // query parameters of a list: the size of pages, and the end of the page before
	forbids      bool   // the status for unknown batches and files may be 403

	upload  func(c *client, ctx context.Context, p *File) (file string, err error) // nil if Create has the requests
	create  func(p *File, file string) (provider.Control, error)
	results func(id string) provider.Control
	batch   func(o object) Batch               // without ID or Status if it is not a batch
	result  func(o object) (r Result, ok bool) // of a line
}

// client is the Batch API of an account.
type client struct {
	form
	p    provider.Provider
	to   provider.Target
	base http.RoundTripper
}

// NewAPI returns the Batch API of an account. It uses the address, key and headers of the target, and sends each request once through
// base. It returns ErrNone for a provider without a Batch API that Sluice supports.
func NewAPI(p provider.Provider, to provider.Target, base http.RoundTripper) (API, error) {
	if err := p.Check(to); err != nil {
		return nil, err
	}
	forms := map[string]func() form{"openai": openAI, "anthropic": anthropic, "gemini": gemini}
	f := forms[p.Batches.API]
	if f == nil {
		return nil, fmt.Errorf("%w: %s", ErrNone, p.Name)
	}
	return &client{f(), p, to, base}, nil
}

func (c *client) Limits() provider.BatchAPI      { return c.p.Batches }
func (c *client) Endpoints() []provider.Endpoint { return c.endpoints }
func (c *client) Frame() Frame                   { return c.frame }

func (c *client) AppendRequest(dst []byte, id string, e provider.Endpoint, body []byte) []byte {
	dst = jsonscan.AppendString(append(append(append(dst, `{"`...), c.id...), `":`...), id)
	return append(appendBody(append(dst, c.before(e)...), body), '}')
}

func (c *client) ParseResult(line []byte) (Result, error) {
	o, whole := parseObject(line)
	if id := o.text(c.id); whole && id != "" {
		if r, ok := c.result(o); ok {
			r.ID = id
			return r, nil
		}
	}
	return Result{}, fmt.Errorf("a result line has no %s or no result: %.80q", c.id, line)
}

func (c *client) Upload(ctx context.Context, p *File) (string, error) {
	if c.upload == nil {
		return "", nil
	}
	return c.upload(c, ctx, p)
}

func (c *client) Create(ctx context.Context, p *File, file string) (Batch, error) {
	ctl, err := c.create(p, file)
	if err != nil {
		return Batch{}, err
	}
	a, err := c.send(ctx, ctl, nil, nil)
	if err != nil {
		return Batch{}, c.refused(a, err)
	}
	return c.batchIn(a)
}

func (c *client) Get(ctx context.Context, id string) (Batch, error) {
	a, err := c.send(ctx, get(c.path+segment(id), nil), ErrUnknown, nil)
	if err != nil {
		return Batch{}, err
	}
	return c.batchIn(a)
}

// Cancel does not fail for a batch that has ended or is being cancelled.
func (c *client) Cancel(ctx context.Context, id string) error {
	_, err := c.send(ctx, post(c.path+segment(id)+c.form.cancel, nil), ErrUnknown, nil)
	refusal, ok := errors.AsType[*provider.Error](err)
	if !ok || refusal.Status != http.StatusBadRequest && refusal.Status != http.StatusConflict {
		return err
	}
	if b, failed := c.Get(ctx, id); failed == nil && (b.Status.Ended() || b.Status == Cancelling) {
		return nil
	}
	return err
}

func (c *client) Fetch(ctx context.Context, result string, w io.Writer) error {
	a, err := c.send(ctx, c.results(result), ErrGone, w)
	failed, ok := errors.AsType[*sluice.CallError](err)
	if ok && a.Status/100 == 2 && failed.Kind != sluice.ServerError && ctx.Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		failed.Err = fmt.Errorf("the results are incomplete: %w: %w", io.ErrUnexpectedEOF, failed.Err)
	}
	return err
}

func (c *client) Find(ctx context.Context, p *File, since time.Time) (found []Batch, err error) {
	query := url.Values{c.size: {"100"}}
	for range maxPages {
		a, err := c.send(ctx, get(strings.TrimSuffix(c.path, "/"), query), nil, nil)
		if err != nil {
			return nil, err
		}
		page, batches, ok := c.pageIn(a)
		if !ok {
			return nil, c.senseless(a, "list of batches")
		}
		start := since.Add(-skew)
		if theirs, err := http.ParseTime(a.Header.Get("Date")); err == nil {
			start = start.Add(time.Until(theirs))
		}
		for _, b := range batches {
			untagged := c.upload == nil && b.Requests == p.Requests && !b.Created.Before(start)
			if b.ID != "" && (untagged || b.Tag == p.Tag) {
				found = append(found, b)
			}
		}
		next := page.text("nextPageToken")
		if n := len(batches); n > 0 && string(page["has_more"]) == "true" {
			first, last := batches[0].Created, batches[n-1].Created
			if next = batches[n-1].ID; last.Before(start) && !last.After(first) { // the newest are first
				return found, nil
			}
		}
		if next == "" || next == query.Get(c.after) {
			return found, nil
		}
		query.Set(c.after, next)
	}
	return nil, errors.New("the list of batches has too many pages")
}

// pageIn returns a page of a list, and its batches. An empty page of Gemini has no members.
func (c *client) pageIn(a provider.Answer) (page object, batches []Batch, ok bool) {
	page, ok = parseObject(a.Body)
	list := page["data"]
	if list == nil {
		list = page["operations"]
	}
	var all []json.RawMessage
	if !ok || page["error"] != nil || list != nil && json.Unmarshal(list, &all) != nil {
		return nil, nil, false
	}
	for _, text := range all {
		o, _ := parseObject(text)
		batches = append(batches, c.batchOf(o))
	}
	return page, batches, true
}

// batchIn returns the batch that a response describes.
func (c *client) batchIn(a provider.Answer) (Batch, error) {
	o, ok := parseObject(a.Body)
	if b := c.batchOf(o); ok && b.ID != "" && b.Status != "" {
		return b, nil
	}
	return Batch{}, c.senseless(a, "ID or status of a batch")
}

func (c *client) batchOf(o object) Batch {
	b := c.batch(o)
	b.Succeeded, b.Failed = max(0, b.Succeeded), max(0, b.Failed)
	switch {
	case !b.Status.Ended():
		b.Ended, b.Results = time.Time{}, nil
	case b.Status == Failed && b.Problem == nil:
		b.Problem = &Problem{Kind: Broken, Message: "the batch failed, and the provider gives no reason"}
	}
	if window := c.p.Batches.Window; window > 0 && b.Expires.IsZero() && !b.Created.IsZero() {
		b.Expires = b.Created.Add(window)
	}
	c.clean(b.Problem)
	return b
}

// get returns a request for a resource.
func get(path string, query url.Values) provider.Control {
	return provider.Control{Method: http.MethodGet, Path: path, Query: query}
}

// post returns a request with a body of JSON, or none for nil.
func post(path string, v any) provider.Control {
	c := provider.Control{Method: http.MethodPost, Path: path}
	if v != nil {
		body, err := json.Marshal(v)
		c.Size = int64(len(body))
		c.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), err }
	}
	return c
}

// send sends a request. The body of a 2xx response is written to w, unless that is nil. If the provider does not know the resource, the
// error is missing, too, unless that is nil.
func (c *client) send(ctx context.Context, ctl provider.Control, missing error, w io.Writer) (provider.Answer, error) {
	ctl.Dialect = c.dialect
	req, err := c.p.NewControl(ctx, c.to, ctl)
	if err != nil {
		return provider.Answer{}, err
	}
	cfg := provider.TransferConfig{Provider: c.p, Key: c.to.Key, MaxBytes: pageBytes, To: w}
	if ctl.Open == nil {
		cfg.Timeout = askTimeout
	}
	a, o := provider.Transfer(ctx, c.base, req, cfg)
	switch {
	case o.Kind == sluice.OK:
		return a, nil
	case o.Kind == sluice.Internal && a.Status/100 == 2:
		return a, o.Err // of w
	case missing != nil && c.unknown(ctx, a):
		o.Err = fmt.Errorf("%w: %w", missing, o.Err)
	}
	return a, &sluice.CallError{Outcome: o}
}

// unknown reports whether a response says that a resource does not exist. Google's 403 can mean that, too: "You do not have permission to
// access the File … or it may not exist" (https://github.com/googleapis/python-genai/issues/1218). Then the key can list batches.
func (c *client) unknown(ctx context.Context, a provider.Answer) bool {
	if a.Status == http.StatusForbidden && c.forbids {
		_, err := c.send(ctx, get(strings.TrimSuffix(c.path, "/"), url.Values{c.size: {"1"}}), nil, nil)
		return err == nil
	}
	return a.Status == http.StatusNotFound && json.Valid(a.Body)
}

// senseless returns the error for a 2xx response without the expected content: the error in its body, if there is one.
func (c *client) senseless(a provider.Answer, lacks string) error {
	if v := provider.Classify(c.p, a.Status, a.Header, a.Body, time.Now()); v.Kind != sluice.OK {
		v.Message = provider.Redact(v.Message, c.to.Key)
		return &sluice.CallError{Outcome: v.Outcome(c.p, a.Status, a.RequestID)}
	}
	text := provider.Redact(string(a.Body[:min(len(a.Body), 200)]), c.to.Key)
	return &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.ServerError, Err: fmt.Errorf("the response has no %s: %s", lacks, text)}}
}

// segment returns an ID as a segment of a path. An ID of Gemini has the name of its collection.
func segment(id string) string {
	id = strings.TrimPrefix(strings.TrimPrefix(id, "batches/"), "files/")
	if id == "." || id == ".." {
		return "%2E"
	}
	return url.PathEscape(id)
}

package provider

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/route"
)

// ForwarderConfig configures a [Forwarder]. Upstreams is required.
type ForwarderConfig struct {
	Upstreams *Upstreams

	// Header is added to every request, and replaces headers with the same name.
	Header http.Header

	// Base is the transport that sends the requests (default: NewBase(256)).
	Base http.RoundTripper

	// FirstByte limits the time from sending a request to the first byte of the response, per attempt (default 10 min). Idle limits the time
	// between two parts of the response (default: FirstByte). Total limits the time of all attempts of a call, without time in the queue
	// (default: no limit). After a timeout, the error is a *[LateError].
	FirstByte, Idle, Total time.Duration
}

// Forwarder sends the requests of other programs to upstreams. A Forwarder sets the upstream's address, key and model in each request, and
// returns the provider's response. A Forwarder is safe for concurrent use.
//
// A Forwarder retries a failed request until a part of a response has been returned. A Forwarder reads usage and errors from responses.
type Forwarder struct {
	cfg ForwarderConfig

	added Added // by upstream and model

	mu    sync.Mutex
	forms map[form]*http.Request
}

// form is what requests have in common that differ in their clients' headers and bodies alone.
type form struct {
	upstream     *Upstream
	model, key   string
	endpoint     Endpoint
	count, array bool
}

// NewForwarder returns a Forwarder, or an error if cfg has no Upstreams or has a negative time limit.
func NewForwarder(cfg ForwarderConfig) (*Forwarder, error) {
	if cfg.Upstreams == nil {
		return nil, errors.New("provider: ForwarderConfig.Upstreams is nil")
	}
	if cfg.FirstByte < 0 || cfg.Idle < 0 || cfg.Total < 0 {
		return nil, errors.New("provider: ForwarderConfig.FirstByte, Idle and Total must not be negative")
	}
	cfg.FirstByte = cmp.Or(cfg.FirstByte, defaultTimeout)
	cfg.Idle = cmp.Or(cfg.Idle, cfg.FirstByte)
	if cfg.Base == nil {
		const connections = 256
		cfg.Base = NewBase(connections)
	}
	return &Forwarder{cfg: cfg, forms: make(map[form]*http.Request)}, nil
}

// Forwarded is a client's request for a [Forwarder].
type Forwarded struct {
	Endpoint Endpoint
	Stream   bool

	// Call has the requested model as its Lane. Call.MaxWait limits each wait separately. To end all waits, close Call.Withdrawn.
	Call sluice.Call

	// Count asks for the request's token count instead of an answer. Only Messages and GenerateContent support Count.
	Count bool

	// Array asks Gemini to stream one JSON array instead of events.
	Array bool

	// Query contains additional query parameters. Query parameters of the upstream have precedence over Query.
	Query string

	// Header is sent without Accept-Encoding and the header for the upstream's key. Header must not contain the client's credentials.
	Header http.Header

	// AsksUsage reports that Body adds stream_options to request usage in a stream, unless Destination.NoUsage is set.
	AsksUsage bool

	// Granted, if not nil, is called before each attempt. Granted must return quickly, and must not release the permit.
	Granted func(*sluice.Permit, Destination)

	// Body returns the request body for a destination and its length. The body must name Destination.Model. Body is called for each attempt.
	Body func(Destination) (io.ReadCloser, int64, error)
}

// ForwardReply is the result of [Forwarder.Do] or [Forwarder.Pass].
type ForwardReply struct {
	*http.Response // response of the last attempt; the caller must close its body, which releases the permit
	Via            Destination
	Tally          sluice.Tally

	kind    sluice.Kind // of an answer that came whole
	open    *answerBody // what is still on its way
	secrets []string
}

// Secrets returns the secrets to hide from the client: the upstream's key, and secrets in ForwarderConfig.Header.
func (r *ForwardReply) Secrets() []string { return r.secrets }

// Kind returns the kind of the call's outcome, which can differ from the HTTP status. Before the response body ends, Kind returns OK.
func (r *ForwardReply) Kind() sluice.Kind {
	if r.open == nil {
		return r.kind
	}
	return r.open.kind()
}

// Do sends a client's request to upstreams. If the call fails, Do returns the response to the last attempt. If the last attempt had no
// response, Do returns the error of the context, the error of the Scheduler's wait, or a *sluice.CallError.
func (f *Forwarder) Do(ctx context.Context, in Forwarded) (ForwardReply, error) {
	t := &tries{f: f, attempts: attempts{base: f.cfg.Base, unpacks: true}}
	u := f.cfg.Upstreams
	ways := u.waysOf(&in.Call, in.Endpoint)
	tally, err := u.do(ctx, in.Call, ways, in.Endpoint, in.content(u, ways), func(ctx context.Context, p *sluice.Permit, v Destination) sluice.Outcome {
		if in.Granted != nil {
			in.Granted(p, v)
		}
		cfg, model := ExchangeConfig{Endpoint: in.Endpoint, Stream: in.Stream, Cost: in.Call.Cost}, v.Upstream.Name+" "+v.Model
		if v.NoUsage = v.Upstream.Provider.UsageUnasked || f.added.of(model).noUsage; in.AsksUsage && !v.NoUsage {
			cfg.Added = []string{streamOptions}
		}
		o := t.try(ctx, p, v, cfg, func(ctx context.Context, v Destination) (*http.Request, error) { return f.request(ctx, &in, v) })
		f.added.Refused(model, &o)
		return o
	})
	return t.reply(ctx, tally, err)
}

// content returns a hash of the request, which is the same for the same content.
func (in *Forwarded) content(u *Upstreams, ways []route.Way) func() string {
	return func() string {
		body, _, err := in.Body(Destination{Upstream: u.all[ways[0].Upstream], Model: ways[0].Model})
		if err != nil {
			return ""
		}
		defer body.Close()
		sum := sha256.New()
		_, _ = io.Copy(sum, body) // what could not be read makes no difference
		return string(sum.Sum(nil))
	}
}

// request makes the request of one try.
func (f *Forwarder) request(ctx context.Context, in *Forwarded, v Destination) (*http.Request, error) {
	like, err := f.formed(form{upstream: v.Upstream, model: v.Model, key: v.Key, endpoint: in.Endpoint, count: in.Count, array: in.Array})
	if err != nil {
		return nil, err
	}
	req := like.WithContext(ctx)
	if in.Query != "" {
		u := *like.URL
		u.RawQuery = withQuery(u.RawQuery, in.Query)
		req.URL = &u
	}
	req.Header = together(in.Header, like.Header, v.Upstream.Provider.Auth.Header)
	body := func() (io.ReadCloser, int64, error) { return in.Body(v) }
	if req.Body, req.ContentLength, err = body(); err != nil {
		return nil, err
	}
	req.GetBody = func() (io.ReadCloser, error) {
		again, _, err := body()
		return again, err
	}
	return req, nil
}

// formed is a request of a form, which is not to be changed. It is kept for the next of its form.
func (f *Forwarder) formed(of form) (*http.Request, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if like := f.forms[of]; like != nil {
		return like, nil
	}
	up := of.upstream
	like, err := up.Provider.NewRequest(context.Background(), Target{BaseURL: up.BaseURL, Key: of.key, Endpoint: of.endpoint, Model: of.model}, nil)
	if err != nil {
		return nil, err
	}
	s := of.endpoint.spec()
	if of.count {
		like.URL.Path = strings.TrimSuffix(like.URL.Path, s.ending) + s.count
	}
	if of.array {
		like.URL.RawQuery = strings.Trim(strings.ReplaceAll("&"+like.URL.RawQuery, "&"+s.stream, ""), "&")
	}
	const most = 1000 // models may come from whoever asks
	if len(f.forms) == most {
		clear(f.forms)
	}
	f.forms[of] = like
	return like, nil
}

// together is what a client sends, and what it did not say of what the provider wants. The key is never the client's to say.
func together(client, own http.Header, key string) http.Header {
	h := make(http.Header, len(client)+len(own))
	maps.Copy(h, own)
	key = http.CanonicalHeaderKey(key)
	for name, values := range client {
		if _, ours := own[name]; !ours || name != key {
			h[name] = values
		}
	}
	h["Accept-Encoding"] = []string{"identity"} // a packed answer would hide its usage, and keys in it
	return h
}

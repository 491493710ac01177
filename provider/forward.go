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

// ForwarderConfig shapes a Forwarder. Upstreams is required.
type ForwarderConfig struct {
	Upstreams *Upstreams

	// Header is sent with every request, and wins over all others.
	Header http.Header

	// Base makes the exchanges. Default: NewBase(256).
	Base http.RoundTripper

	// FirstByte bounds each attempt from the instant the request leaves to the first byte of the response. Idle bounds the
	// time from one part of the response to the next. Total bounds all attempts of a call together, without the time in the
	// queue. Defaults: 10 minutes, as FirstByte, and none. A longer attempt or call fails with a *LateError.
	FirstByte, Idle, Total time.Duration
}

// Forwarder makes the calls that other programs ask for, through upstreams: each is sent as its client wrote it, but with the
// upstream's address, key and name of the model, and comes back as the provider answered. It is safe for concurrent use.
//
// As a Transport does, it tries again what failed before any of the answer was handed out, and looks at what passes.
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

// NewForwarder returns a Forwarder.
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

// Forwarded is a call as its client asked for it.
type Forwarded struct {
	Endpoint Endpoint
	Stream   bool

	// Call's lane is the model. Its MaxWait is of each of its waits; who would bound all of them together closes its Withdrawn.
	Call sluice.Call

	// Count asks how many tokens the request has, in place of an answer to it: of Messages or GenerateContent.
	Count bool

	// Array has a stream of Gemini come as one JSON array, as it does for a request that does not ask for events.
	Array bool

	// Query are members that the address gets, beside those that the provider's always has.
	Query string

	// Header is sent as it is, but for what the upstream's provider sets itself. It must hold no credentials of the client.
	Header http.Header

	// AsksUsage says that the body asks a stream for its usage, which the client did not, unless Destination.NoUsage.
	AsksUsage bool

	// Granted, if set, is called before each attempt with its permit, which it must not give back, and its destination. It
	// must be quick.
	Granted func(*sluice.Permit, Destination)

	// Body returns the request's body for a way, with the model named as the upstream does, and its length. It is asked for
	// each try.
	Body func(Destination) (io.ReadCloser, int64, error)
}

// ForwardReply is what a Forwarder got for a call.
type ForwardReply struct {
	*http.Response // its body holds the permit of a call that is still on its way: close it
	Via            Destination
	Tally          sluice.Tally

	kind    sluice.Kind // of an answer that came whole
	open    *answerBody // what is still on its way
	secrets []string
}

// Secrets are the key that the request was sent with, and the words of ForwarderConfig.Header that are secrets. The client must
// see none of them.
func (r *ForwardReply) Secrets() []string { return r.secrets }

// Kind returns the kind of the outcome, which the status alone does not decide. It is OK for a response whose body has not ended
// yet.
func (r *ForwardReply) Kind() sluice.Kind {
	if r.open == nil {
		return r.kind
	}
	return r.open.kind()
}

// Do makes a call. Where there is no point in going on, it is the last refusal that a provider gave; it fails where there is
// none: with the context's error, with what the Scheduler said of the wait, or with a *sluice.CallError.
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

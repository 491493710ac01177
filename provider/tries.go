package provider

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-llm/sluice"
)

// tries are those of a call that is forwarded. One goroutine drives them.
type tries struct {
	attempts
	f   *Forwarder
	via Destination

	used time.Duration // by tries so far
	kind sluice.Kind   // of the last
}

// try makes one try.
func (t *tries) try(ctx context.Context, p *sluice.Permit, v Destination, cfg ExchangeConfig, request func(context.Context, Destination) (*http.Request, error)) sluice.Outcome {
	began := time.Now()
	t.via, t.resp = v, nil
	req, err := request(ctx, v)
	if err != nil {
		return sluice.Outcome{Kind: sluice.BadRequest, Err: err, Unsent: true, Final: true}
	}
	t.allowed = allowance{first: t.f.cfg.FirstByte, idle: t.f.cfg.Idle}
	if total := t.f.cfg.Total; total > 0 {
		t.allowed.total = total - t.used
	}
	for name, values := range t.f.cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	cfg.Provider, cfg.MaxBytes, cfg.Key, cfg.keys = v.Upstream.Provider, defaultBytes, v.Key, secretsOf(t.f.cfg.Header, v.Key)
	t.cfg = cfg
	t.request = func(context.Context) *http.Request { return req }
	o := t.attempts.try(ctx, p)
	t.kind = o.Kind
	if o.Open {
		return o
	}
	t.used += time.Since(began)
	if total := t.f.cfg.Total; total > 0 && t.used >= total {
		o.Final = true
		if late, ok := errors.AsType[*LateError](o.Err); ok && late.Deadline == TotalDeadline {
			late.After = total // of all tries, whatever was left for this one
		}
	}
	return o
}

// reply is what came of the tries.
func (t *tries) reply(ctx context.Context, tally sluice.Tally, err error) (ForwardReply, error) {
	if t.open != nil {
		t.open.watch() // not before Do knows that the permit is the body's
	}
	if errors.Is(err, sluice.ErrWithdrawn) {
		t.resp = nil // rather than an earlier refusal
	}
	resp, err := t.result(ctx, nil, err)
	return ForwardReply{Response: stay(resp), Via: t.via, Tally: tally, kind: t.kind, open: t.open, secrets: t.cfg.keys}, err
}

package provider

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
)

// PassRequest is a request to an upstream path that is not an [Endpoint].
type PassRequest struct {
	Upstream string // name of the upstream
	Method   string // HTTP method
	Path     string // path in the provider's API, such as /v1/files
	Query    string // additional query parameters; the upstream's query parameters have precedence

	Call   sluice.Call // call for the upstream's Scheduler, with a lane of the upstream
	Header http.Header // request header, as in Forwarded.Header
	Body   func() (io.ReadCloser, int64, error)

	Granted func(*sluice.Permit, Destination) // function called before each attempt, as in Forwarded.Granted
}

// Pass sends a request to one upstream. After a rate-limit rejection, Pass waits and retries, as Do does. After other failures, Pass retries
// only GET and HEAD requests, because other requests could take effect twice.
func (f *Forwarder) Pass(ctx context.Context, in PassRequest) (ForwardReply, error) {
	u := f.cfg.Upstreams
	at := slices.IndexFunc(u.all, func(up *Upstream) bool { return up.Name == in.Upstream })
	if at < 0 {
		return ForwardReply{}, fmt.Errorf("unknown upstream %q", clip(in.Upstream, 200))
	}
	up := u.all[at]
	t := &tries{f: f, attempts: attempts{base: f.cfg.Base, raw: true, unpacks: true}}
	tally, err := up.Scheduler.Do(ctx, in.Call, func(ctx context.Context, p *sluice.Permit) sluice.Outcome {
		return u.router.Use(at, func(key int) sluice.Outcome {
			via := Destination{Upstream: up, Key: up.value(key)}
			if in.Granted != nil {
				in.Granted(p, via)
			}
			o := t.try(ctx, p, via, ExchangeConfig{Cost: in.Call.Cost}, in.request)
			reads := in.Method == http.MethodGet || in.Method == http.MethodHead
			o.Final = o.Final || !o.Kind.Throttle() && !reads
			return o
		})
	})
	return t.reply(ctx, tally, err)
}

func (in *PassRequest) request(ctx context.Context, v Destination) (*http.Request, error) {
	p := v.Upstream.Provider
	req, err := p.NewRequest(ctx, Target{BaseURL: v.Upstream.BaseURL, Key: v.Key, Endpoint: ChatCompletions}, nil)
	if err != nil {
		return nil, err
	}
	req.Method = in.Method
	base := strings.TrimSuffix(req.URL.Path, "/chat/completions")
	first, _, _ := strings.Cut(strings.TrimPrefix(in.Path, "/"), "/")
	if at := strings.LastIndexByte(base, '/'); at >= 0 && isVersion(first) && isVersion(base[at+1:]) {
		base = base[:at] // the client says which
	}
	req.URL.Path, req.URL.RawPath = base+in.Path, ""
	req.URL.RawQuery = withQuery(req.URL.RawQuery, in.Query)
	req.Header = together(in.Header, req.Header, p.Auth.Header)
	if req.Body, req.ContentLength, err = in.Body(); err != nil {
		return nil, err
	}
	req.GetBody = nil
	if req.ContentLength == 0 {
		req.Body.Close()
		req.Body = http.NoBody
	}
	return req, nil
}

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/coding"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// call is one request on its way.
type call struct {
	*state
	g       *Gateway
	w       http.ResponseWriter
	r       *http.Request
	to      outlet
	route   route
	dialect provider.Dialect
	body    *body
	request provider.Request // what the body asks for
	model   string           // as it is routed
	array   bool             // the client reads a stream of Gemini as an array
	early   early
	mask    mask       // of the answer
	tenant  *admission // whose call it is
	visit   *visit     // what is noted of it
	charged bool       // an answer came, or nobody waited for one: it counts for its tenant
}

// serve makes the call that a request asks for.
func (g *Gateway) serve(w *visit, r *http.Request, to route, on *state) {
	c := g.call(w, r, on)
	c.route = to
	if !to.models {
		c.dialect = to.endpoint.Dialect()
	}
	if bad := c.identify(); bad != nil {
		c.refuse(*bad)
		return
	}
	if to.models {
		c.listModels()
		return
	}
	if bad := c.read(); bad != nil {
		c.refuse(*bad)
		return
	}
	defer c.body.close()
	c.make()
}

// call begins one.
func (g *Gateway) call(w *visit, r *http.Request, on *state) *call {
	return &call{
		state: on, visit: w,
		g: g, w: w, r: r, dialect: provider.DialectOf(r),
		to: outlet{control: http.NewResponseController(w), conn: connOf(r), renewed: time.Now()},
	}
}

// read takes in the request's body, and finds out what it asks for.
func (c *call) read() *refusal {
	codings := coding.Of(c.r.Header)
	if !coding.Known(codings) {
		c.w.Header().Set("Accept-Encoding", coding.Names)
		return &refusal{status: http.StatusUnsupportedMediaType, kind: "invalid_request",
			message: fmt.Sprintf("the request body has the encodings %s: the gateway supports at most %d of %s",
				shown(strings.Join(codings, ", ")), coding.MaxCodings, coding.Names)}
	}
	if bad := c.take(); bad != nil {
		return bad
	}
	if bad := c.unpack(codings); bad != nil {
		return bad
	}
	if bad := c.understand(); bad != nil {
		c.body.close()
		return bad
	}
	return nil
}

// roomSoon is when a client is to come again for whose request there was no room.
const roomSoon = 5 * time.Second

// take takes in the request's body.
func (c *call) take() (bad *refusal) {
	var err error
	c.body, err = readBody(c.w, c.r, &c.cfg, c.room())
	if bad = c.refusalOfBody(err); bad != nil && bad.status != http.StatusServiceUnavailable {
		c.visit.unread = true
		c.w.Header().Set("Connection", "close")
	}
	return bad
}

// unpack replaces the request's body by what it holds.
func (c *call) unpack(codings []string) (bad *refusal) {
	if len(codings) == 0 {
		return nil
	}
	defer c.body.close()
	from, _ := c.body.open()
	defer from.Close()
	c.g.unpacking.Lock()
	defer c.g.unpacking.Unlock()
	var err error
	c.body, err = keepBody(coding.Reader(from, codings, c.cfg.maxBody()), -1, c.cfg.maxBody(), c.room())
	if bad = c.refusalOfBody(err); bad != nil && bad.status == http.StatusBadRequest {
		bad.message = fmt.Sprintf("the request body cannot be decompressed: it is not complete and valid %s", strings.Join(codings, ", "))
		if slices.Contains(codings, "zstd") {
			bad.message += fmt.Sprintf(" with a window of at most %d MiB", coding.MaxWindow>>20)
		}
	}
	return bad
}

// room is for a body of the request.
func (c *call) room() reservation {
	return reservation{of: &c.g.rooms, tenant: &c.tenant.tenant.bodies, total: c.cfg.MaxBodyMemory}
}

// refusalOfBody says to the client why its body was not taken in; nil if it was.
func (c *call) refusalOfBody(err error) *refusal {
	long, tooLong := errors.AsType[*http.MaxBytesError](err)
	invalid := &refusal{status: http.StatusBadRequest, kind: "invalid_request", message: "the request body could not be read"}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoRoom):
		return &refusal{status: http.StatusServiceUnavailable, kind: "bodies_full", after: roomSoon,
			message: "the gateway's memory for request bodies is full: retry later"}
	case tooLong:
		return &refusal{status: http.StatusRequestEntityTooLarge, kind: "request_too_large",
			message: fmt.Sprintf("the request body is too long: the maximum is %d bytes", long.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{status: http.StatusRequestTimeout, kind: "request_timeout", message: "the request body arrived too slowly"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		invalid.message = "the request body is incomplete"
	}
	return invalid
}

// understand finds out what the body asks for.
func (c *call) understand() *refusal {
	invalid := func(text string) *refusal {
		return &refusal{status: http.StatusBadRequest, kind: "invalid_request", message: text}
	}
	all := c.body.memory
	var err error
	if c.request, err = provider.Estimate(c.route.endpoint, all); err != nil {
		return invalid("the request body is not a JSON object")
	}
	asksUsage := c.request.Stream && c.route.endpoint == provider.ChatCompletions
	bound := provider.NoEndpoint
	if c.tenant.terms.bound() {
		bound = c.route.endpoint
	}
	if err := c.body.locate(all, asksUsage, bound); err != nil {
		return invalid(err.Error())
	}
	if c.route.model != "" && c.body.model.to > 0 && strings.TrimPrefix(c.request.Model, "models/") != c.route.model {
		return invalid(errTwoModels.Error())
	}
	if c.route.endpoint == provider.BatchEmbedContents || c.route.count && c.route.endpoint.ModelInPath() {
		if err := c.body.locateParts(all, c.route.model); err != nil {
			return invalid(err.Error())
		}
	}
	asked := cmp.Or(c.route.model, c.request.Model)
	if asked == "" {
		return invalid("the request names no model")
	}
	c.model = cmp.Or(c.cfg.Models[asked], asked)
	if bad := c.allowed(asked, c.model); bad != nil {
		return bad
	}
	if bad := c.aside(); bad != nil {
		return bad
	}
	if !c.cfg.Upstreams.Serves(c.model, c.route.endpoint) {
		return &refusal{status: http.StatusNotFound, kind: "model_not_found",
			message: fmt.Sprintf("no upstream serves the model %q at %s: GET /v1/models lists the models", shown(asked), c.route.endpoint)}
	}
	if c.route.count {
		c.request.Cost = sluice.Cost{}
	}
	c.array = c.route.endpoint == provider.StreamGenerateContent && c.r.URL.Query().Get("alt") != "sse"
	return nil
}

// aside refuses what a request asks for beside its model, of a tenant whose models are listed or whose calls are priced.
func (c *call) aside() *refusal {
	name := c.tenant.terms.Name
	switch {
	case c.body.unknown != nil:
		field := shown(*c.body.unknown)
		return &refusal{status: http.StatusBadRequest, kind: "invalid_request", field: field,
			message: fmt.Sprintf("unknown field %q: tenant %s may send only known fields of %s", field, name, c.route.name())}
	case len(c.body.named) > 0 && c.tenant.terms.capped():
		return &refusal{status: http.StatusForbidden, kind: "price_unknown",
			message: fmt.Sprintf("tenant %s has a spending cap, but the price of the other models in the request is unknown: remove these models", name)}
	case c.body.background && c.tenant.terms.capped():
		return &refusal{status: http.StatusForbidden, kind: "price_unknown",
			message: fmt.Sprintf("tenant %s has a spending cap, but the cost of a background response is unknown: remove the field background", name)}
	}
	for _, model := range c.body.named {
		model = strings.TrimPrefix(model, "models/")
		if to, ok := c.cfg.Models[model]; ok && to != model { // upstream it stands for itself
			return &refusal{status: http.StatusForbidden, kind: "model_not_allowed",
				message: fmt.Sprintf("%q is an alias of this gateway that works only in the field model: use %q here", shown(model), shown(to))}
		}
		if bad := c.allowed(model); bad != nil {
			return bad
		}
	}
	return nil
}

// make sends the call, and relays what comes back.
func (c *call) make() {
	if c.cfg.Early > 0 && c.request.Stream && !c.array && !c.route.count {
		c.early.start(c, c.cfg.Early)
	}
	defer c.early.stop()
	c.through(c.request.Stream, c.forwarded)
}

// through waits for the call's turn, sends it, and relays what comes back.
func (c *call) through(stream bool, send func(context.Context, sluice.Call) (provider.ForwardReply, error)) {
	defer func() { // after the answer's body is closed
		if !c.tenant.leave(c.charged) {
			return
		}
		if price := c.cfg.Upstreams.Price(c.model, c.route.endpoint); price != nil {
			e := c.estimate(price)
			c.visit.estimated(e.Amount()[budget.USD] / budget.Dollar)
		}
	}()
	c.visit.asks(c.model, c.listed[c.model], stream)
	ctx := c.r.Context()
	bad, err := c.admit(ctx)
	if bad != nil || err != nil {
		c.early.stop()
		c.notAdmitted(ctx, bad, err)
		return
	}
	asked := c.wanted()
	asked.ID = c.id()
	reply, err := send(ctx, asked)
	c.early.stop()
	c.finish(ctx, reply, err)
}

// forwarded sends the call to one of the upstreams that serve its model.
func (c *call) forwarded(ctx context.Context, asked sluice.Call) (provider.ForwardReply, error) {
	return c.forward.Do(ctx, provider.Forwarded{
		Endpoint: c.route.endpoint, Stream: c.request.Stream, Count: c.route.count, Array: c.array,
		Query: query(c.r.URL), Header: c.headers(),
		Call: asked, Granted: c.granted, AsksUsage: c.body.usage.text != "",
		Body: func(via provider.Destination) (io.ReadCloser, int64, error) {
			if err := c.tenant.sends(); err != nil {
				return nil, 0, err
			}
			rc, n := c.body.open(c.edits(via)...)
			return rc, n, nil
		},
	})
}

// headers are those of the client that go upstream with a known endpoint. Those of a bound tenant name no model, as headers of some
// servers do, and leave out Content-Type: a server that reads the body as a form would find another model in it than one that reads JSON.
func (c *call) headers() http.Header {
	h := outgoing(c.r.Header)
	delete(h, "Content-Encoding") // the body goes decompressed
	if c.tenant.terms.bound() {
		for name := range h {
			if !known(name) {
				delete(h, name)
			}
		}
	}
	return h
}

// granted is told of each try.
func (c *call) granted(p *sluice.Permit, via provider.Destination) {
	p.SetHolder(&try{c, via})
	c.tenant.granted()
	c.visit.granted(via)
}

// notAdmitted tells the client why its call does not even stand in the queue that all tenants share.
func (c *call) notAdmitted(ctx context.Context, bad *refusal, err error) {
	c.waited(c.tenant.waited)
	switch {
	case bad != nil:
		c.refuse(*bad)
	case ctx.Err() != nil:
		panic(http.ErrAbortHandler) // the client is gone
	default:
		c.refuse(c.refusalOf(err))
	}
}

// held is how long a call was held back, by its tenant's limits and by those of providers.
func (c *call) held(tally sluice.Tally) time.Duration { return c.tenant.waited + tally.Wait() }

// finish gives the client what came of a call.
func (c *call) finish(ctx context.Context, reply provider.ForwardReply, err error) {
	if err != nil {
		if ctx.Err() != nil {
			c.charged = true
			panic(http.ErrAbortHandler) // the client is gone
		}
		c.waited(c.held(reply.Tally))
		c.refuse(c.refusalOf(err))
		return
	}
	defer reply.Body.Close()
	c.charged = reply.StatusCode/100 == 2 && reply.Kind() == sluice.OK
	c.relay(reply)
	c.visit.meant = reply.Kind()
}

// edits are the changes to the body for a way.
func (c *call) edits(via provider.Destination) (edits []edit) {
	b := c.body
	if b.model.to > 0 && c.request.Model != "" {
		name := via.Model
		if c.route.endpoint.ModelInPath() && strings.HasPrefix(c.request.Model, "models/") {
			name = "models/" + name
		}
		if name != c.request.Model {
			b.model.text = string(jsonscan.AppendString(nil, name))
			edits = append(edits, b.model)
		}
	}
	if via.Model != c.route.model {
		edits = b.appendParts(edits, via.Model)
	}
	if c.asksUsage(via) {
		edits = append(edits, b.usage)
	}
	return edits
}

// asksUsage reports whether a stream is asked for its usage, though the client did not.
func (c *call) asksUsage(via provider.Destination) bool {
	return c.body.usage.text != "" && !via.NoUsage
}

// id names the call in events.
func (c *call) id() string { return c.visit.record.ID }

// waited says how long the call was held back.
func (c *call) waited(d time.Duration) {
	if !c.early.begun() {
		setWaited(c.w.Header(), d)
	}
}

// refuse tells the client why there is no answer.
func (c *call) refuse(r refusal) {
	if c.early.begun() {
		c.breakOff(r)
	}
	c.to.renew()
	refuse(c.w, c.dialect, r)
}

// refusalOf says to the client why there is no answer.
func (c *call) refusalOf(err error) refusal {
	if errors.Is(err, sluice.ErrWithdrawn) {
		return c.tenant.ended()
	}
	if spent, ok := errors.AsType[*spentError](err); ok {
		return spent.refusal
	}
	if late, ok := errors.AsType[*sluice.SlotTimeoutError](err); ok {
		return c.tooLate(late.Wait)
	}
	if late, ok := errors.AsType[*provider.LateError](err); ok {
		return lateness(late)
	}
	failed, ok := errors.AsType[*sluice.CallError](err)
	switch {
	case errors.Is(err, sluice.ErrTooLarge):
		return refusal{status: http.StatusBadRequest, kind: "request_too_large",
			message: "the request alone exceeds the provider's limit"}
	case errors.Is(err, sluice.ErrClosed):
		return refusal{status: http.StatusServiceUnavailable, kind: "stopping", message: "the gateway is stopping"}
	case !ok:
		c.g.log.Error("a request failed", "error", provider.Redact(err.Error(), credentials(c.r)...))
		return refusal{status: http.StatusInternalServerError, kind: "internal", message: "the gateway failed"}
	}
	text := failed.Kind.String()
	if failed.Outcome.Err != nil {
		text = provider.Redact(failed.Outcome.Err.Error(), credentials(c.r)...)
	}
	switch failed.Outcome.Kind {
	case sluice.QuotaExhausted, sluice.Auth:
		return refusal{status: http.StatusServiceUnavailable, kind: "upstreams_unavailable", message: text}
	case sluice.Timeout:
		return refusal{status: http.StatusGatewayTimeout, kind: "upstream_timeout", message: text}
	case sluice.RateLimit, sluice.UsageWindow, sluice.Overloaded:
		return refusal{status: http.StatusTooManyRequests, kind: "quota_exhausted", message: text, after: max(time.Second, c.delay())}
	case sluice.BadRequest:
		return refusal{status: http.StatusBadRequest, kind: "invalid_request", message: text}
	}
	return refusal{status: http.StatusBadGateway, kind: "upstream_failed", message: text}
}

// shown is a client's word for a model as messages and logs have it: short, and without a key that was put there.
func shown(model string) string {
	const most = 200
	return provider.Redact(prose.Clip(model, most))
}

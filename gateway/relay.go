package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/coding"
	"github.com/sluice-llm/sluice/internal/sse"
	"github.com/sluice-llm/sluice/provider"
)

// copyBuffers are what answers pass through.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// relay passes an answer on.
func (c *call) relay(reply provider.ForwardReply) {
	c.visit.begins()
	resp := reply.Response
	c.mask = newMask(reply.Secrets()...)
	if len(coding.Of(resp.Header)) > 0 && resp.ContentLength != 0 && c.r.Method != http.MethodHead && resp.StatusCode != http.StatusNotModified {
		c.refuse(refusal{status: http.StatusBadGateway, kind: "upstream_failed",
			message: "the upstream compressed its response, so the gateway cannot remove keys from the response"})
		return
	}
	if c.early.begun() {
		c.relayLate(reply)
		return
	}
	h := c.w.Header()
	returned(h, resp.Header)
	c.mask.header(h)
	setWaited(h, c.held(reply.Tally))
	if resp.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	c.to.renew()
	c.w.WriteHeader(resp.StatusCode)
	if isEvents(resp.Header) {
		c.stream(reply)
		return
	}
	c.copy(resp)
}

// setWaited says how long a call was held back.
func setWaited(h http.Header, d time.Duration) {
	h.Set("X-Sluice-Wait-Ms", strconv.FormatInt(d.Milliseconds(), 10))
}

// isEvents reports whether an answer is a stream of events that can be read.
func isEvents(h http.Header) bool {
	return sse.Is(h) && len(coding.Of(h)) == 0
}

// relayLate passes on what came after the client got its head.
func (c *call) relayLate(reply provider.ForwardReply) {
	switch {
	case reply.StatusCode/100 == 2 && isEvents(reply.Header):
		c.stream(reply)
	case reply.StatusCode/100 == 2:
		c.breakOff(refusal{status: http.StatusBadGateway, kind: "upstream_failed", message: "the response is not a stream of events"})
	default:
		const most = 64 << 10
		b, _ := io.ReadAll(io.LimitReader(reply.Body, most))
		c.breakOff(refusal{status: reply.StatusCode, kind: "upstream_refused", message: c.said(reply, b)})
	}
}

// said are the words of a provider's refusal.
func (c *call) said(reply provider.ForwardReply, body []byte) string {
	v := provider.Classify(reply.Via.Upstream.Provider, reply.StatusCode, reply.Header, body, time.Now())
	return provider.Redact(cmp.Or(v.Message, reply.Status), append(credentials(c.r), reply.Secrets()...)...)
}

// copy passes on an answer that is no stream of events.
func (c *call) copy(resp *http.Response) {
	if whole, ok := resp.Body.(io.WriterTo); ok {
		if _, err := whole.WriteTo(masked{c}); err == nil { // it fails by the client alone
			c.send(c.mask.End(), false)
		}
		return
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 && !c.send(c.mask.Next((*buf)[:n]), resp.ContentLength < 0) {
			return
		}
		if err == io.EOF {
			c.send(c.mask.End(), resp.ContentLength < 0)
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // else a cut answer would look whole to the client
		}
	}
}

// masked writes to the client, without the upstream's key.
type masked struct{ c *call }

func (m masked) Write(b []byte) (int, error) {
	if !m.c.send(m.c.mask.Next(b), false) {
		return 0, errClientGone
	}
	return len(b), nil
}

var errClientGone = errors.New("the client stopped reading the response")

// stream passes each event on as it comes.
func (c *call) stream(reply provider.ForwardReply) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	filter := eventFilter{dropUsage: c.asksUsage(reply.Via)}
	for {
		n, err := reply.Body.Read(*buf)
		if n > 0 && !c.send(c.mask.Next(filter.feed((*buf)[:n])), true) {
			return
		}
		switch {
		case err == io.EOF:
			c.send(c.mask.Next(filter.end()), true)
			c.send(c.mask.End(), true)
			return
		case err == nil:
		case c.r.Context().Err() != nil || !filter.between():
			panic(http.ErrAbortHandler)
		default:
			c.breakOff(cutOff(err))
		}
	}
}

// send passes bytes on; false if the client takes no more.
func (c *call) send(b []byte, flush bool) bool {
	if len(b) == 0 {
		return true
	}
	c.to.renew()
	c.to.conn.gather()
	_, err := c.w.Write(b)
	if err == nil && flush {
		err = c.to.flush()
	}
	if c.to.conn.release() != nil {
		c.visit.gone = true
		return false
	}
	return err == nil
}

// breakOff says in the stream why it ends before its end, and cuts the connection so that nobody takes it for whole.
func (c *call) breakOff(r refusal) {
	c.visit.refused = r.kind
	c.send(r.event(c.route.endpoint), true)
	panic(http.ErrAbortHandler)
}

// cutOff says why an answer broke off.
func cutOff(err error) refusal {
	r := refusal{status: http.StatusBadGateway, kind: "upstream_cut", message: "the response is incomplete"}
	switch late, ok := errors.AsType[*provider.LateError](err); {
	case ok:
		r = lateness(late)
	case errors.Is(err, context.DeadlineExceeded):
		r.status, r.kind = http.StatusGatewayTimeout, "upstream_timeout"
	}
	return r
}

// lateness says which deadline an answer missed.
func lateness(late *provider.LateError) refusal {
	r := refusal{status: http.StatusGatewayTimeout, kind: "first_byte_timeout", message: late.Error()}
	switch late.Deadline {
	case provider.IdleDeadline:
		r.kind = "idle_timeout"
	case provider.TotalDeadline:
		r.kind = "total_timeout"
	}
	return r
}

// outlet is the client's connection, whose writes must end.
type outlet struct {
	control *http.ResponseController
	conn    *conn // nil: not known
	renewed time.Time
}

// renew gives the client time to take what is written next. A deadline that was set just now will do.
func (o *outlet) renew() {
	if now := time.Now(); now.Sub(o.renewed) > writePatience/8 {
		o.renewed = now
		_ = o.control.SetWriteDeadline(now.Add(writePatience)) // what has no connection needs none
	}
}

func (o *outlet) flush() error { return o.control.Flush() }

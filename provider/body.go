package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/limits"
)

// answerBody is the body of an answer that is still on its way. Its bytes pass through unchanged, and are looked at in
// passing. It gives the permit back exactly once: at the last byte, at an error, at Close, or when the try's time or
// context ends, whichever comes first.
type answerBody struct {
	cfg      ExchangeConfig
	flight   *flight
	permit   *sluice.Permit
	resp     *http.Response
	rc       io.ReadCloser
	readings []limits.Reading
	ctx      context.Context // the caller's, of the request that this body answers
	stop     func() bool     // ends the watch over the context

	reading sync.Mutex // held by a Read of rc: one at a time

	mu      sync.Mutex
	prefix  []byte // read ahead, not handed out yet
	meter   *meter // of a stream; nil for another answer,
	tail    tail   // whose end holds its usage
	settled bool
	meant   sluice.Kind   // once it is
	back    chan struct{} // closed when the permit is
}

// watch sees to it that the permit comes back even if nobody reads or closes the body any more: the try's timer and the
// caller's context both end the try's context.
func (b *answerBody) watch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = make(chan struct{})
	b.stop = b.flight.after(func() { b.settle(b.flight.cause()) })
}

// Read reads from the buffer, then from the network.
func (b *answerBody) Read(p []byte) (n int, err error) {
	if len(b.prefix) > 0 {
		n = copy(p, b.prefix)
		b.prefix = b.prefix[n:]
		return n, nil
	}
	defer func() {
		if v := recover(); v != nil {
			b.settle(&sluice.PanicError{Value: v, Stack: debug.Stack()})
			panic(v)
		}
	}()
	n, err = b.read(p)
	b.see(p[:n])
	if err != nil {
		b.settle(err)
		if late := b.flight.late(); late != nil && err != io.EOF {
			err = late // rather than "context canceled", which the caller did not do
		}
	}
	return n, err
}

func (b *answerBody) read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	return b.rc.Read(p)
}

// see looks at bytes that pass.
func (b *answerBody) see(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.settled || len(p) == 0 {
		return
	}
	b.flight.alive()
	if b.meter != nil {
		b.meter.feed(p)
	} else {
		b.tail.Write(p)
	}
}

// Close gives the permit back with the usage so far, and closes the connection.
func (b *answerBody) Close() error {
	if b.whole() && b.reading.TryLock() { // an HTTP/2 body wakes only one of two readers when it ends
		// SDKs close at the last event. Closing here would cost the connection.
		b.flight.drain(b.rc)
		b.reading.Unlock()
	}
	b.settle(errClosedEarly)
	return b.rc.Close()
}

// whole reports whether the message ended, though the body did not yet.
func (b *answerBody) whole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.settled && b.meter != nil && b.meter.done
}

// settle releases the permit, once. err is why the body ended. When it returns the permit is back, whoever released it.
func (b *answerBody) settle(err error) {
	b.mu.Lock()
	if b.settled {
		b.mu.Unlock()
		<-b.back
		return
	}
	defer close(b.back)
	b.settled = true
	b.stop()
	if err == io.EOF && b.meter != nil {
		b.meter.end()
	}
	o := b.ended(err)
	o.Readings, b.meant = b.readings, o.Kind
	b.flight.land()
	b.mu.Unlock()
	b.permit.Release(o)
}

// kind is what the answer meant, once it ended.
func (b *answerBody) kind() sluice.Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.meant
}

// ended is the outcome of an answer that ended with err: nil or io.EOF when all of it came.
func (b *answerBody) ended(err error) (o sluice.Outcome) {
	if b.meter == nil {
		switch err {
		case io.EOF, nil:
			o.Usage, o.HasUsage = b.tail.usage(b.cfg.Endpoint)
		case errClosedEarly:
		default:
			o = b.cfg.broken(b.ctx, b.flight, err)
		}
		return o
	}
	m := b.meter
	switch {
	case m.fault != nil:
		o = b.cfg.fault(b.resp, m.fault, requestID(b.resp.Header))
	case m.complete() || err == errClosedEarly || m.bad != nil:
		// What the caller did not want to read, or we could not, is no failure of the provider.
	case err == nil || err == io.EOF:
		o = sluice.Outcome{Kind: sluice.Network, Err: errCut}
	default:
		o = b.cfg.broken(b.ctx, b.flight, err)
	}
	o.Usage, o.HasUsage = m.usage(b.cfg.Cost, err != nil && err != io.EOF)
	return o
}

// errClosedEarly is why a body ended that was closed before its end.
var errClosedEarly = errors.New("response body was closed before its end")

// tail keeps the end of a long answer.
type tail struct {
	b   []byte
	cut bool // it is not the whole answer
}

// tailBytes is where the usage of an answer is looked for: all dialects put it behind the content.
const tailBytes = 16 << 10

// Write takes the next bytes.
func (t *tail) Write(p []byte) {
	if len(p) >= tailBytes {
		t.cut = t.cut || len(t.b) > 0 || len(p) > tailBytes
		t.b = append(t.b[:0], p[len(p)-tailBytes:]...)
		return
	}
	if len(t.b)+len(p) > 2*tailBytes {
		t.cut = true
		keep := t.b[len(t.b)-tailBytes:]
		t.b = append(t.b[:0], keep...)
	}
	t.b = append(t.b, p...)
}

// usage reads the last usage object. Text cannot be taken for one: within a string, its quotes are escaped.
func (t *tail) usage(e Endpoint) (sluice.Usage, bool) {
	at := max(bytes.LastIndex(t.b, []byte(`"usage"`)), bytes.LastIndex(t.b, []byte(`"usageMetadata"`)))
	if at < 0 || at > 0 && t.b[at-1] == '\\' {
		return sluice.Usage{}, false
	}
	if !t.cut {
		if sum := summarize(e, t.b); sum.valid {
			return sum.usage, sum.hasUsage
		}
	}
	sum := summary{endpoint: e}
	s := jsonscan.New(t.b[at:])
	sum.member(&s, s.Key())
	ok := sum.hasUsage && !s.Bad()
	if tier := bytes.LastIndex(t.b, []byte(`"service_tier"`)); tier > 0 && t.b[tier-1] != '\\' {
		s := jsonscan.New(t.b[tier:])
		s.Key()
		sum.readService(&s)
	}
	return sum.usage, ok
}

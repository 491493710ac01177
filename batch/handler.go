package batch

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Handler makes the requests of a run in place of the Transport, for example with an SDK. It must be safe for concurrent use.
//
// A Handler with Prepare(context.Context) error is prepared once, before the first request: an error ends the run. A Handler that is an
// io.Closer is closed once at the end of the run, and the run returns its error.
type Handler interface {
	// Handle makes one attempt and must not retry. The Body of the answer is JSON; a Status of zero counts as 200.
	Handle(ctx context.Context, permit *sluice.Permit, r HandlerRequest) (provider.Answer, sluice.Outcome)
}

// HandlerRequest is the request of an item as a Handler gets it.
type HandlerRequest struct {
	ID       string // of the item
	Model    string
	Endpoint provider.Endpoint
	Body     []byte
	Metadata []byte // fields of the row that are not sent, as JSON; nil: none
}

// handler handles the items of a run: from the cache, or by the calls of its back end.
type handler struct {
	cache *cache // nil: none
	warm  warmUp
	calls *work.Calls
	own   Handler // of the Config
}

// Handle handles an item.
func (h *handler) Handle(ctx context.Context, item work.Item) (work.Result, error) {
	if h.cache != nil {
		return h.cache.handle(ctx, item, h.call)
	}
	return h.call(ctx, item)
}

// call makes the call of an item.
func (h *handler) call(ctx context.Context, item work.Item) (work.Result, error) {
	leave, err := h.warm.enter(ctx, &item)
	if err != nil {
		return work.Result{}, err
	}
	defer leave()
	return h.calls.Handle(ctx, item)
}

// Prepare prepares the Handler of the Config.
func (h *handler) Prepare(ctx context.Context) error {
	if p, ok := h.own.(interface{ Prepare(context.Context) error }); ok {
		return p.Prepare(ctx)
	}
	return nil
}

// Close closes the Handler of the Config.
func (h *handler) Close() error {
	if c, ok := h.own.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// warmUp lets the first request of each lane that marks a part of its prompt for the provider's cache go alone. The provider caches that part
// when it responds, so the others of the lane, which wait before they ask for a permit, cost less. The zero value is ready.
type warmUp struct {
	mu    sync.Mutex
	lanes map[string]chan struct{} // closed when the others may go
}

// longestWarmUp bounds the wait for a first request, which may hang.
const longestWarmUp = time.Minute

// enter returns when an item may go, with the function to call after it.
func (w *warmUp) enter(ctx context.Context, item *work.Item) (leave func(), err error) {
	leave = func() {}
	if !bytes.Contains(item.Data.(*call).body, []byte(`"cache_control"`)) {
		return leave, nil
	}
	w.mu.Lock()
	warm, known := w.lanes[item.Lane]
	if !known {
		if w.lanes == nil {
			w.lanes = make(map[string]chan struct{})
		}
		warm = make(chan struct{})
		w.lanes[item.Lane] = warm
	}
	w.mu.Unlock()
	if known {
		return leave, work.Await(ctx, warm)
	}
	end := sync.OnceFunc(func() { close(warm) })
	timer := time.AfterFunc(longestWarmUp, end)
	return func() { timer.Stop(); end() }, nil
}

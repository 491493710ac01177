package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// refusal is what the gateway answers by itself, in the form that the client's API has for errors.
type refusal struct {
	status  int
	kind    string // queue_full, queue_timeout, quota_exhausted, invalid_request, ...
	message string
	field   string        // of the request, that is wrong; "" is none
	after   time.Duration // when to come again; 0 is not said
}

// stated is the part of a refusal that the body states.
func (r refusal) stated() provider.Refusal {
	return provider.Refusal{Status: r.status, Kind: r.kind, Message: r.message, Field: r.field}
}

// refuse answers with a refusal. Its kind stands in the header x-sluice-error, and where the dialect has a place for it.
func refuse(w http.ResponseWriter, d provider.Dialect, r refusal) {
	if v, ok := w.(*visit); ok {
		v.refused = r.kind
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Sluice-Error", r.kind)
	if r.after > 0 {
		ms := r.after.Milliseconds()
		if r.after%time.Millisecond > 0 {
			ms++
		}
		h.Set("Retry-After", strconv.FormatInt((ms+999)/1000, 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(ms, 10))
	} else {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(append(encoded(d.Refusal(r.stated())), '\n'))
}

// event is the refusal as an event of a stream whose head is sent already.
func (r refusal) event(e provider.Endpoint) []byte {
	name, data := e.RefusalEvent(r.stated())
	if name != "" {
		name = "event: " + name + "\n"
	}
	return slices.Concat([]byte(name), []byte("data: "), encoded(data), []byte("\n\n"))
}

func encoded(doc any) []byte {
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	return b
}

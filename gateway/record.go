package gateway

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// Record describes a finished request. A Record contains no content of the request or the response.
type Record struct {
	At       time.Time // arrival time of the request
	ID       string    // x-request-id of the client, or a generated ID
	Tenant   string    // name of the tenant ("" if none)
	Model    string    // model name with aliases resolved ("" if none, or if rejected before the model was known)
	Listed   bool      // Model is listed in the configuration or the registry
	Upstream string    // name of the upstream of the last attempt ("" if no attempt was sent)
	Provider string    // name of the provider of the last attempt
	Endpoint string    // API path, such as /v1/messages ("" if unknown)
	Stream   bool      // the client asked for a stream

	Status int    // HTTP status of the response to the client (0 if the client disconnected first)
	Kind   string // a Kind constant, or the gateway's reason for the rejection, such as queue_full

	Tries   int           // attempts sent
	Wait    time.Duration // time in queues, over all attempts
	First   time.Duration // time from sending the first attempt to the start of the response (0 if no response)
	Latency time.Duration // time from the arrival to the end of the request

	Usage   sluice.Usage // reported usage of all attempts
	Cost    float64      // cost in US dollars, if HasCost is true
	HasCost bool         // the price of at least one attempt is known

	Estimated float64 // part of Cost in US dollars that is estimated, because responses reported no usage
	Unpriced  int     // number of provider tool calls that Cost omits, because their price is unknown
}

func (r *Record) add(c pricing.Cost) {
	r.Cost, r.Estimated, r.Unpriced = r.Cost+c.USD, r.Estimated+c.Estimated, r.Unpriced+c.Unpriced
}

// Values of Record.Kind for requests that the gateway did not reject.
const (
	KindOK         = "ok"             // the client got the complete response
	KindUpstream   = "upstream_error" // the client got an error of the upstream, with any HTTP status
	KindCut        = "cut"            // the response ended early
	KindClientGone = "client_gone"    // the client disconnected before the end of the response
)

// visit is a request while it is here. It is the writer of its answer, which it looks at in passing.
type visit struct {
	http.ResponseWriter
	traffic *Traffic
	r       *http.Request
	refused string // why
	unread  bool   // the rest of its body is not waited for
	gone    bool   // the client takes no more
	whole   bool   // the answer ended as it should

	meant sluice.Kind // what the upstream's answer did, whatever its status

	mu     sync.Mutex // below: permits come back from other goroutines as well
	record Record
	left   time.Time // first
	stage  stage
	since  time.Time // it waits
	over   bool
}

// stage is how far a call is.
type stage uint8

const (
	stageNone    stage = iota // it is read
	stageWaiting              // for its turn
	stageOpen                 // an upstream has it
)

// visit begins the one of a request.
func (s *state) visit(w http.ResponseWriter, r *http.Request) *visit {
	v := &visit{ResponseWriter: w, traffic: s.cfg.Traffic, r: r}
	v.record.ID, v.record.At = requestID(r.Header), time.Now()
	return v
}

// requestID is the client's name for its request where that can stand in logs, or one that is made.
func requestID(h http.Header) string {
	const longest = 128
	if id := h.Get("X-Request-Id"); id != "" && len(id) <= longest && isWord(id) {
		return provider.Redact(id)
	}
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], rand.Uint64())
	binary.LittleEndian.PutUint32(b[8:], rand.Uint32())
	return hex.EncodeToString(b[:])
}

func isWord(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Unwrap is for http.ResponseController.
func (v *visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// WriteHeader notes the status.
func (v *visit) WriteHeader(status int) {
	v.answers(status)
	v.ResponseWriter.WriteHeader(status)
}

// Write records whether the client still reads.
func (v *visit) Write(b []byte) (int, error) {
	v.answers(http.StatusOK)
	n, err := v.ResponseWriter.Write(b)
	if err != nil {
		v.gone = true
	}
	return n, err
}

// answers notes the status that the client gets, once.
func (v *visit) answers(status int) {
	if v.record.Status != 0 || status < http.StatusOK {
		return
	}
	v.record.Status = status
	v.Header().Set("X-Sluice-Request-Id", v.record.ID)
}

// begins notes that the upstream's answer begins, which may be after the client got its head.
func (v *visit) begins() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.left.IsZero() {
		v.record.First = max(1, time.Since(v.left)) // 0 would say that it does not begin
	}
}

// of notes whose request it is.
func (v *visit) of(tenant string) {
	v.mu.Lock()
	v.record.Tenant = tenant
	v.mu.Unlock()
}

// asks notes what a request is for, and that it waits from now on.
func (v *visit) asks(model string, listed, stream bool) {
	v.mu.Lock()
	v.record.Model, v.record.Listed, v.record.Stream = shown(model), listed, stream
	v.mu.Unlock()
	v.moves(stageWaiting)
}

// granted notes a try.
func (v *visit) granted(via provider.Destination) {
	v.mu.Lock()
	v.record.Upstream, v.record.Provider = via.Upstream.Name, via.Upstream.Provider.Name
	v.mu.Unlock()
	v.moves(stageOpen)
}

// moves notes the stage at which the call is from now on.
func (v *visit) moves(to stage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over || v.stage == to {
		return
	}
	v.traffic.move(&v.record, v.stage, to)
	now := time.Now()
	if v.stage == stageWaiting {
		v.record.Wait += now.Sub(v.since)
	}
	v.stage, v.since = to, now
}

// leave ends the visit.
func (v *visit) leave() {
	v.mu.Lock()
	v.over = true
	was := v.stage
	r := &v.record
	r.Latency, r.Kind = time.Since(r.At), v.kind()
	if was == stageWaiting && r.First == 0 { // else its last try is over, and there is none to come
		r.Wait += time.Since(v.since)
	}
	ended := *r
	v.mu.Unlock()
	v.traffic.move(&ended, was, stageNone)
	v.traffic.end(&ended)
}

func (v *visit) kind() string {
	switch {
	case v.refused != "":
		return v.refused
	case v.gone, v.record.Status == 0, !v.whole && v.r.Context().Err() != nil:
		return KindClientGone
	case !v.whole, v.meant == sluice.Network && v.record.Status < http.StatusBadRequest: // a stream that ended before its message did
		return KindCut
	case v.record.Status == http.StatusNotModified: // of a path that is passed on: it is what was asked
		return KindOK
	case v.meant != sluice.OK, v.record.Status >= http.StatusBadRequest:
		return KindUpstream
	}
	return KindOK
}

// sent notes that the call left.
func (v *visit) sent(at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	if v.left.IsZero() {
		v.left = at
	}
	v.record.Tries++
}

// throttled notes a rate-limit rejection by the upstream.
func (v *visit) throttled() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.traffic.throttle(&v.record)
}

// tries is how many left so far.
func (v *visit) tries() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.record.Tries
}

// released notes what a try used and cost.
func (v *visit) released(used sluice.Usage, cost pricing.Cost, priced bool) {
	v.mu.Lock()
	if !v.over {
		v.record.Usage = v.record.Usage.Add(used)
		v.record.add(cost)
		v.record.HasCost = v.record.HasCost || priced
	}
	v.mu.Unlock()
	v.moves(stageWaiting) // for another try, unless this was the last
}

// estimated notes the estimate of a call whose answer does not state its usage.
func (v *visit) estimated(usd float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.record.add(pricing.Cost{USD: usd, Estimated: usd})
	v.record.HasCost = true
}

// try is one try of a call, until its permit is back.
type try struct {
	call *call
	via  provider.Destination
}

// Sent notes that it left.
func (t *try) Sent(_ *sluice.Permit, at time.Time) {
	t.call.visit.sent(at)
	t.call.tenant.sent()
}

// Released records the usage of the attempt.
func (t *try) Released(_ *sluice.Permit, _ bool, kind sluice.Kind, used sluice.Usage) {
	if kind.Throttle() {
		t.call.visit.throttled()
	}
	var cost pricing.Cost
	if t.via.Price != nil {
		cost = t.via.Price.Cost(used)
	}
	t.call.visit.released(used, cost, t.via.Price != nil)
	t.call.tenant.released(t.call.request.Cost, used, cost.USD)
}

// Package simbatch simulates the Batch APIs of OpenAI, Anthropic and Gemini: requests that are submitted together, run
// later at a lower price, and whose results are fetched as a file.
package simbatch

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Host is the simulator of single requests, which answers the lines of batches. A path names the endpoint for a line.
type Host interface {
	// Authorize returns the rejection of a wrong key or version, with the reason that Stats counts; "" if both are right.
	Authorize(path string, r *http.Request) (why string, status int, body []byte)
	// Charge returns the model of a request and the tokens that it is charged; ok is false if the request is invalid. A request
	// that names no model is for the given one, the batch's.
	Charge(path, model string, request []byte) (of string, tokens int, ok bool)
	// Answer returns the response to a request at an instant. A fail of 400, 429 or 500 is that error; 0 is none.
	Answer(path, model string, request []byte, at time.Time, fail int) (status int, body []byte)
	// Luck returns the number in [0, 1) that decides a choice about a request or a file, for the n-th time from 0.
	Luck(choice uint64, about [16]byte, n uint32) float64
	// Hint adds the headers of a rejection that state the wait.
	Hint(path string, header http.Header, wait time.Duration)
}

// Handler serves the Batch APIs, which the path tells apart. It is safe for concurrent use.
type Handler struct {
	config  Config
	seed    uint64
	noStats bool
	host    Host

	mu      sync.Mutex
	files   []*file  // oldest first
	batches []*batch // oldest first, deleted ones included
	ids     uint64   // so far
	tries   map[hash]uint32
	stats   Stats
}

// New returns a Handler for a valid Config. With noStats it keeps no accounts per request.
func New(c Config, seed uint64, noStats bool, host Host) *Handler {
	c.Latency = max(cmp.Or(c.Latency, time.Second), 0)
	return &Handler{
		config: c, seed: seed, noStats: noStats, host: host, tries: map[hash]uint32{},
		stats: Stats{Calls: map[string]int{}, Refused: map[string]int{}},
	}
}

const uploadPath = "/upload/v1beta/files" // Gemini's

// route returns the API to which a path belongs, or nil, with the object ("batch", "file" or "upload"), the id and the verb.
func route(path string) (a *api, of, id, verb string) {
	switch path = strings.TrimPrefix(path, "/download"); {
	case path == uploadPath:
		return geminiAPI, "upload", "", ""
	case strings.HasPrefix(path, "/v1beta/models/") && strings.HasSuffix(path, ":batchGenerateContent"):
		return geminiAPI, "batch", "", ""
	}
	for _, a := range apis {
		for of, list := range a.lists {
			if rest, ok := strings.CutPrefix(path, list.path); ok && (rest == "" || rest[0] == '/') {
				id, verb, _ = strings.Cut(strings.TrimPrefix(rest, "/"), a.separator)
				return a, of, id, verb
			}
		}
	}
	return nil, "", "", ""
}

// Serves reports whether a path belongs to a Batch API.
func Serves(path string) bool {
	a, _, _, _ := route(path)
	return a != nil
}

// request is a request to a Batch API.
type request struct {
	*http.Request
	query url.Values
	base  string // scheme and host, as the client has them
	body  []byte
	now   time.Time

	api          *api
	of, id, verb string // in the path
}

// reply is the response to one.
type reply struct {
	status int
	header http.Header
	kind   string // media type; "": JSON
	body   []byte
	lost   bool // the response never arrives
	cut    int  // 1: the body ends before its length; 2: it has no length, and ends in the middle
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr, query: hr.URL.Query()}
	r.api, r.of, r.id, r.verb = route(hr.URL.Path)
	_, size := h.maxima(r.api)
	size += 1 << 20 // for the form around a file
	var body bytes.Buffer
	if n := hr.ContentLength; n > 0 && n <= int64(size) {
		body.Grow(int(n) + bytes.MinRead)
	}
	if hr.Body != nil {
		if _, err := body.ReadFrom(io.LimitReader(hr.Body, int64(size)+1)); err != nil {
			panic(http.ErrAbortHandler) // the client disconnected
		}
	}
	base := url.URL{Scheme: cmp.Or(hr.URL.Scheme, "http"), Host: cmp.Or(hr.Host, hr.URL.Host)}
	if hr.TLS != nil {
		base.Scheme = "https"
	}
	r.base, r.body, r.now = base.String(), body.Bytes(), time.Now()
	h.mu.Lock()
	out := h.serve(r, size)
	h.mu.Unlock()
	out.write(w)
}

// write sends the reply. A panic with http.ErrAbortHandler breaks the connection.
func (out *reply) write(w http.ResponseWriter) {
	if out.lost {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), out.header)
	w.Header().Set("Content-Type", cmp.Or(out.kind, "application/json"))
	part := len(out.body)
	if out.cut > 0 {
		for part /= 2; part > 1 && (out.body[part-1] == '\n' || out.body[part] == '\n'); part-- { // it has to end within a line
		}
	}
	if out.cut == 2 { // the body ends with the connection: https://www.rfc-editor.org/rfc/rfc9112#section-6.3
		w.Header().Set("Transfer-Encoding", "identity") // which net/http takes for neither length nor chunks
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(out.body)))
	}
	w.WriteHeader(out.status)
	w.Write(out.body[:part]) // the client may have disconnected
	if out.cut == 1 {
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// operations by method, object and verb. A slash follows the object if there is an id.
var operations = map[string]string{
	"POST batch": "create", "GET batch": "list", "GET batch/": "get", "POST batch/cancel": "cancel", "DELETE batch/": "delete",
	"GET batch/results": "results", "POST file": "upload", "GET file": "files", "GET file/": "file", "GET file/content": "content",
	"GET file/download": "content", "DELETE file/": "remove",
}

// serve answers a request.
func (h *Handler) serve(r *request, size int) reply {
	if !continues(r) {
		if why, status, body := h.host.Authorize(r.api.endpoint, r.Request); why != "" {
			h.stats.Refused[why]++
			return reply{status: status, body: body}
		}
	}
	if len(r.body) > size {
		return h.refuse(r, &problem{status: http.StatusRequestEntityTooLarge, message: "Request exceeds the maximum size"})
	}
	if r.of == "upload" {
		return h.resumable(r)
	}
	target := r.Method + " " + r.of
	if r.id != "" {
		target += "/"
	}
	operation := operations[target+r.verb]
	if operation == "" || strings.Contains(r.api.lacks, operation) {
		return h.refuse(r, r.api.problem("no_route", "method", r.Method, "path", r.URL.Path))
	}
	h.stats.Calls[operation]++
	switch operation {
	case "create":
		return h.create(r)
	case "list", "files":
		return h.page(r)
	case "upload":
		return h.upload(r)
	case "file", "content", "remove":
		return h.ofFile(r, operation)
	}
	return h.ofBatch(r, operation)
}

// answer is the reply with an object.
func answer(o object) reply { return reply{status: http.StatusOK, body: encode(o)} }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // every part of it is JSON
	}
	return b
}

// refuse is the reply with an error.
func (h *Handler) refuse(r *request, p *problem) reply {
	p.status = cmp.Or(p.status, http.StatusBadRequest)
	why := "bad_request"
	switch p.status {
	case http.StatusNotFound, http.StatusForbidden:
		why = "not_found"
	case http.StatusTooManyRequests:
		why = p.name
	}
	h.stats.Refused[why]++
	kind := cmp.Or(r.api.kinds[p.status], r.api.kinds[0])
	out := reply{status: p.status, body: encode(r.api.failure(p, kind)), header: http.Header{}}
	if p.wait > 0 {
		h.host.Hint(r.api.endpoint, out.header, p.wait)
	}
	return out
}

// hash identifies a request, a line or a file.
type hash [16]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// hashOf returns the hash of all parts together.
func hashOf(parts ...[]byte) hash {
	sum := sha256.New()
	for _, part := range parts {
		sum.Write(part)
	}
	return hash(sum.Sum(nil)[:16])
}

// newID returns a new id. It does not show how many there are.
func (h *Handler) newID(prefix string) string {
	h.ids++
	return prefix + hashOf(fmt.Appendf(nil, "%d %d", h.seed, h.ids)).String()
}

// The random choices. The numbers below are the host's.
const (
	drawBad uint64 = iota + 6
	drawFail
	drawDrop
	drawOrder
)

// again counts a try, and returns the number of tries before.
func (h *Handler) again(what hash) uint32 {
	h.tries[what]++
	return h.tries[what] - 1
}

// drops reports whether the response to a creation is lost.
func (h *Handler) drops(what hash) bool {
	lost := h.config.Drop > 0 && h.host.Luck(drawDrop, what, h.again(what)) < h.config.Drop
	if lost {
		h.stats.Dropped++
	}
	return lost
}
